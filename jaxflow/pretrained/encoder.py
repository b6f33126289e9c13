"""A trained encoder: the embedding, the blocks one after the other, and the norm after the last one."""

from collections.abc import Callable, Iterator
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxflow._checks import check_same_dtype
from jaxflow.errors import InputError
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.embeddings import PatchEmbedding, WordEmbedding
from jaxflow.pretrained.parts import LayerNorm


@final
class Encoder(eqx.Module):
    """The hidden states of a trained transformer; for one sequence or image (`jax.vmap` for many).

    Attributes:
        embedding: `WordEmbedding` or `PatchEmbedding`.
        blocks: in order; (l,).
        norm: after the last block; None where the model has none (post-norm).
        kind: the `model_type` of its config.
    """

    embedding: WordEmbedding | PatchEmbedding
    blocks: tuple[Block, ...]
    norm: LayerNorm | None
    kind: str = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """d."""
        return self.blocks[0].norm2.weight.shape[0]

    @property
    def dtype(self) -> Any:
        """The floating type of the weights."""
        return self.blocks[0].norm2.weight.dtype

    def embed(self, inputs: Int[Array, " n"] | Float[Array, "c H W"]) -> Float[Array, "n d"]:
        """The first hidden state, of token numbers (n,) or of pixels (c, H, W)."""
        return self.embedding(inputs)

    def hidden_states(self, x: Float[Array, "n d"]) -> Float[Array, "l n d"]:
        """x itself, and the hidden state after every block; the norm after the last block is left out (see `norm`).

        Args:
            x: what enters the first block: `embed(…)`, or any other tokens, such as Gaussian ones.

        Returns:
            (number of blocks + 1, n, d).
        """
        return jnp.stack(list(self.stream(x)))

    def stream(
        self, x: Float[Array, "*b n d"], *, apply: Callable[[Block, Array], Array] = lambda block, x: block(x)
    ) -> Iterator[Float[Array, "*b n d"]]:
        """The same, one hidden state at a time, so that only one needs to be in memory.

        Args:
            x: what enters the first block.
            apply: applies a block to x. Compiled, it serves all blocks of equal structure: `eqx.filter_jit` of a
                function that maps a block over a batch, for instance.

        Raises:
            InputError: x has another dimension or precision than the weights.
        """
        if x.shape[-1] != self.dim:
            raise InputError("live in another dimension", where="x", got=x.shape, expected=f"(…, n, {self.dim})")
        check_same_dtype({"x": x, "weights": self.blocks[0].norm2.weight})
        yield x
        for block in self.blocks:
            x = apply(block, x)
            yield x
