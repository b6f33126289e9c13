"""The cheapest controls that hit: minimise cost(u) subject to c(u) = 0, and to s(u) ≥ 0 where variances are capped.

Every iterate hits: a step p along the tangents (Jp = 0) is followed by corrections v ← v − J⁺c(v). With G = ∂s/∂u and
a barrier of weight ν,

    λ = (JJᵀ)⁺J g,   g = ∇cost − Gᵀ(ν/s),   H = ∇²(cost − λ·c − z·s) + Gᵀ diag(z/s) G,   p: see `tangent.newton_step`

is the primal-dual Newton step to the minimum of cost − ν Σ log s; ν falls to zero as the iterates settle.

The path is integrated twice. c, s, their derivatives and the curvature come from fixed steps on every piece, plus what
those miss at the iterate; there the path is integrated adaptively and precisely. A new iterate that the precise
path does not confirm is turned down, whatever the grid says: a search can drift into a blow-up that no grid sees.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._typing import Count, Flag, Scalar
from jaxflow.control.ground import Ground, gradients
from jaxflow.control.problem import Controls, tree_where
from jaxflow.control.tangent import Tangents, newton_step, preconditioner, tangents
from jaxflow.measures import Gaussian

CORRECTIONS = 6
"""Corrections of a trial before it counts as having left the controls that hit."""

HALVINGS = 8
"""How often a step is halved before it is given up and only c is corrected."""

CURVATURES = 60
"""Products with the curvature in one step, at most."""

FIRST_BARRIER, LAST_BARRIER = 1e-2, 1e-6
"""ν at the beginning (shared among the caps) and at the end, relative to the cost."""

FADING = 0.2
"""What is left of ν each time the iterates have settled."""

INSIDE = 0.9
"""How much of the way to a cap one step may go, to first order."""

AWAY = 0.05
"""What one step must leave of the room below every cap."""

ROOM = 0.02
"""The room below every cap that a search makes before it looks for the cheapest."""

NOISE = 1e-12
"""Changes of what is minimised, relative to it, that mean nothing."""

MISSED = 1e-3
"""How much more of c the fixed steps may miss at a new iterate than at the last one."""


class Descent(NamedTuple):
    """A search under way.

    Attributes:
        controls, nodes, pace: an iterate, its precise path, and how many steps each piece of that took.
        radius: the longest step to try.
        z, nu: multipliers of the caps, and the weight of the barrier.
        value: what is minimised.
        multipliers: λ. optimality: |g − Jᵀλ| relative to |∇cost|, where the last step began.
        stuck: no step helps any more.
    """

    controls: Controls
    nodes: Gaussian
    pace: Array
    radius: Scalar
    z: Array
    nu: Scalar
    value: Scalar
    multipliers: Array
    optimality: Scalar
    stuck: Flag
    iteration: Count


class _Trial(NamedTuple):
    """A point along a step, corrected: flat controls, c and s there, tries so far, how far it went, the gain, and
    whether it will do."""

    v: Array
    c: Array
    s: Array
    tries: Array
    length: Scalar
    gain: Scalar
    good: Flag


def settle(ground: Ground, u: Array, *, tolerance: float, most: int = 20) -> tuple[Array, Gaussian, Array, Scalar]:
    """u ← u − J⁺c(u), c precise, until max|c| ≤ tolerance or it no longer falls.

    Returns u, its path, the steps that each piece of it took, and max|c|.
    """

    def look(u: Array) -> tuple[Gaussian, Array, Array, Scalar]:
        nodes, arrived, pace = ground.precise(u)
        c, _ = ground.read(nodes)
        size = jnp.max(jnp.abs(c))
        return nodes, pace, c, jnp.where(arrived & jnp.isfinite(size), size, jnp.inf)

    def going(now: Any) -> Array:
        (*_, size), before, i = now
        return (size > tolerance) & (size < 0.9 * before) & (i < most)

    def go(now: Any) -> Any:
        here, _, i = now
        u, _, pace, c, size = here
        (J,) = jax.vmap(jax.vjp(lambda u: ground.smooth(u, pace)[0], u)[1])(jnp.eye(c.size, dtype=u.dtype))
        v = u - tangents(J).lift(c)
        there = (v, *look(v))
        return tree_where(there[-1] < size, there, here), size, i + 1

    far = jnp.asarray(jnp.inf, u.dtype)
    (u, nodes, pace, _, size), *_ = jax.lax.while_loop(going, go, ((u, *look(u)), 2 * far, jnp.asarray(0)))
    return u, nodes, pace, size


def first_descent(ground: Ground, controls: Controls) -> tuple[Descent, Scalar]:
    """A search that begins at these controls, made to hit; and max|c| there, where no controls hit."""
    u, nodes, pace, size = settle(ground, ground.flat(controls), tolerance=1e-9)
    c, s = ground.read(nodes)
    zero, inf = jnp.zeros((), u.dtype), jnp.asarray(jnp.inf, u.dtype)
    radius = 0.5 * jnp.linalg.norm(u) + 0.1
    first = Descent(
        ground.controls(u), nodes, pace, radius, jnp.zeros_like(s), zero, zero, jnp.zeros_like(c), inf, size > 1e-6,
        jnp.asarray(0),
    )  # fmt: skip
    return first, size


def with_barrier(ground: Ground, now: Descent) -> Descent:
    """The same search with its barrier put up."""
    _, s = ground.read(now.nodes)
    nu = FIRST_BARRIER * ground.smooth(ground.flat(now.controls), now.pace)[2] / max(1, s.size)
    inf = jnp.full_like(nu, jnp.inf)
    return now._replace(nu=nu, z=nu / s, optimality=inf, stuck=now.stuck | ~(s > 0).all())


def has_room(ground: Ground, now: Descent) -> Flag:
    """Whether a barrier can be put up."""
    return (ground.read(now.nodes)[1] >= ROOM / 2).all()


def iterate(ground: Ground, now: Descent, roomy: Flag, *, tolerance: float) -> Descent:
    """One step: of the search for the cheapest where `roomy`, else of the search for room below the caps."""
    u = ground.flat(now.controls)
    missed = [true - near for true, near in zip(ground.read(now.nodes), ground.smooth(u, now.pace))]

    def at(v: Array) -> tuple[Array, Array, Scalar]:
        c, s, cost = ground.smooth(v, now.pace)
        s = s + missed[1]
        crowded = jnp.sum(jnp.maximum(ROOM - s, 0) ** 2)
        return c + missed[0], s, jnp.where(roomy, cost, crowded)

    c, s, J, G, value, slope = gradients(at, u)
    space = tangents(J)
    nu, z = jnp.where(roomy, now.nu, 0), jnp.where(roomy, now.z, 0)
    g = slope - G.T @ (nu / s)
    multipliers = space.multipliers(g)
    r = g - J.T @ multipliers
    optimality = jnp.linalg.norm(r) / jnp.maximum(jnp.linalg.norm(slope), jnp.finfo(u.dtype).tiny)
    w = jnp.where(roomy, z / s, 0)

    def lagrangian(v: Array) -> Scalar:
        c, there, cost = at(v)
        # The last term has no gradient at u, and the curvature Gᵀ diag(w) G.
        return cost - multipliers @ c - z @ there + 0.5 * w @ (there - s) ** 2

    curvature = jax.linearize(jax.grad(lagrangian), u)[1]
    p, length, promised = newton_step(
        curvature, r, space, preconditioner(space, G, w, 2 * ground.problem.t1 / ground.problem.segments),
        radius=now.radius, accuracy=jnp.minimum(0.1, jnp.sqrt(optimality)), products=CURVATURES,
    )  # fmt: skip
    ds, noise = G @ p, NOISE * jnp.abs(value)

    def merit(c: Array, s: Array, value: Scalar) -> Scalar:
        return value - nu * jnp.sum(jnp.log(jnp.where(s > 0, s, 1))) - multipliers @ c

    def look(trial: _Trial) -> _Trial:
        most = INSIDE / jnp.maximum(jnp.max(-ds / s, initial=0), INSIDE)
        still = trial.tries == HALVINGS
        length = jnp.where(still, 0, jnp.where(roomy, most, 1) * 0.5**trial.tries)
        near = jnp.clip(jnp.minimum(1e-2 * optimality**1.5, 0.1 * jnp.min(s, initial=1)), 1e-12, 1e-3)
        v, c_v, s_v, value_v = _corrected(at, space, u - space.lift(c) + length * p, near)
        gain = merit(c, s, value) - merit(c_v, s_v, value_v)
        good = (jnp.max(jnp.abs(c_v)) <= near) & ((s_v > AWAY * s).all() | ~roomy)
        good &= still | (gain >= 1e-4 * length * (-r @ p) - noise)
        return _Trial(v, c_v, s_v, trial.tries + 1, length, gain, good)

    zero = jnp.zeros((), u.dtype)
    trial = _Trial(u, c, s, jnp.asarray(0), zero, zero, jnp.asarray(False))
    trial = jax.lax.while_loop(lambda trial: ~trial.good & (trial.tries <= HALVINGS), look, trial)
    nodes, arrived, pace = ground.precise(trial.v)
    c_true, s_true = ground.read(nodes)
    taken = trial.good & arrived & (jnp.max(jnp.abs(c_true - trial.c)) <= MISSED) & ((s_true > AWAY * s / 2).all() | ~roomy)

    first, ratio = trial.tries == 1, (trial.gain + noise) / (promised + noise)
    radius = jnp.where((length >= 0.99 * now.radius) & (ratio > 0.5), 2 * now.radius, now.radius)
    radius = jnp.where(first & (ratio < 0.2), length / 2, radius)
    radius = jnp.where(first, radius, trial.length * length)
    moved = taken & (trial.length > 0)
    radius = jnp.where(moved, radius, jnp.minimum(now.radius, length) / 16)
    new_z = z + trial.length * (nu / s - z - w * ds)
    # An exact product z s = ν is what the multipliers tend to; bounded, they cannot be far off it.
    bounded = jnp.clip(new_z, 1e-3 * nu / jnp.abs(s_true), 1e3 * nu / jnp.abs(s_true))
    settled = moved & roomy & (optimality <= jnp.maximum(10 * now.nu / value, tolerance))
    least = LAST_BARRIER * value
    return Descent(
        controls=tree_where(taken, ground.controls(trial.v), now.controls),
        nodes=tree_where(taken, nodes, now.nodes),
        pace=jnp.where(taken, pace, now.pace),
        radius=radius,
        z=jnp.where(taken & roomy, bounded, now.z),
        nu=jnp.where(settled, jnp.maximum(FADING * now.nu, least), now.nu),
        value=jnp.where(taken, at(trial.v)[2], value),
        multipliers=multipliers,
        optimality=optimality,
        stuck=~moved & (radius < 1e-9),
        iteration=now.iteration + 1,
    )


def _corrected(at: Any, space: Tangents, v: Array, near: Scalar) -> tuple[Array, Array, Array, Scalar]:
    """v ← v − J⁺c(v) until max|c| ≤ near, with J of where the step began; c, s and the value there."""

    def going(now: Any) -> Array:
        (_, c, _, _), i = now
        size = jnp.max(jnp.abs(c))
        return (size > near) & (size < 10) & (i < CORRECTIONS)

    def go(now: Any) -> Any:
        (v, c, _, _), i = now
        v = v - space.lift(c)
        return (v, *at(v)), i + 1

    return jax.lax.while_loop(going, go, ((v, *at(v)), jnp.asarray(0)))[0]
