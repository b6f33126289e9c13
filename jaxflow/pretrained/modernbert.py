"""ModernBERT: pre-norm blocks with rotary positions, gated feed-forward layers, and mostly local attention.

Block i sees everything if i mod 3 = 0 and |i − j| ≤ 64 else, with another θ of the rotary positions; the first block
has no norm before its attention. Configs of transformers v4 say so by `global_attn_every_n_layers` and two thetas,
later ones by `layer_types` and `rope_parameters`.
"""

import jax.numpy as jnp

from jaxflow.pretrained.attention import SelfAttention
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.config import Config
from jaxflow.pretrained.embeddings import WordEmbedding
from jaxflow.pretrained.encoder import Encoder
from jaxflow.pretrained.parts import GLU, Linear
from jaxflow.pretrained.tensors import Tensors

PREFIXES = ("model.",)
IGNORED = ("head.", "decoder.", "classifier.")
EVERYTHING, LOCAL = "full_attention", "sliding_attention"


def build(config: Config, tensors: Tensors) -> Encoder:
    """The encoder that `config` describes."""
    d, inner = config.whole("hidden_size"), config.whole("intermediate_size")
    eps, heads, act = config.number("norm_eps", 1e-5), config.heads(d), config.activation("hidden_activation")
    norm_bias, qkv_bias, mlp_bias = (config.flag(k, False) for k in ("norm_bias", "attention_bias", "mlp_bias"))
    thetas, window = _thetas(config), config.whole("local_attention", 128) // 2
    embedding = WordEmbedding(
        tensors.take("embeddings.tok_embeddings.weight", config.whole("vocab_size"), d),
        None,
        None,
        tensors.norm("embeddings.norm", d, eps, bias=norm_bias),
        config.whole("max_position_embeddings", 8192),
    )

    def block(i: int, kind: str) -> Block:
        at = f"layers.{i}"
        W = jnp.split(tensors.take(f"{at}.attn.Wqkv.weight", 3 * d, d), 3)
        b = jnp.split(tensors.take(f"{at}.attn.Wqkv.bias", 3 * d), 3) if qkv_bias else [None] * 3
        Q, K, V = (Linear(weight, bias) for weight, bias in zip(W, b))
        O = tensors.linear(f"{at}.attn.Wo", d, d, bias=qkv_bias)
        return Block(
            SelfAttention(Q, K, V, O, heads, theta=thetas[kind], window=window if kind == LOCAL else None),
            GLU(
                tensors.linear(f"{at}.mlp.Wi", 2 * inner, d, bias=mlp_bias),
                tensors.linear(f"{at}.mlp.Wo", d, inner, bias=mlp_bias),
                act,
            ),
            None if i == 0 else tensors.norm(f"{at}.attn_norm", d, eps, bias=norm_bias),
            tensors.norm(f"{at}.mlp_norm", d, eps, bias=norm_bias),
        )

    blocks = tuple(block(i, kind) for i, kind in enumerate(_kinds(config)))
    return Encoder(embedding, blocks, tensors.norm("final_norm", d, eps, bias=norm_bias), "modernbert")


def _kinds(config: Config) -> list[str]:
    """Which blocks see everything, and which a window."""
    count, every = config.whole("num_hidden_layers"), config.whole("global_attn_every_n_layers", 3)
    kinds = config.keys.get("layer_types") or [LOCAL if i % every else EVERYTHING for i in range(count)]
    if len(kinds) != count or not set(kinds) <= {EVERYTHING, LOCAL}:
        raise config.error("does not fit", "layer_types", expected=f"{count} times {EVERYTHING} or {LOCAL}")
    return list(kinds)


def _thetas(config: Config) -> dict[str, float]:
    """θ of the rotary positions by kind of block."""
    config.only("rope_scaling", None)
    everything = config.number("global_rope_theta", 160_000.0)
    local = config.keys.get("local_rope_theta", 10_000.0)
    thetas = {
        EVERYTHING: everything,
        LOCAL: everything if local is None else config.number("local_rope_theta", 10_000.0),
    }
    for kind, given in (config.keys.get("rope_parameters") or {}).items():
        if kind not in thetas or given.get("rope_type", "default") != "default":
            raise config.error(
                "is not supported", "rope_parameters", expected="rope_type default for both kinds of block"
            )
        thetas[kind] = float(given.get("rope_theta", thetas[kind]))
    return thetas
