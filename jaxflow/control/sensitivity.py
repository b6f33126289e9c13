"""How does a path of few fixed steps answer its layers, to first and second order? All steps side by side.

A step of a Runge–Kutta method takes y = [L | μ] under a layer u = (A, b, V, B) to its end, y₊ = Φ(y, u). Once the path
is known, the derivatives of all its steps are independent of each other,

    q = (∂Φ/∂y)ᵀ p,    g = (∂Φ/∂u)ᵀ p,                                        the adjoint of (1.1), stage by stage,

and short recursions chain them: backwards to the rows of a Jacobian; forwards, dy₊ = Φ_y dy + Φ_u du, and backwards to
a product with the Hessian. Matrices of a few rows are multiplied with steps and rows as the last, contiguous axes: on
a CPU that is several times as fast as one row after the other along the path.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxflow.control.shoot import dopri8
from jaxflow.linalg import SMALL

LANES = 96
"""Steps times rows that are worked out side by side: what stays in the cache."""


class Sides(NamedTuple):
    """Layers with steps as the last axis: A (d, d, n), b (d, n), cV and B (h, d, d, n)."""

    A: Array
    b: Array
    V: Array
    B: Array


def product(X: Array, Y: Array) -> Array:
    """XY, (i, j, *n) times (j, k, *n). Without lanes a sum that XLA fuses pays up to twice the size (a gradient of
    `adjoint.py` at d = 9 in half the time of library calls, at d = 16 in as long)."""
    if max(*X.shape[:2], Y.shape[1]) > (SMALL if X.ndim > 2 else 2 * SMALL):
        return jnp.einsum("ij...,jk...->ik...", X, Y)
    return jnp.sum(X[:, :, None] * Y[None], axis=1)


def turned(X: Array) -> Array:
    """Xᵀ."""
    return jnp.swapaxes(X, 0, 1)


def velocity(u: Sides, y: Array) -> tuple[Array, Array, Array]:
    """ẏ = [KL | (K + ΣcV)μ + b], with K = A + Σ_h c_hV_hΣB_h and Σ."""
    L, mu = y[:, :-1], y[:, -1:]
    Sigma = product(L, turned(L))
    K = u.A + sum(product(product(V, Sigma), B) for V, B in zip(u.V, u.B))
    return jnp.concatenate([product(K, L), product(K + u.V.sum(0), mu) + u.b[:, None]], 1), K, Sigma


def pulled(u: Sides, y: Array, p: Array) -> tuple[Array, Sides]:
    """The adjoint of `velocity` at y: what a cotangent p = [Λ | m] of ẏ is in y and in the layer.

    K̄ = p yᵀ,   V̄ = K̄BᵀΣ + m μᵀ,   B̄ = ΣVᵀK̄,   Σ̄ = Σ_h VᵀK̄Bᵀ,   ȳ = [KᵀΛ + (Σ̄ + Σ̄ᵀ)L | (K + ΣcV)ᵀm]
    """
    _, K, Sigma = velocity(u, y)
    L, mu, m = y[:, :-1], y[:, -1:], p[:, -1:]
    outer, across = product(p, turned(y)), product(m, turned(mu))
    V, B, S = [], [], jnp.zeros_like(outer)
    for V_h, B_h in zip(u.V, u.B):
        through = product(turned(V_h), outer)
        V.append(product(product(outer, turned(B_h)), Sigma) + across)
        B.append(product(Sigma, through))
        S = S + product(through, turned(B_h))
    back = product(turned(K), p)
    q = jnp.concatenate([back[:, :-1] + product(S + turned(S), L), back[:, -1:] + product(turned(u.V.sum(0)), m)], 1)
    none = jnp.zeros((0, *outer.shape), outer.dtype)
    return q, Sides(outer, m[:, 0], jnp.stack(V) if V else none, jnp.stack(B) if B else none)


def stages(u: Sides, h: Array, y: Array) -> Array:
    """The places Y_i = y + h Σ_j a_ij k_j at which one step of Dopri8 looks at the velocity, (i, d, r + 1, n).

    Args:
        h: lengths, (1, 1, n).
    """
    a, _ = _tableau(y.dtype)

    def stage(ks: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        a, i = row
        Y = y + h * jnp.tensordot(a, ks, 1)
        return ks.at[i].set(velocity(u, Y)[0]), Y

    return jax.lax.scan(stage, jnp.zeros((len(a), *y.shape), y.dtype), (a, jnp.arange(len(a))))[1]


def step_back(u: Sides, h: Array, Y: Array, p: Array, e: Array) -> tuple[Array, Sides]:
    """What a cotangent p of the end of a step, and e of its energy h Σ b_i|k_i|², is in its beginning and its layer.

    κ_i = h (b_i p + Σ_l a_li q_l) + 2e h b_i k_i,   (q_i, g_i) = `pulled`(Y_i, κ_i),   q = p + Σ q_i,   g = Σ g_i

    The lanes of p (d, r + 1, *n) and e (1, 1, *n) may be more than those of the others, which then serve several.
    """
    a, b = _tableau(p.dtype)

    def stage(carry: tuple[Array, Sides], row: tuple[Array, Array, Array, Array]) -> tuple[tuple[Array, Sides], None]:
        qs, g = carry
        Y, a, b, i = row
        later = jnp.sum(a.reshape(-1, *[1] * p.ndim) * qs, axis=0)
        q, more = pulled(u, Y, h * (b * p + later + 2 * e * b * velocity(u, Y)[0]))
        here = (jnp.arange(len(qs)) == i).reshape(-1, *[1] * p.ndim)
        return (jnp.where(here, q[None], qs), jax.tree.map(jnp.add, g, more)), None

    lanes = p.shape[2:]
    none = jax.tree.map(lambda x: jnp.zeros((*x.shape[: x.ndim - len(lanes)], *lanes), p.dtype), u)
    begin = (jnp.zeros((len(b), *p.shape), p.dtype), none)
    (qs, g), _ = jax.lax.scan(stage, begin, (Y, a.T, b, jnp.arange(len(b))), reverse=True)
    return p + jnp.sum(qs, axis=0), g


def _tableau(dtype: Any) -> tuple[Array, Array]:
    """a and b of Dopri8 without the last stage, which serves the error estimate alone."""
    a, _, b, _ = dopri8()
    return jnp.asarray(a[:-1, :-1], dtype), jnp.asarray(b[:-1], dtype)


class Steps(NamedTuple):
    """The steps of a path over k pieces with constant layers.

    Attributes:
        layers: of the pieces, (k, entries).
        before: [L | μ] where each step begins, (n, d, r + 1).
        h: their lengths, (n,).
        of, last: whether step j belongs to piece i, and whether it is its last one, (n, k), zeros and ones.
        heads: h.
    """

    layers: Array
    before: Array
    h: Array
    of: Array
    last: Array
    heads: int

    @property
    def sides(self) -> Sides:
        """The layer of every step."""
        return unflatten(self.of @ self.layers, self.before.shape[1], self.heads)

    @property
    def lanes(self) -> tuple[Sides, Array, Array]:
        """Layers, lengths and stages."""
        u, y = self.sides, jnp.moveaxis(self.before, 0, -1)
        h = self.h[None, None]
        return u, h, stages(u, h, y)


def flatten(u: Sides) -> Array:
    """(…, n) to (n, entries), for any number of last axes."""
    lanes = u.b.shape[1:]
    return jnp.moveaxis(jnp.concatenate([x.reshape(-1, *lanes) for x in u]), 0, -1)


def unflatten(x: Array, d: int, heads: int) -> Sides:
    """The inverse of `flatten`, of one lane axis."""
    n = x.shape[0]
    A, b, V, B = jnp.split(x.T, np.cumsum([d * d, d, heads * d * d]))
    many = (heads, d, d, n)
    return Sides(A.reshape(d, d, n), b, V.reshape(many), B.reshape(many))


class Chain(NamedTuple):
    """The first derivatives of all steps, with states (y, energy so far) as vectors of length m + 1: Φ_y
    (n, m + 1, m + 1) and Φ_u (n, m + 1, entries)."""

    of_state: Array
    of_layer: Array

    def back(self, given: Array) -> tuple[Array, Array]:
        """Rows (n, rows, m + 1) that are given at the ends of steps, carried back: the rows at the ends of all steps,
        and what they are in the layers of all steps, (n, rows, entries)."""

        def step(row: Array, now: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            S, U, more = now
            row = row + more
            return row @ S, (row, row @ U)

        none = jnp.zeros_like(given[0])
        return jax.lax.scan(step, none, (self.of_state, self.of_layer, given), reverse=True)[1]

    def forth(self, du: Array) -> Array:
        """How the ends of all steps move with their layers, (n, m + 1)."""

        def step(dy: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            S, more = now
            dy = S @ dy + more
            return dy, dy

        moved = jnp.einsum("jme,je->jm", self.of_layer, du)
        return jax.lax.scan(step, jnp.zeros_like(moved[0]), (self.of_state, moved))[1]


def chain_of(steps: Steps, lanes: Any, *, energy: bool) -> Chain:
    """The derivatives of all steps, by one cotangent for every entry of a state; without `energy` none for that."""
    n, d, columns = steps.before.shape
    m = d * columns
    rows = m + energy
    eye = jnp.eye(m + 1, dtype=steps.h.dtype)[:, :rows]
    group = max(1, min(n, LANES // rows))
    groups = -(-n // group)
    fill = np.minimum(np.arange(groups * group), n - 1)

    def dealt(x: Array) -> Array:
        return jnp.moveaxis(x[..., fill].reshape(*x.shape[:-1], groups, group, 1), -3, 0)

    def some(lanes: tuple[Sides, Array, Array]) -> tuple[Array, Array]:
        p = jnp.broadcast_to(eye[:m].reshape(d, columns, 1, rows), (d, columns, group, rows))
        q, g = step_back(*lanes, p, eye[m].reshape(1, 1, 1, rows))
        return jnp.moveaxis(q.reshape(m, group, rows), 0, -1), flatten(g)

    S, U = jax.lax.map(some, jax.tree.map(dealt, lanes))
    S, U = (x.reshape(groups * group, *x.shape[2:])[:n] for x in (S, U))
    S, U = (jnp.pad(x, ((0, 0), (0, m + 1 - rows), (0, 0))) for x in (S, U))
    return Chain(jnp.pad(S, ((0, 0), (0, 0), (0, 1))).at[:, m, m].set(1), U)


def bends(steps: Steps, lanes: Any, rows: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """(dy, du) ↦ how `step_back` of these rows (n, m + 1) changes with states (n, m + 1) and layers (n, entries)."""
    n, d, columns = steps.before.shape
    heads = steps.heads
    p, e = rows[:, :-1].T.reshape(d, columns, n), rows[:, -1].reshape(1, 1, n)

    def pull(y: Array, u: Array) -> tuple[Array, Array]:
        sides = unflatten(u, d, heads)
        h = steps.h[None, None]
        q, g = step_back(sides, h, stages(sides, h, y[:, :-1].T.reshape(d, columns, n)), p, e)
        return jnp.append(q.reshape(-1, n).T, jnp.zeros((n, 1), q.dtype), axis=1), flatten(g)

    y = jnp.append(steps.before.reshape(n, -1), jnp.zeros((n, 1), p.dtype), axis=1)
    return jax.linearize(pull, y, steps.of @ steps.layers)[1]
