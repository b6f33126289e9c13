"""The sums over pairs as one GPU kernel: pairs live in registers, and never in memory.

For a block of queries, over blocks J of keys, with the largest logit so far as shift:

    t' = max(t, max_j s_j),   Z' = Z e^{t−t'} + Σ_{j∈J} e^{s_j − t'},   X' = X e^{t−t'} + Σ_{j∈J} e^{s_j − t'} x_j

and log m = t + log Z, a = X/Z in the end (the running softmax of Milakov and Gimelshein, arXiv:1805.02867, as used in
FlashAttention, arXiv:2205.14135). A file of its own, because importing Pallas takes a second.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from jaxflow.attention.base import Tilted
from jaxflow.attention.tiles import differential

BLOCK_QUERIES, BLOCK_KEYS = 64, 64
LEAST_DIM = 16
"""A matrix product of a GPU takes no fewer columns; tokens in lower dimensions get zeros."""
LOWEST = -1e30
"""The logit of a key that is not there: finite, so that differences of such are no NaN."""


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def attend(q: Array, x: Array, log_w: Array, causal: bool, bfloat16: bool, interpret: bool) -> Tilted:
    (h, n, d), m = q.shape, x.shape[0]
    rows, keys, columns = (-n % BLOCK_QUERIES, -m % BLOCK_KEYS, max(0, LEAST_DIM - d))
    q = jnp.pad(q, ((0, 0), (0, rows), (0, columns)))
    x = jnp.pad(x, ((0, keys), (0, columns)))
    log_w = jnp.pad(jnp.maximum(log_w, LOWEST), (0, keys), constant_values=LOWEST)
    width = d + columns
    log_m, mean = pl.pallas_call(
        partial(_kernel, causal=causal, bfloat16=bfloat16),
        grid=(h, (n + rows) // BLOCK_QUERIES),
        in_specs=[
            pl.BlockSpec((1, BLOCK_QUERIES, width), lambda h, i: (h, i, 0)),
            pl.BlockSpec(x.shape, lambda h, i: (0, 0)),
            pl.BlockSpec(log_w.shape, lambda h, i: (0,)),
        ],
        out_specs=[
            pl.BlockSpec((1, BLOCK_QUERIES), lambda h, i: (h, i)),
            pl.BlockSpec((1, BLOCK_QUERIES, width), lambda h, i: (h, i, 0)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((h, n + rows), jnp.float32),
            jax.ShapeDtypeStruct((h, n + rows, width), jnp.float32),
        ],
        interpret=interpret,
        # Naming its parameters chooses the Triton compiler.
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    )(q, x, log_w)
    return Tilted(log_m[:, :n], mean[:, :n, :d], None)


def _kernel(
    q_ref: Any, x_ref: Any, log_w_ref: Any, log_m_ref: Any, mean_ref: Any, *, causal: bool, bfloat16: bool
) -> None:
    logits = jnp.bfloat16 if bfloat16 else jnp.float32
    q = q_ref[0]
    first = pl.program_id(1) * BLOCK_QUERIES

    def add(J: Any, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        top, Z, X = sums
        at = pl.ds(J * BLOCK_KEYS, BLOCK_KEYS)
        x = x_ref[at, :]
        s = jnp.dot(q.astype(logits), x.T.astype(logits), preferred_element_type=jnp.float32) + log_w_ref[at][None, :]
        if causal:
            i = first + jnp.arange(BLOCK_QUERIES, dtype=jnp.int32)[:, None]
            j = J * BLOCK_KEYS + jnp.arange(BLOCK_KEYS, dtype=jnp.int32)[None, :]
            s = jnp.where(j <= i, s, LOWEST)
        new = jnp.maximum(top, jnp.max(s, axis=1))
        p, old = jnp.exp(s - new[:, None]), jnp.exp(top - new)
        return new, Z * old + jnp.sum(p, axis=1), X * old[:, None] + jnp.dot(p, x, preferred_element_type=jnp.float32)

    nothing = jnp.full(BLOCK_QUERIES, LOWEST, jnp.float32), jnp.zeros(BLOCK_QUERIES, jnp.float32), jnp.zeros_like(q)
    # The last query of the block sees no key beyond itself.
    count = (first + BLOCK_QUERIES + BLOCK_KEYS - 1) // BLOCK_KEYS if causal else x_ref.shape[0] // BLOCK_KEYS
    top, Z, X = jax.lax.fori_loop(0, count, add, nothing)
    log_m_ref[0] = top + jnp.log(Z)
    mean_ref[0] = X / Z[:, None]


@attend.defjvp
def _(
    causal: bool, bfloat16: bool, interpret: bool, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Tilted, Tilted]:
    found = attend(*primals, causal, bfloat16, interpret)

    (q, x, log_w), (dq, dx, dlog_w) = primals, tangents
    # With c = log m the sum of e^{S − c} is 1.
    known = (found.log_m, jnp.ones_like(found.log_m), found.mean)
    return found, Tilted(*differential((q, x, log_w, x), (dq, dx, dlog_w, dx), *known, causal=causal), None)
