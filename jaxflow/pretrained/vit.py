"""ViT, DeiT and DINOv2: pre-norm blocks on the patches of an image, with the names of transformers v4."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxflow.pretrained.attention import SelfAttention
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.config import Config
from jaxflow.pretrained.embeddings import PatchEmbedding
from jaxflow.pretrained.encoder import Encoder
from jaxflow.pretrained.parts import MLP
from jaxflow.pretrained.tensors import Tensors

PREFIXES = ("vit.", "deit.", "dinov2.")
IGNORED = ("pooler.", "classifier.", "cls_classifier.", "distillation_classifier.", "decoder.", "embeddings.mask_token")


def build_vit(config: Config, tensors: Tensors) -> Encoder:
    """A ViT: CLS and patches."""
    return _build(config, tensors, extra=("cls_token",), eps=1e-12, kind="vit")


def build_deit(config: Config, tensors: Tensors) -> Encoder:
    """A DeiT: CLS, distillation token and patches."""
    return _build(config, tensors, extra=("cls_token", "distillation_token"), eps=1e-12, kind="deit")


def build_dinov2(config: Config, tensors: Tensors) -> Encoder:
    """A DINOv2: CLS and patches, LayerScale, positions that are resized to the image."""
    config.only("use_swiglu_ffn", False)
    return _build(config, tensors, extra=("cls_token",), eps=1e-6, kind="dinov2")


def _build(config: Config, tensors: Tensors, *, extra: tuple[str, ...], eps: float, kind: str) -> Encoder:
    d, p, c = config.whole("hidden_size"), config.whole("patch_size", 16), config.whole("num_channels", 3)
    grid = config.whole("image_size", 224) // p
    eps, bias, act = (
        config.number("layer_norm_eps", eps),
        config.flag("qkv_bias", True),
        config.activation("hidden_act"),
    )
    dino = kind == "dinov2"
    inner = d * config.whole("mlp_ratio", 4) if dino else config.whole("intermediate_size")
    sizes: dict[str, Any] = {"heads": config.heads(d), "bias": bias, "eps": eps, "act": act, "inner": inner}
    tokens = [tensors.take(f"embeddings.{name}", 1, 1, d)[0] for name in extra]
    embedding = PatchEmbedding(
        tensors.take("embeddings.patch_embeddings.projection.weight", d, c, p, p),
        tensors.take("embeddings.patch_embeddings.projection.bias", d),
        jnp.concatenate(tokens),
        tensors.take("embeddings.position_embeddings", 1, len(extra) + grid**2, d)[0],
        resize=dino,
    )
    blocks = tuple(
        _block(tensors, f"encoder.layer.{i}", d, dino=dino, **sizes) for i in range(config.whole("num_hidden_layers"))
    )
    return Encoder(embedding, blocks, tensors.norm("layernorm", d, eps), kind)


def _block(
    tensors: Tensors, at: str, d: int, *, dino: bool, heads: int, bias: bool, eps: float, act: str, inner: int
) -> Block:
    names = ("norm1", "norm2", "mlp.fc1", "mlp.fc2")
    if not dino:
        names = ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense")
    norm1, norm2, first, second = (f"{at}.{name}" for name in names)
    Q, K, V = (
        tensors.linear(f"{at}.attention.attention.{name}", d, d, bias=bias) for name in ("query", "key", "value")
    )

    def scale(name: str) -> Array | None:
        return tensors.take(f"{at}.{name}.lambda1", d) if dino else None

    return Block(
        SelfAttention(Q, K, V, tensors.linear(f"{at}.attention.output.dense", d, d), heads),
        MLP(tensors.linear(first, inner, d), tensors.linear(second, d, inner), act),
        tensors.norm(norm1, d, eps),
        tensors.norm(norm2, d, eps),
        scale1=scale("layer_scale1"),
        scale2=scale("layer_scale2"),
    )
