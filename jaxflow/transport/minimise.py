"""A minimum of a smooth function on a manifold, by Newton's method in a trust region:

    z ≈ argmin over |z| ≤ Δ of f(x) + ⟨g, z⟩ + ½⟨z, H z⟩,     x ← move(x, z)

with the gradient g and the Hessian H of f(move(x, ·)) at 0. The model is minimised by conjugate gradients that stop at
the boundary and follow negative curvature to it, so that saddle points are left.
Source: Absil, Baker, Gallivan, Found. Comput. Math. 7 (2007); Nocedal, Wright, Numerical Optimization, Algorithm 7.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Count, Flag, Real, Scalar

LARGEST_RADIUS = 8.0
"""Times the first radius."""

CONJUGATE_STEPS = 100
"""Of conjugate gradients in one step of Newton's method."""


class Ended(eqx.Enumeration):
    """How a minimisation ended. Compare with `==`; works under jit and vmap. `Ended[status]` says it in words."""

    optimal = "stationary: the optimality is within the tolerance"
    iterations = "the iterations are used up"
    stalled = "no step lowers the value any more: the end of what rounding resolves"
    nonfinite = "a value stopped being finite"


NAMES = ("optimal", "iterations", "stalled", "nonfinite")


def name_of(status: Any) -> str:
    """ "optimal", "iterations", "stalled" or "nonfinite", on the host."""
    return next(name for name in NAMES if bool(status == getattr(Ended, name)))


def code_of(status: Any) -> Count:
    """The place of a status in `NAMES`."""
    return sum((i * (status == getattr(Ended, name)) for i, name in enumerate(NAMES)), start=jnp.asarray(0))


def ended(code: Array) -> Any:
    """The status at a place in `NAMES`."""
    status = Ended.optimal
    for i, name in enumerate(NAMES):
        status = Ended.where(code == i, getattr(Ended, name), status)
    return status


class Found(NamedTuple):
    """Where a minimisation ended: the point, f there, the norm of its gradient, the steps taken, and an `Ended`."""

    x: Array
    value: Scalar
    optimality: Scalar
    iterations: Count
    status: Any


class _State(NamedTuple):
    x: Array
    value: Scalar
    optimality: Scalar
    radius: Scalar
    k: Count
    done: Flag


def minimise(
    f: Callable[[Array], Scalar],
    move: Callable[[Array, Array], Array],
    start: Float[Array, "*x"],
    *,
    tolerance: Real,
    max_iterations: int | Count,
    radius: Real = 1.0,
) -> Found:
    """The minimum that descent from `start` leads to. Works under jit and vmap; not to be differentiated.

    Args:
        f: the function, smooth along the manifold.
        move: (x, z) ↦ a point of the manifold with move(x, 0) = x, in coordinates z of x's shape in which the Hessian
            of f is near a multiple of the identity: that decides how fast this is.
        tolerance: of |g|, in these coordinates.
        radius: the first Δ; steps never exceed `LARGEST_RADIUS` times it.

    Cost: a step is one gradient of f and up to `CONJUGATE_STEPS` products with its Hessian.
    """
    zero = jnp.zeros_like(start)
    rounding = 10 * jnp.finfo(start.dtype).eps
    smallest = jnp.asarray(1e-12 * radius, start.dtype)

    def step(s: _State) -> _State:
        pulled = jax.value_and_grad(lambda z: f(move(s.x, z)))
        (value, g), linear = jax.linearize(pulled, zero)
        optimality = jnp.sqrt(jnp.sum(g * g))
        done = ~(optimality > tolerance) | (s.k >= max_iterations) | (s.radius <= smallest)
        z, predicted, at_boundary = _within(g, lambda v: linear(v)[1], s.radius)
        x = move(s.x, z)
        new = f(x)
        # Near the minimum both differences are rounding, and their ratio must count as one.
        slack = rounding * jnp.abs(value)
        ratio = (value - new + slack) / (predicted + slack)
        good = jnp.isfinite(new) & (ratio > 0.1)
        grown = jnp.where(at_boundary & (ratio > 0.75), 2 * s.radius, s.radius)
        changed = jnp.where(
            good & (ratio > 0.25), jnp.minimum(grown, LARGEST_RADIUS * radius), 0.25 * jnp.sqrt(jnp.sum(z * z))
        )
        return _State(
            x=jnp.where(good & ~done, x, s.x),
            value=value,
            optimality=optimality,
            radius=jnp.where(done, s.radius, changed),
            k=s.k + ~done,
            done=done,
        )

    nothing = zero.sum()
    first = _State(start, nothing, nothing, nothing + radius, jnp.asarray(0), jnp.asarray(False))
    last = jax.lax.while_loop(lambda s: ~s.done, step, first)
    finite = jnp.isfinite(last.value) & jnp.isfinite(last.optimality)
    status = Ended.where(last.radius > smallest, Ended.iterations, Ended.stalled)
    status = Ended.where(last.optimality <= tolerance, Ended.optimal, status)
    status = Ended.where(finite, status, Ended.nonfinite)
    return Found(last.x, last.value, last.optimality, last.k, status)


class _Conjugate(NamedTuple):
    z: Array
    Hz: Array
    r: Array
    p: Array
    done: Flag
    at_boundary: Flag
    j: Count


def _within(g: Array, hessian: Callable[[Array], Array], radius: Scalar) -> tuple[Array, Scalar, Flag]:
    """The step z, how much it lowers the model, and whether it ends on the boundary."""

    def dot(u: Array, v: Array) -> Array:
        return jnp.sum(u * v)

    size = jnp.sqrt(dot(g, g))
    # Ever more exact as g vanishes: the convergence is quadratic in the end.
    enough = size * jnp.minimum(0.1, size)

    def step(s: _Conjugate) -> _Conjugate:
        Hp = hessian(s.p)
        rr, pp, curvature = dot(s.r, s.r), dot(s.p, s.p), dot(s.p, Hp)
        bends_down = curvature <= 0
        a = rr / jnp.where(bends_down, 1.0, curvature)
        leaves = bends_down | (dot(s.z + a * s.p, s.z + a * s.p) >= radius**2)
        zp, zz = dot(s.z, s.p), dot(s.z, s.z)
        to_boundary = (-zp + jnp.sqrt(zp**2 + pp * jnp.maximum(radius**2 - zz, 0.0))) / pp
        a = jnp.where(leaves, to_boundary, a)
        z, Hz, r = s.z + a * s.p, s.Hz + a * Hp, s.r - a * Hp
        p = r + dot(r, r) / rr * s.p
        return _Conjugate(z, Hz, r, p, leaves | (jnp.sqrt(dot(r, r)) <= enough), leaves, s.j + 1)

    def going(s: _Conjugate) -> Flag:
        return ~s.done & (s.j < CONJUGATE_STEPS)

    zero, no = jnp.zeros_like(g), jnp.asarray(False)
    s = jax.lax.while_loop(going, step, _Conjugate(zero, zero, -g, -g, no, no, jnp.asarray(0)))
    return s.z, -dot(g, s.z) - dot(s.z, s.Hz) / 2, s.at_boundary
