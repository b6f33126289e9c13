"""One block of a trained encoder:

pre-norm    x ← x + s₁ ∘ attention(N₁ x),   x ← x + s₂ ∘ feedforward(N₂ x)
post-norm   x ← N₁(x + attention(x)),       x ← N₂(x + feedforward(x))
"""

from typing import final

import equinox as eqx
from jaxtyping import Array, Float

from jaxflow.pretrained.attention import AbstractAttention
from jaxflow.pretrained.parts import AbstractFeedforward, LayerNorm


@final
class Block(eqx.Module):
    """Attention, then feed-forward, each beside a residual connection.

    Attributes:
        attention, feedforward: see their classes.
        norm1, norm2: N₁, N₂; None stands for the identity (the first block of ModernBERT has no N₁).
        scale1, scale2: s₁, s₂ (LayerScale), (d,); None stands for 1.
        post: whether the norms come after the residual sums, as in BERT.
    """

    attention: AbstractAttention
    feedforward: AbstractFeedforward
    norm1: LayerNorm | None
    norm2: LayerNorm
    scale1: Float[Array, " d"] | None = None
    scale2: Float[Array, " d"] | None = None
    post: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self.second(self.first(x))

    def first(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Attention and its residual sum, with the norm that follows it in a post-norm block."""
        if self.post:
            assert self.norm1 is not None
            return self.norm1(x + self.attention(x))
        y = self.attention(x if self.norm1 is None else self.norm1(x))
        return x + (y if self.scale1 is None else self.scale1[None] * y)

    def second(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The feed-forward layer, likewise; it sees every token by itself."""
        if self.post:
            return self.norm2(x + self.feedforward(x))
        y = self.feedforward(self.norm2(x))
        return x + (y if self.scale2 is None else self.scale2[None] * y)
