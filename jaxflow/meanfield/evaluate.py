"""Sums of the functions of `waves` at points anywhere on S¹ and S², and their transposes.

Y_lm(x) = q_lm(z) · Re, Im (x + iy)^m with q_lm = P̄_lm/ρ^m by recurrence in l, all orders m side by side: smooth at the
poles, and no table of points × functions.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.blocks import by_blocks
from jaxflow.meanfield.waves import degree_of, places, recurrence, size


def evaluate(c: Float[Array, "K"], x: Float[Array, "n d"]) -> Float[Array, "n"]:
    """Σ_k c_k Y_k(x_i). Cost O(n K) time, O(n) memory."""
    K = c.shape[0]
    return by_blocks(lambda rows, _: _evaluate(c, rows), x, pairs=K)


def moments(x: Float[Array, "n d"], w: Float[Array, "n"], degree: int) -> Float[Array, "K"]:
    """Σ_i w_i Y_k(x_i), the transpose of `evaluate`. Cost O(n K) time, O(n) memory."""
    (n, d), K = x.shape, size(x.shape[1], degree)
    block = min(n, max(32, 2**19 // K))
    count = -(-n // block)
    xs = jnp.pad(x, ((0, count * block - n), (0, 0))).reshape(count, block, d)
    ws = jnp.pad(w, (0, count * block - n)).reshape(count, block)

    @jax.checkpoint
    def add(M: Array, tokens: tuple[Array, Array]) -> tuple[Array, None]:
        x, w = tokens
        (part,) = jax.linear_transpose(lambda c: _evaluate(c, x), jax.ShapeDtypeStruct((K,), x.dtype))(w)
        return M + part, None

    return jax.lax.scan(add, jnp.zeros(K, x.dtype), (xs, ws))[0]


def _evaluate(c: Array, x: Array) -> Array:
    N = degree_of(x.shape[1], c.shape[0])
    assert N is not None
    waves = _powers(x, N)
    if x.shape[1] == 2:
        norm = np.sqrt(np.where(np.arange(N + 1) == 0, 2 * np.pi, np.pi))
        of_cos = jnp.concatenate([c[:1], c[1::2]]) / jnp.asarray(norm, c.dtype)
        of_sin = jnp.concatenate([jnp.zeros_like(c[:1]), c[2::2]]) / jnp.asarray(norm, c.dtype)
        return of_cos @ waves[0] + of_sin @ waves[1]
    place, there = places(N)
    a = jnp.moveaxis(jnp.where(there, c[place], 0), 2, 0)
    alpha, beta, first = (jnp.asarray(table, x.dtype) for table in recurrence(N))
    z = x[None, :, 2]

    def step(carry: tuple[Array, Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array, Array], None]:
        now, before, total = carry
        l, a_l, alpha_l, beta_l = row
        q = alpha_l[:, None] * z * now - beta_l[:, None] * before
        q = jnp.where((jnp.arange(N + 1) == l)[:, None], first[:, None], q)
        return (q, now, total + a_l[..., None] * q[None]), None

    zero = jnp.zeros((N + 1, x.shape[0]), x.dtype)
    rows = (jnp.arange(N + 1), a, alpha, beta)
    total = jax.lax.scan(step, (zero, zero, jnp.zeros((2, *zero.shape), x.dtype)), rows)[0][2]
    return jnp.sum(total * waves, axis=(0, 1))


def _powers(x: Float[Array, "n d"], N: int) -> Float[Array, "2 m n"]:
    """Real and imaginary parts of (x + iy)^m, m = 0..N."""

    def step(p: Array, _: None) -> tuple[Array, Array]:
        return jnp.stack([p[0] * x[:, 0] - p[1] * x[:, 1], p[0] * x[:, 1] + p[1] * x[:, 0]]), p

    one = jnp.stack([jnp.ones_like(x[:, 0]), jnp.zeros_like(x[:, 0])])
    return jnp.moveaxis(jax.lax.scan(step, one, None, length=N + 1)[1], 0, 1)
