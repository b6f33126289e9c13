"""Hidden states of every layer against transformers v4, with random weights; and folders that are refused."""

import json
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxflow.errors import InputError
from jaxflow.pretrained import load

TOKENS = {
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "vocab_size": 50,
}
PATCHES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 12, "patch_size": 4}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
MODELS = {
    "bert": ("BertModel", "BertConfig", {**TOKENS, "max_position_embeddings": 20}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**TOKENS, **SPECIAL, "local_attention": 8}),
    "vit": ("ViTModel", "ViTConfig", {**PATCHES, "intermediate_size": 40}),
    "deit": ("DeiTModel", "DeiTConfig", {**PATCHES, "intermediate_size": 40}),
    "dinov2": ("Dinov2Model", "Dinov2Config", {**PATCHES, "mlp_ratio": 2}),
}


@pytest.fixture(scope="module")
def saved(torch, transformers, tmp_path_factory):
    """A model of each kind with random weights (all of them: norms, biases and scales too) and its folder."""
    made = {}

    def make(kind):
        if kind not in made:
            model, config, keys = MODELS[kind]
            torch.manual_seed(3)
            # "eager" takes its softmax in float32, whatever the precision of the model.
            options = {"attn_implementation": "sdpa"} | ({"reference_compile": False} if kind == "modernbert" else {})
            model = getattr(transformers, model)(getattr(transformers, config)(**keys, **options)).eval()
            with torch.no_grad():
                for name, x in model.named_parameters():
                    x.copy_(torch.randn_like(x) * 0.3 + (1.0 if "norm" in name.lower() and "weight" in name else 0.0))
            folder = tmp_path_factory.mktemp(kind)
            model.save_pretrained(folder, safe_serialization=True)
            made[kind] = model, folder
        return made[kind]

    return make


def inputs_for(kind, *, n=14, size=12):
    rng = np.random.default_rng(5)
    if kind in ("bert", "modernbert"):
        return rng.integers(3, 50, n)
    return rng.normal(size=(3, size, size))


@eqx.filter_jit
def ours(encoder, inputs):
    states = encoder.hidden_states(encoder.embed(inputs))
    return states, states[-1] if encoder.norm is None else encoder.norm(states[-1])


def theirs(model, inputs, dtype):
    import torch

    model = model.to(getattr(torch, np.dtype(dtype).name))
    x = torch.as_tensor(inputs)[None]
    with torch.no_grad():
        out = model(x if x.dtype == torch.int64 else x.to(model.dtype), output_hidden_states=True)
    return [h[0].numpy() for h in out.hidden_states], out.last_hidden_state[0].numpy()


def compare(encoder, model, inputs, dtype, *, tolerance):
    """Every hidden state, relative to the size of its entries. ModernBERT norms the last one it returns."""
    inputs = np.asarray(inputs, None if inputs.dtype == np.int64 else dtype)
    found, last = ours(encoder, jnp.asarray(inputs))
    expected, expected_last = theirs(model, inputs, dtype)
    assert found.dtype == dtype
    assert len(found) == len(expected)
    for mine, other in zip(found, expected):
        np.testing.assert_allclose(mine, other, atol=tolerance * np.abs(other).max())
    np.testing.assert_allclose(last, expected_last, atol=tolerance * np.abs(expected_last).max())


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_hidden_states_of_every_layer_are_those_of_transformers(saved, monkeypatch, kind, dtype, tolerance):
    """ModernBERT of transformers turns by angles in float32, whatever its precision; for float64 they are replaced."""
    model, folder = saved(kind)
    if kind == "modernbert" and dtype == np.float64:
        in_double(model, monkeypatch)
    compare(load(folder, dtype=dtype), model, inputs_for(kind), dtype, tolerance=tolerance)


def in_double(model, monkeypatch):
    """Lets ModernBERT of transformers compute its rotary positions in float64."""
    import torch

    def angles(self, x, position_ids):
        k = 2 * len(self.inv_freq)
        frequency = self.config.rope_theta ** (-torch.arange(0, k, 2, dtype=torch.float64) / k)
        half = position_ids[..., None].double() * frequency
        angle = torch.cat([half, half], dim=-1)
        return angle.cos(), angle.sin()

    monkeypatch.setattr(type(model.layers[0].attn.rotary_emb), "forward", angles)


