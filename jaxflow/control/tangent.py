"""Newton steps among controls that hit: minimise r·p + ½ p·Hp over Jp = 0, |p|_M ≤ radius.

Conjugate gradients, preconditioned by what is stiff and known: constraints that must hold (rows J) and constraints with
a barrier (rows G of weights w),

    P v = v' − G'ᵀ(G'G'ᵀ + σ diag(1/w))^{-1}G'v',   v' = v − QᵀQ v,   G' = G − GQᵀQ,

Q an orthonormal basis of the rows of J. P is σ times the inverse of M = σI + Gᵀ diag(w) G within the tangents: w = 0
forgets a row and w = ∞ makes it a constraint. Directions of negative curvature are followed to the radius.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._typing import Scalar

RANK = 1e-14
"""Eigenvalues of JJᵀ below this, relative to the largest, are rows that no control can move."""


class Tangents(NamedTuple):
    """The rows J, and JJᵀ = U diag(g) Uᵀ inverted on its range: (JJᵀ)⁺ = U diag(inverse) Uᵀ."""

    J: Array
    U: Array
    inverse: Array

    def multipliers(self, v: Array) -> Array:
        """(JJᵀ)⁺J v: the λ for which Jᵀλ is nearest v."""
        return self.U @ (self.inverse * (self.U.T @ (self.J @ v)))

    def project(self, v: Array) -> Array:
        """v − Jᵀ(JJᵀ)⁺Jv."""
        return v - self.J.T @ self.multipliers(v)

    def lift(self, c: Array) -> Array:
        """J⁺c, the smallest vector with Jv = c."""
        return self.J.T @ (self.U @ (self.inverse * (self.U.T @ c)))


def tangents(J: Array) -> Tangents:
    """The tangents of the constraints with these gradients."""
    g, U = jnp.linalg.eigh(J @ J.T)
    return Tangents(J, U, jnp.where(g > RANK * g[-1], 1 / jnp.where(g > 0, g, 1), 0))


def preconditioner(space: Tangents, G: Array, w: Array, sigma: Scalar) -> Callable[[Array], Array]:
    """v ↦ P v."""
    if G.shape[0] == 0:
        return space.project
    # A row that w forgets must not overflow.
    least = jnp.finfo(w.dtype).tiny ** 0.5
    inner = jax.vmap(space.project)(G)
    C = jax.scipy.linalg.cho_factor(inner @ inner.T + jnp.diag(sigma / jnp.maximum(w, least)))

    def apply(v: Array) -> Array:
        v = space.project(v)
        return v - inner.T @ jax.scipy.linalg.cho_solve(C, inner @ v)

    return apply


class _Walk(NamedTuple):
    """Conjugate gradients under way: p, the residual q = r + Hp and y = Pq, the direction d, q·y, the squares p·Mp and
    d·Md with p·Md between them, whether it is over, and how many products with H it took."""

    p: Array
    q: Array
    y: Array
    d: Array
    qy: Scalar
    pp: Scalar
    pd: Scalar
    dd: Scalar
    over: Array
    products: Array


def newton_step(
    curvature: Callable[[Array], Array],
    r: Array,
    space: Tangents,
    precondition: Callable[[Array], Array],
    *,
    radius: Scalar,
    accuracy: Scalar,
    products: int,
) -> tuple[Array, Scalar, Scalar]:
    """p, its length |p|_M, and the decrease −r·p − ½p·Hp that it promises.

    Source: T. Steihaug, SIAM Journal on Numerical Analysis 20 (1983) 626.

    Args:
        curvature: v ↦ Hv.
        r: the gradient, projected.
        radius: the largest length.
        accuracy: the residual, relative to the first, at which to stop.
        products: products with H, at most.
    """

    def going(now: _Walk) -> Array:
        return ~now.over & (now.products < products)

    def go(now: _Walk) -> _Walk:
        Hd = curvature(now.d)
        bend = now.d @ Hd
        a = now.qy / jnp.where(bend > 0, bend, 1)
        pp = now.pp + 2 * a * now.pd + a * a * now.dd
        leaves = (bend <= 0) | (pp >= radius**2)
        to_edge = (-now.pd + jnp.sqrt(jnp.maximum(now.pd**2 + now.dd * (radius**2 - now.pp), 0))) / now.dd
        p = now.p + jnp.where(leaves, to_edge, a) * now.d
        q = space.project(now.q + jnp.where(leaves, to_edge, a) * Hd)
        y = precondition(q)
        qy = q @ y
        b = qy / now.qy
        pp, over = jnp.where(leaves, radius**2, pp), leaves | (qy <= accuracy**2 * first)
        pd, dd = b * (now.pd + a * now.dd), qy + b * b * now.dd
        return _Walk(p, q, y, b * now.d - y, qy, pp, pd, dd, over, now.products + 1)

    y = precondition(r)
    first = r @ y
    zero = jnp.zeros_like(first)
    begun = _Walk(jnp.zeros_like(r), r, y, -y, first, zero, zero, first, first <= 0, jnp.asarray(0))
    end = jax.lax.while_loop(going, go, begun)
    # q = r + Hp, so that r·p + ½ p·Hp = ½ p·(r + q).
    return end.p, jnp.sqrt(end.pp), -0.5 * end.p @ (r + end.q)
