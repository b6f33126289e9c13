"""Hidden states of MiniLM (32 sequences of 128 tokens) and DINOv2 ViT-S/14 (32 images of 224 × 224) in float32, beside
PyTorch's fused attention through transformers.

Needs the trained weights: python -m jaxflow.pretrained.fetch .weights (or JAXFLOW_WEIGHTS). Both compute on all cores.
"""

import os
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interleave import medians, report

from jaxflow.pretrained import Encoder, load

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")
transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[test]'")

WEIGHTS = Path(os.environ.get("JAXFLOW_WEIGHTS", Path(__file__).parents[1] / ".weights"))
BATCH = 32
RNG = np.random.default_rng(0)
INPUTS = {
    "minilm": ("BertModel", RNG.integers(1000, 30_000, (BATCH, 128))),
    "dinov2": ("Dinov2Model", RNG.normal(size=(BATCH, 3, 224, 224)).astype(np.float32)),
}


@eqx.filter_jit
def last(encoder: Encoder, inputs: jax.Array) -> jax.Array:
    """The last hidden states of a batch."""

    def one(x: jax.Array) -> jax.Array:
        x = encoder.embed(x)
        for block in encoder.blocks:
            x = block(x)
        return x

    return jax.vmap(one)(inputs)


@pytest.mark.benchmark(group="encoders: forward pass, batch 32")
@pytest.mark.parametrize("name", list(INPUTS))
def test_forward(benchmark, name):
    folder = WEIGHTS / name
    if not folder.is_dir():
        pytest.skip(f"no trained weights: python -m jaxflow.pretrained.fetch {WEIGHTS}")
    kind, inputs = INPUTS[name]
    encoder, x = load(folder, dtype=jnp.float32), jnp.asarray(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="sdpa").eval()
    tensor = torch.as_tensor(inputs)

    def jaxflow():
        return last(encoder, x).block_until_ready()

    @torch.inference_mode()
    def pytorch():
        return model(tensor, output_hidden_states=True).hidden_states[-1]

    expected = pytorch().numpy()
    np.testing.assert_allclose(jaxflow(), expected, atol=1e-5 * np.abs(expected).max())
    contestants = {"jaxflow": jaxflow, f"PyTorch, {torch.get_num_threads()} threads": pytorch}
    benchmark.extra_info.update(report(f"{name}, batch {BATCH}, float32", medians(contestants, rounds=7)))
    benchmark.pedantic(jaxflow, rounds=1)