@pytest.mark.parametrize(("size", "grid"), [(20, 5), (13, 3), (8, 2)])
def test_positions_of_dinov2_are_resized_as_pytorch_does(saved, size, grid):
    model, folder = saved("dinov2")
    inputs = inputs_for("dinov2", size=size)[:, : 4 * grid]
    compare(load(folder, dtype=jnp.float32), model, inputs, np.float32, tolerance=1e-5)


def test_a_window_matters_and_so_do_positions(saved):
    """What the comparison above would not see if its sequence were too short."""
    encoder = load(saved("modernbert")[1], dtype=jnp.float64)
    assert [b.attention.window for b in encoder.blocks] == [None, 4, 4, None]
    assert [b.attention.theta for b in encoder.blocks] == [160_000.0, 10_000.0, 10_000.0, 160_000.0]
    assert encoder.blocks[0].norm1 is None
    attention = encoder.blocks[1].attention
    x = jax.random.normal(jax.random.key(0), (14, 24))
    moved = attention(x.at[5].add(1.0)) - attention(x)
    assert [i for i in range(14) if float(jnp.abs(moved[i]).max()) > 1e-9] == list(range(1, 10))


def test_a_config_in_the_words_of_transformers_v5_reads_the_same(saved, tmp_path):
    _, folder = saved("modernbert")
    config = json.loads((folder / "config.json").read_text())
    for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
        del config[key]
    config["layer_types"] = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    kinds = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
    config["rope_parameters"] = {name: {"rope_type": "default", "rope_theta": x} for name, x in kinds.items()}
    tensors = load_file(folder / "model.safetensors")
    write(tmp_path, config, {f"model.{name}": x for name, x in tensors.items()})
    same = jax.tree.map(lambda x, y: bool((x == y).all()), load(tmp_path), load(folder))
    assert all(jax.tree.leaves(same))


def test_names_may_carry_the_prefix_of_a_task_model(saved, tmp_path):
    for kind, prefix, head in (("bert", "bert.", "cls.predictions.bias"), ("dinov2", "dinov2.", "classifier.weight")):
        _, folder = saved(kind)
        config = json.loads((folder / "config.json").read_text())
        tensors = {f"{prefix}{name}": x for name, x in load_file(folder / "model.safetensors").items()}
        write(tmp_path, config, {**tensors, head: np.zeros(3, np.float32)})
        same = jax.tree.map(lambda x, y: bool((x == y).all()), load(tmp_path), load(folder))
        assert all(jax.tree.leaves(same))


def test_streaming_gives_the_same_states_and_batches_share_programs(saved):
    encoder = load(saved("vit")[1], dtype=jnp.float64)
    x = jax.random.normal(jax.random.key(1), (2, 7, 24))
    traced = []

    @eqx.filter_jit
    def apply(block, x):
        traced.append(1)
        return jax.vmap(block)(x)

    streamed = jnp.stack(list(encoder.stream(x, apply=apply)), axis=1)
    np.testing.assert_allclose(streamed, jax.vmap(encoder.hidden_states)(x), atol=1e-12)
    assert len(traced) == 1


def test_attention_without_positions_does_not_care_about_the_order_of_tokens(saved):
    x = jax.random.normal(jax.random.key(2), (9, 24))
    for kind, fixed in (("bert", True), ("modernbert", False)):
        encoder = load(saved(kind)[1], dtype=jnp.float64)
        gap = jnp.abs(encoder.hidden_states(x[::-1])[-1][::-1] - encoder.hidden_states(x)[-1]).max()
        assert (float(gap) < 1e-10) == fixed


# --- what is refused ------------------------------------------------------------------------------------------------


