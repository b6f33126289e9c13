"""The same sums a block of queries at a time: memory linear in the number of tokens, derivatives included."""

from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted, with_quartic
from jaxflow.attention.dense import tilt
from jaxflow.attention.exponential import LARGEST
from jaxflow.attention.symmetric import largest_logit, symmetric_sums
from jaxflow.errors import InputError


def block_pairs() -> int:
    """Pairs of tokens and heads in a block of automatic size: on a CPU what a core's cache holds (4 MB in float64),
    elsewhere enough to fill the device."""
    return 2**19 if jax.default_backend() == "cpu" else 2**22


@final
class Chunked(AbstractKernel):
    """Exact, with O(h · block · m) memory; derivatives recompute the pairs instead of keeping them.

    Tied heads are several times faster than free ones where no logit can exceed 300 (25 in float32), by the bound
    max|D_h x_i| max|x_j|: each pair is exponentiated once, and without a shift. Larger ones take the general way.

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
        return by_rows(q, x, log_w, second=second, causal=causal, block=self.block)

    def tied(
        self, D: Float[Array, "h d d"], x: Float[Array, "n d"], log_w: Float[Array, " n"], *, quartic: bool = False
    ) -> Tilted:
        return _tied(D, x, log_w, quartic, self.block)


def by_rows(
    q: Float[Array, "h n d"],
    x: Float[Array, "m d"],
    log_w: Float[Array, " m"],
    *,
    second: bool,
    causal: bool,
    block: int | None,
    top: Float[Array, "h n"] | None = None,
) -> Tilted:
    """`tilt`, some rows at a time."""
    h, n, _ = q.shape
    block = min(n, block or max(1, block_pairs() // (h * x.shape[0])))
    count = -(-n // block)
    if count == 1:
        return tilt(q, x, log_w, second=second, first_row=0 if causal else None, top=top)

    def cut(rows: Array) -> Array:
        padded = jnp.pad(rows, ((0, 0), (0, count * block - n), *((0, 0),) * (rows.ndim - 2)))
        return jnp.moveaxis(padded.reshape(h, count, block, *rows.shape[2:]), 1, 0)

    @jax.checkpoint
    def one(rows: tuple[Array, Array, Array | None]) -> Tilted:
        i, q, top = rows
        return tilt(q, x, log_w, second=second, first_row=i * block if causal else None, top=top)

    parts = jax.lax.map(one, (jnp.arange(count), cut(q), None if top is None else cut(top)))

    def join(part: Array) -> Array:
        return jnp.moveaxis(part, 0, 1).reshape(h, count * block, *part.shape[3:])[:, :n]

    return jax.tree.map(join, parts)


def _general(
    D: Array, x: Array, log_w: Array, quartic: bool, block: int | None, top: Float[Array, "h n"] | None = None
) -> Tilted:
    """Tied heads without use of symmetry: right for every D."""
    q = jnp.einsum("hij,nj->hni", D, x)
    tilted = by_rows(q, x, log_w, second=quartic, causal=False, block=block, top=top)
    return with_quartic(tilted, x, log_w) if quartic else tilted


@partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _tied(D: Array, x: Array, log_w: Array, quartic: bool, block: int | None) -> Tilted:
    log_m, mean, J = symmetric_sums(
        D, x, log_w, quartic=quartic, tile=None if block is None else min(block, x.shape[0])
    )

    def general(_: tuple[Array, Tilted]) -> tuple[Array, Tilted]:
        return jnp.asarray(False), _general(D, x, log_w, quartic, block)

    # A loop of one turn or none, and not a branch: under vmap both sides of a branch are computed. NaN is "too large".
    too_large = ~(largest_logit(D, x) <= LARGEST[np.dtype(x.dtype)])
    return jax.lax.while_loop(lambda now: now[0], general, (too_large, Tilted(log_m, mean, None, J)))[1]


@_tied.defjvp
def _(
    quartic: bool, block: int | None, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Tilted, Tilted]:
    """Derivatives are those of the general way, which needs no largest logit once log m is known."""
    found = _tied(*primals, quartic, block)

    def general(D: Array, x: Array, log_w: Array) -> Tilted:
        return _general(D, x, log_w, quartic, block, found.log_m)

    return found, jax.jvp(general, primals, tangents)[1]
