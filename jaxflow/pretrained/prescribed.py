"""A trained encoder whose attention is replaced by prescribed matrices: x ← x + Σ_h V_h a_h(x), then what was trained.

With V and B of opposite signs equation (1.1) of arXiv:2606.07600 says that the covariance stays bounded, with equal
signs that it grows. The norm before attention goes, since it would hide the growth from attention.
"""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_shape
from jaxflow.attention import Dense
from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.pretrained.attention import AbstractAttention, Heads
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.encoder import Encoder


@final
class PrescribedAttention(AbstractAttention):
    """y_i = Σ_h V_h a_h(x_i), a_h(x) the mean of the tokens under the weights e^{⟨B_h x, x_j⟩}.

    Attributes:
        B, V: (h, d, d).
    """

    B: Float[Array, "h d d"]
    V: Float[Array, "h d d"]

    @property
    def exchangeable(self) -> bool:
        return True

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        tilted = Dense().free(self.B, x, Cloud(x).log_w)
        return jnp.einsum("hij,hnj->ni", self.V, tilted.mean)

    def heads_at(self, M: Float[Array, "d d"], c: Float[Array, " d"]) -> Heads:
        B = jnp.einsum("ji,hjk->hik", M, self.B)
        V = self.V @ M[None]
        return Heads(B @ M[None], V, B @ c, self.V.sum(0) @ c)


def prescribe(
    encoder: Encoder, B: Float[Array, "_ _ _"], V: Float[Array, "_ _ _"], *, feedforward: bool = True
) -> Encoder:
    """The encoder with `PrescribedAttention` in every block, on the tokens themselves.

    Args:
        encoder: pre-norm (ViT, DeiT, DINOv2, ModernBERT). Its embedding and its feed-forward layers stay.
        B, V: (h, d, d), the same in every block.
        feedforward: False silences the feed-forward layers: every block is then one step of length 1 of (1.1), A = 0.

    Raises:
        InputError: a post-norm encoder, whose norms bound every covariance; matrices that do not fit.
    """
    d = encoder.dim
    B, V = as_float(B, "B"), as_float(V, "V")
    check_shape(B, ("h", d, d), "B")
    check_shape(V, (B.shape[0], d, d), "V")
    if any(block.post for block in encoder.blocks):
        raise InputError(
            "norms every token after attention, which bounds the covariance whatever V and B are",
            where="encoder",
            got=encoder.kind,
            expected="a pre-norm encoder: vit, deit, dinov2 or modernbert",
        )
    attention = PrescribedAttention(B, V)

    def block(trained: Block) -> Block:
        scale = trained.scale2 if feedforward else jnp.zeros(d, encoder.dtype)
        return Block(attention, trained.feedforward, None, trained.norm2, None, scale)

    return eqx.tree_at(lambda e: e.blocks, encoder, tuple(block(trained) for trained in encoder.blocks))
