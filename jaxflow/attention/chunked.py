"""The same sums a block of queries at a time: memory linear in the number of tokens, derivatives included."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted
from jaxflow.attention.dense import tilt
from jaxflow.errors import InputError


def block_pairs() -> int:
    """Pairs of tokens and heads in a block of automatic size: on a CPU what a core's cache holds (4 MB in float64),
    elsewhere enough to fill the device."""
    return 2**19 if jax.default_backend() == "cpu" else 2**22


@final
class Chunked(AbstractKernel):
    """Exact, with O(h · block · m) memory; derivatives recompute the pairs instead of keeping them.

    Args:
        block: queries per block. Each block is one dense computation, so results do not depend on it beyond the
            rounding of matrix products. None: as many as make half a million pairs on a CPU and four million
            elsewhere, so that small clouds are one dense block.

    Raises:
        InputError: block < 1.
    """

    block: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.block is not None and self.block < 1:
            raise InputError("must be at least 1", where="Chunked.block", got=self.block)

    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        h, n, d = q.shape
        block = min(n, self.block or max(1, block_pairs() // (h * x.shape[0])))
        count = -(-n // block)
        if count == 1:
            return tilt(q, x, log_w, second=second, first_row=0 if causal else None)
        padded = jnp.pad(q, ((0, 0), (0, count * block - n), (0, 0)))
        blocks = jnp.moveaxis(padded.reshape(h, count, block, d), 1, 0)

        @jax.checkpoint
        def one(i_q: tuple[Array, Array]) -> Tilted:
            i, q = i_q
            return tilt(q, x, log_w, second=second, first_row=i * block if causal else None)

        parts = jax.lax.map(one, (jnp.arange(count), blocks))

        def join(part: Array) -> Array:
            return jnp.moveaxis(part, 0, 1).reshape(h, count * block, *part.shape[3:])[:, :n]

        return jax.tree.map(join, parts)