def write(folder, config, tensors):
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the folder of a BERT, with some keys and tensors changed; None removes."""

    def change(keys=None, tensors=None, kind="bert"):
        source = saved(kind)[1]
        config = json.loads((source / "config.json").read_text()) | (keys or {})
        arrays = load_file(source / "model.safetensors") | (tensors or {})
        kept = {name: value for name, value in config.items() if value is not None}
        write(tmp_path, kept, {name: x for name, x in arrays.items() if x is not None})
        return tmp_path

    return change


QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("keys", "tensors", "words"),
    [
        ({"model_type": "gpt2"}, {}, ["model_type", "'gpt2'|gpt2", "bert, modernbert, vit, deit, dinov2"]),
        ({"model_type": None}, {}, ["model_type", "nothing"]),
        ({"hidden_act": "swish7"}, {}, ["hidden_act", "swish7", "gelu_new"]),
        ({"num_attention_heads": 5}, {}, ["num_attention_heads", "divisor of 24"]),
        ({"num_hidden_layers": "four"}, {}, ["num_hidden_layers", "whole number"]),
        ({"position_embedding_type": "relative_key"}, {}, ["position_embedding_type", "absolute"]),
        ({"layer_norm_eps": -1.0}, {}, ["layer_norm_eps", "above zero"]),
        ({}, {QUERY: None}, ["1 missing", QUERY, "model.safetensors"]),
        ({}, {QUERY: np.zeros((24, 23), np.float32)}, [r"of another shape: .*\(24, 23\), expected \(24, 24\)"]),
        ({}, {"encoder.layer.9.odd": np.zeros(2, np.float32)}, ["1 without a place", r"layer\.9\.odd"]),
        ({}, {QUERY: np.full((24, 24), np.nan, np.float32)}, ["not finite", QUERY]),
        ({"num_hidden_layers": 5}, {}, ["16 missing", "and 8 more"]),
        ({"num_hidden_layers": 3}, {}, ["16 without a place"]),
    ],
)
def test_folders_that_do_not_fit_are_refused(folder, keys, tensors, words):
    with pytest.raises(InputError) as raised:
        load(folder(keys, tensors))
    for word in words:
        assert raised.match(word)


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("dinov2", {"use_swiglu_ffn": True}, "use_swiglu_ffn"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_parameters"),
        ("modernbert", {"rope_scaling": {"type": "linear"}}, "rope_scaling"),
    ],
)
def test_options_that_are_not_supported_are_refused(folder, kind, keys, words):
    with pytest.raises(InputError, match=words):
        load(folder(keys, kind=kind))


def test_pickles_are_refused_unread(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    path = folder() / "model.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="pickle"):
        load(tmp_path)
    path.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin(.|\n)*pickles are refused"):
        load(tmp_path)


def test_files_that_are_missing_or_torn_are_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"nowhere.config\.json"):
        load(tmp_path / "nowhere")
    path = folder() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="no valid safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        load(tmp_path)


def test_inputs_longer_than_the_positions_are_refused(saved):
    with pytest.raises(InputError, match=r"longer(.|\n)*21 tokens(.|\n)*at most 20"):
        load(saved("bert")[1]).embed(jnp.arange(21))
    with pytest.raises(InputError, match=r"pixels(.|\n)*\(3, 12, 12\)"):
        load(saved("vit")[1]).embed(jnp.zeros((3, 16, 12), jnp.float32))
    with pytest.raises(InputError, match="pixels"):
        load(saved("dinov2")[1]).embed(jnp.zeros((1, 12, 12), jnp.float32))


def test_inputs_that_would_be_clipped_or_promoted_are_refused(saved):
    """JAX itself takes the last row for a number beyond the table, and float64 for float32 with float64."""
    encoder = load(saved("bert")[1])
    for ids in ([0, 50], [-1, 3]):
        with pytest.raises(InputError, match=r"ids(.|\n)*0 to 49"):
            encoder.embed(jnp.asarray(ids))
    with pytest.raises(InputError, match="mixes precisions"):
        encoder.hidden_states(jnp.zeros((5, 24)))
    with pytest.raises(InputError, match="another dimension"):
        encoder.hidden_states(jnp.zeros((5, 23), jnp.float32))
    with pytest.raises(InputError, match="mixes precisions"):
        load(saved("vit")[1]).embed(jnp.zeros((3, 12, 12)))


def test_half_precision_is_widened(folder):
    """float16 and bfloat16 on disk become float32, number by number."""
    import ml_dtypes

    exact = np.round(np.linspace(-1, 1, 576).reshape(24, 24) * 64).astype(np.float32) / 64
    for half in (np.float16, ml_dtypes.bfloat16):
        encoder = load(folder(tensors={QUERY: exact.astype(half)}))
        weight = encoder.blocks[1].attention.query.weight
        assert weight.dtype == jnp.float32
        np.testing.assert_array_equal(weight, exact)
