"""Sums over all pairs of tokens a block of rows at a time, for rules that are not the exponential tilt of `tiles`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree


def block_pairs() -> int:
    """Pairs of tokens and heads in a block of automatic size: on a CPU what a core's cache holds (4 MB in float64),
    elsewhere enough to fill the device."""
    return 2**19 if jax.default_backend() == "cpu" else 2**22


def by_blocks(
    one: Callable[[Array, Int[Array, ""] | int], PyTree], rows: Array, *, pairs: int, block: int | None = None
) -> PyTree:
    """one(rows, first_row) with the rows cut into blocks and the results joined again along their first axis.

    Args:
        one: takes some of the rows and the index of the first of them.
        rows: (n, ...).
        pairs: how many pairs one row makes.
        block: rows per block; None: chosen here. Derivatives recompute the pairs.
    """
    n = rows.shape[0]
    block = min(n, block or max(1, block_pairs() // pairs))
    count = -(-n // block)
    if count == 1:
        return one(rows, 0)
    padded = jnp.pad(rows, ((0, count * block - n), *((0, 0),) * (rows.ndim - 1)))
    blocks = padded.reshape(count, block, *rows.shape[1:])

    @jax.checkpoint
    def body(i_rows: tuple[Array, Array]) -> Any:
        i, rows = i_rows
        return one(rows, i * block)

    parts = jax.lax.map(body, (jnp.arange(count), blocks))
    return jax.tree.map(lambda x: x.reshape(count * block, *x.shape[2:])[:n], parts)
