"""Exact sums in tiles: memory linear in the number of tokens, derivatives included."""

from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted, with_quartic
from jaxflow.attention.exponential import LARGEST
from jaxflow.attention.symmetric import largest_logit, symmetric_sums
from jaxflow.attention.tiles import averages
from jaxflow.errors import InputError

WIDEST = 32
"""The dimension up to which a pair is exponentiated once for tied heads. Beyond, products take the time, and the
symmetry of the pairs makes them no cheaper."""


@final
class Chunked(AbstractKernel):
    """Exact, with O(h (n + m)) memory; derivatives of all orders, forward and backward, compute the pairs again
    instead of keeping them, at two to five times the cost of the sums.

    Where no logit can exceed 600 (50 in float32), by the bound max|q| max|x|, one pass does; larger ones, and causal
    attention, take a first pass for the largest logit of every query. Tied heads with logits up to 300 (25) have every
    pair exponentiated once in up to 32 dimensions, for half the time on a single core.

    Args:
        block: queries, and tokens attended to, in a tile. Results do not depend on it beyond the rounding of sums.
            None: as many as make a quarter of a million to a million pairs on a CPU and 17 million elsewhere; clouds
            with fewer are one tile, whose derivatives do keep the pairs.

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
        log_m, means = averages(q, x, log_w, second=second, causal=causal, block=self.block)
        if not second:
            return Tilted(log_m, means, None)
        d = x.shape[1]
        a, b = np.triu_indices(d)
        of = np.zeros((d, d), int)
        of[a, b] = of[b, a] = d + np.arange(len(a))
        return Tilted(log_m, means[..., :d], means[..., of])

    def tied(
        self, D: Float[Array, "h d d"], x: Float[Array, "n d"], log_w: Float[Array, " n"], *, quartic: bool = False
    ) -> Tilted:
        return _tied(D, x, log_w, quartic, self.block)


def _general(D: Array, x: Array, log_w: Array, quartic: bool, block: int | None) -> Tilted:
    """Tied heads without use of symmetry: right for every D."""
    tilted = Chunked(block).free(D, x, log_w, second=quartic)
    return with_quartic(tilted, x, log_w) if quartic else tilted


@partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _tied(D: Array, x: Array, log_w: Array, quartic: bool, block: int | None) -> Tilted:
    if x.shape[1] > WIDEST and not quartic:
        return _general(D, x, log_w, quartic, block)
    tile = None if block is None else min(block, x.shape[0])
    log_m, mean, J = symmetric_sums(D, x, log_w, quartic=quartic, tile=tile)

    def general(_: tuple[Array, Tilted]) -> tuple[Array, Tilted]:
        return jnp.asarray(False), _general(D, x, log_w, quartic, block)

    # A loop of one turn or none, and not a branch: under vmap both sides of a branch are computed. NaN is "too large".
    too_large = ~(largest_logit(D, x) <= LARGEST[np.dtype(x.dtype)] / 2)
    return jax.lax.while_loop(lambda now: now[0], general, (too_large, Tilted(log_m, mean, None, J)))[1]


@_tied.defjvp
def _(
    quartic: bool, block: int | None, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Tilted, Tilted]:
    """Derivatives do not preserve the symmetry of the pairs."""

    def general(D: Array, x: Array, log_w: Array) -> Tilted:
        return _general(D, x, log_w, quartic, block)

    return jax.jvp(general, primals, tangents)
