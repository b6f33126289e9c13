"""Exact sums in tiles: memory linear in the number of tokens, derivatives included."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted
from jaxflow.attention.tiles import averages
from jaxflow.errors import InputError


@final
class Chunked(AbstractKernel):
    """Exact, with O(h (n + m)) memory; derivatives of all orders, forward and backward, compute the pairs again
    instead of keeping them, at two to five times the cost of the sums.

    Where no logit can exceed 600 (50 in float32), by the bound max|q| max|x|, one pass does; larger ones, and causal
    attention, take a first pass for the largest logit of every query.

    Args:
        block: queries, and tokens attended to, in a tile. Results do not depend on it beyond the rounding of sums.
            None: as many as make a quarter of a million pairs on a CPU and 17 million elsewhere; clouds with fewer
            are one tile, whose derivatives do keep the pairs.

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
        d = x.shape[1]
        if not second:
            return Tilted(*averages(q, x, log_w, x, causal=causal, block=self.block), None)
        a, b = np.triu_indices(d)
        Y = jnp.concatenate([x, x[:, a] * x[:, b]], 1)
        log_m, means = averages(q, x, log_w, Y, causal=causal, block=self.block)
        of = np.zeros((d, d), int)
        of[a, b] = of[b, a] = d + np.arange(len(a))
        return Tilted(log_m, means[..., :d], means[..., of])
