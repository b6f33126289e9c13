"""The cheapest controls that hit: minimise cost(u) subject to c(u) = 0, and to s(u) ≥ 0 where variances are capped.

Every iterate hits: a step p along the tangents (Jp = 0) is followed by corrections v ← v − J⁺c(v). With G = ∂s/∂u and
a barrier of weight ν,

    λ = (JJᵀ)⁺J g,   g = ∇cost − Gᵀ(ν/s),   H = ∇²(cost − λ·c − z·s) + Gᵀ diag(z/s) G,   p: see `tangent.newton_step`

is the primal-dual Newton step to the minimum of cost − ν Σ log s; ν falls to zero as the iterates settle.

The path is integrated twice. c, s, their derivatives and the curvature come from fixed steps on every piece, plus what
those miss at the iterate; there the path is integrated adaptively and precisely. A new iterate that the precise path
does not confirm is turned down, whatever the fixed steps say: a search can drift into a blow-up that no grid sees.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._typing import Count, Flag, Scalar
from jaxflow.control.expansion import expand
from jaxflow.control.ground import Ground
from jaxflow.control.problem import Controls, tree_where
from jaxflow.control.tangent import Tangents, newton_step, preconditioner, tangents
from jaxflow.measures import Gaussian

CORRECTIONS = 6
"""Corrections of a trial before it counts as having left the controls that hit."""

HALVINGS = 8
"""How often a step is halved before it is given up and only c is corrected."""

CURVATURES = 60
"""Products with the curvature in one step, at most."""

FIRST_BARRIER = 1e-2
"""ν at the beginning, shared among the caps, relative to the cost."""

FADING = 0.2
"""What is left of ν each time the iterates have settled."""

INSIDE, AWAY = 0.9, 0.05
"""How much of the way to a cap one step may go, to first order; and what it must leave of the room there."""

ROOM = 0.02
"""The room below every cap that a search makes before it looks for the cheapest."""

NOISE = 1e-12
"""Changes of what is minimised, relative to it, that mean nothing."""

MISSED = 1e-3
"""How much more of c the fixed steps may miss at a new iterate than at the last one."""

HIT, EXACT = 1e-6, 1e-13
"""max|c| with which the search for the cheapest begins, and at which no more corrections are made."""

HITTING, ROOMING, DESCENDING, POLISHING, OVER = range(5)
"""What a search is doing: looking for controls that hit, for room below the caps, for the cheapest; correcting c."""


class Descent(NamedTuple):
    """A search under way.

    Attributes:
        phase: HITTING to OVER. failed: it ended in the first two.
        controls, nodes, pace: an iterate, its precise path, and how many steps each piece of that took.
        radius: the longest step to try; while HITTING, the most of c that one step corrects.
        nu, z: the weight of the barrier, and the multipliers of the caps.
        value: what is minimised. miss: max|c|.
        multipliers: λ. optimality: |g − Jᵀλ| relative to |∇cost|, where the last step began.
        settled: the search for the cheapest has met its tolerance.
        iteration: steps of the middle two phases. steps: all of them.
    """

    phase: Array
    failed: Flag
    controls: Controls
    nodes: Gaussian
    pace: Array
    radius: Scalar
    nu: Scalar
    z: Array
    value: Scalar
    miss: Scalar
    multipliers: Array
    optimality: Scalar
    settled: Flag
    iteration: Count
    steps: Count


class _Trial(NamedTuple):
    """A point along a step, corrected: flat controls, c, s and the value there, tries so far, how far it went, the
    gain, and whether it will do."""

    v: Array
    c: Array
    s: Array
    value: Scalar
    tries: Array
    length: Scalar
    gain: Scalar
    good: Flag


def first_descent(ground: Ground, controls: Controls) -> Descent:
    """A search that begins at these controls."""
    u = ground.flat(controls)
    nodes, arrived, pace = ground.precise(u)
    c, s = ground.read(nodes)
    zero, inf, no = jnp.zeros((), u.dtype), jnp.asarray(jnp.inf, u.dtype), jnp.asarray(False)
    miss = jnp.where(arrived, jnp.max(jnp.abs(c)), jnp.inf)
    start = jnp.asarray(0)
    return Descent(
        start + HITTING, no, controls, nodes, pace, zero + 1, zero, jnp.zeros_like(s), inf, miss,
        jnp.zeros_like(c), inf, no, start, start,
    )  # fmt: skip


def descend(
    ground: Ground, now: Descent, *, steps: int, iterations: int, tolerance: float
) -> tuple[Descent, tuple[Array, Array, Array]]:
    """Up to so many steps, fewer if the search is over.

    Args:
        iterations: of the search for room and for the cheapest, at most.
        tolerance: of `optimality`, and of the sum of ν relative to the cost.

    Returns: the search, and (value, optimality, largest variance relative to those of start and target) after every
        step (the last ones repeated once it is over), (steps,) each.
    """

    def going(carry: Any) -> Array:
        now, _, i = carry
        return (now.phase < OVER) & (i < steps)

    def go(carry: Any) -> Any:
        now, history, i = carry
        now = _next_phase(ground, _iterate(ground, now, tolerance=tolerance), iterations)
        row = jnp.stack([now.value, now.optimality, ground.peak(now.nodes)])
        return now, jnp.where((jnp.arange(steps) >= i)[:, None], row[None], history), i + 1

    history = jnp.full((steps, 3), jnp.inf, now.value.dtype)
    now, history, _ = jax.lax.while_loop(going, go, (_next_phase(ground, now, iterations), history, jnp.asarray(0)))
    return now, (history[:, 0], history[:, 1], history[:, 2])


def _next_phase(ground: Ground, now: Descent, iterations: int) -> Descent:
    """Where a phase is over, the next one begins."""
    _, s = ground.read(now.nodes)
    stuck = now.radius < 1e-9
    used = (now.iteration >= iterations) | stuck
    hits, roomy = now.miss <= HIT, (s >= ROOM / 2).all()
    # A radius of −1 says that a correction did not help.
    hopeless = (now.phase == HITTING) & ~hits & (now.radius < 0)
    cramped = (now.phase == ROOMING) & ~roomy & used
    phase = jnp.where((now.phase == HITTING) & hits, ROOMING, now.phase)
    begins = (phase == ROOMING) & roomy
    cost = ground.smooth(ground.flat(now.controls), now.pace)[2]
    nu = jnp.where(begins, FIRST_BARRIER * cost / max(1, s.size), now.nu)
    phase = jnp.where(begins, DESCENDING, phase)
    phase = jnp.where(((phase == DESCENDING) & (now.settled | used)) | cramped, POLISHING, phase)
    phase = jnp.where(((phase == POLISHING) & ((now.miss <= EXACT) | (now.radius < 0))) | hopeless, OVER, phase)
    far = 0.5 * jnp.linalg.norm(ground.flat(now.controls)) + 0.1
    return now._replace(
        phase=phase,
        failed=now.failed | hopeless | cramped,
        nu=nu,
        z=jnp.where(begins, nu / jnp.where(s > 0, s, 1), now.z),
        value=jnp.where(begins, cost, now.value),
        radius=jnp.where(phase != now.phase, far, now.radius),
    )


def _iterate(ground: Ground, now: Descent, *, tolerance: float) -> Descent:
    """One step of the phase: Newton's, its corrections, and the precise integration that has the last word."""
    u = ground.flat(now.controls)
    moves, kept = (now.phase == ROOMING) | (now.phase == DESCENDING), now.phase == DESCENDING
    near = expand(ground, u, now.pace)
    missed = [true - rough for true, rough in zip(ground.read(now.nodes), (near.c, near.s))]
    rooming = now.phase == ROOMING

    def valued(c: Array, s: Array, cost: Scalar) -> tuple[Array, Array, Scalar]:
        """c and s as the precise path has them, and what this phase minimises."""
        s = s + missed[1]
        return c + missed[0], s, jnp.where(rooming, jnp.sum(jnp.maximum(ROOM - s, 0) ** 2), cost)

    def at(v: Array) -> tuple[Array, Array, Scalar]:
        return valued(*ground.smooth(v, now.pace))

    (c, s, value), (J, G) = valued(near.c, near.s, near.cost), (near.J, near.G)
    slope = jnp.where(rooming, -2 * jnp.maximum(ROOM - s, 0) @ G, near.slope)
    space = tangents(J)
    # Zero where caps are not kept (yet).
    nu, z, w = (jnp.where(kept, x, 0) for x in (now.nu, now.z, now.z / s))
    g = slope - G.T @ (nu / s)
    multipliers = space.multipliers(g)
    r = g - J.T @ multipliers
    optimality = jnp.linalg.norm(r) / jnp.maximum(jnp.linalg.norm(slope), jnp.finfo(u.dtype).tiny)

    def lagrangian(*found: Any) -> Scalar:
        c, there, value = valued(*found)
        # The last term has no gradient at u, and the curvature Gᵀ diag(w) G.
        return value - multipliers @ c - z @ there + 0.5 * w @ (there - jax.lax.stop_gradient(there)) ** 2

    p, length, promised = newton_step(
        near.hessian(lagrangian),
        jnp.where(moves, r, 0),
        space,
        preconditioner(space, G, w, jnp.asarray(ground.stiffness, u.dtype)),
        radius=now.radius,
        accuracy=jnp.minimum(0.1, jnp.sqrt(optimality)),
        products=CURVATURES,
    )
    ds, noise = G @ p, NOISE * jnp.abs(value)
    close = jnp.minimum(1e-2 * optimality**1.5, jnp.where(kept, 0.1 * jnp.min(s, initial=1), 1))
    # Far from hitting, a part of c is corrected at a time.
    part = jnp.where(now.phase == HITTING, jnp.minimum(now.radius / now.miss, 1), 1)
    close = jnp.where(moves, jnp.clip(close, 1e-12, 1e-3), jnp.where(part < 1, jnp.inf, 1e-14))

    def merit(c: Array, s: Array, value: Scalar) -> Scalar:
        return value - nu * jnp.sum(jnp.log(jnp.where(s > 0, s, 1))) - multipliers @ c

    def look(trial: _Trial) -> _Trial:
        most = jnp.where(kept, INSIDE / jnp.maximum(jnp.max(-ds / s, initial=0), INSIDE), 1)
        still = trial.tries == HALVINGS
        length = jnp.where(still, 0, most * 0.5**trial.tries)
        v, c_v, s_v, value_v = _corrected(at, space, u - part * space.lift(c) + length * p, close)
        gain = merit(c, s, value) - merit(c_v, s_v, value_v)
        good = (jnp.max(jnp.abs(c_v)) <= close) & ((s_v > AWAY * s).all() | ~kept)
        good &= still | (gain >= 1e-4 * length * (-r @ p) - noise)
        return _Trial(v, c_v, s_v, value_v, trial.tries + 1, length, gain, good | ~moves)

    zero = jnp.zeros((), u.dtype)
    trial = _Trial(u, c, s, value, jnp.where(moves, 0, HALVINGS), zero, zero, jnp.asarray(False))
    trial = jax.lax.while_loop(lambda trial: ~trial.good & (trial.tries <= HALVINGS), look, trial)
    nodes, arrived, pace = ground.precise(trial.v)
    c_true, s_true = ground.read(nodes)
    miss = jnp.where(arrived & jnp.isfinite(c_true).all(), jnp.max(jnp.abs(c_true)), jnp.inf)
    confirmed = (jnp.max(jnp.abs(c_true - trial.c)) <= MISSED) & ((s_true > AWAY * s / 2).all() | ~kept)
    taken = arrived & trial.good & jnp.where(moves, confirmed, miss < (1 - 0.5 * part) * now.miss)
    moved = taken & (trial.length > 0)

    first, ratio = trial.tries == 1, (trial.gain + noise) / (promised + noise)
    radius = jnp.where((length >= 0.99 * now.radius) & (ratio > 0.5), 2 * now.radius, now.radius)
    radius = jnp.where(first & (ratio < 0.2), length / 2, radius)
    radius = jnp.where(first, radius, trial.length * length)
    radius = jnp.where(moved, radius, jnp.minimum(now.radius, length) / 16)
    shorter = jnp.where((now.phase == HITTING) & (part > 1e-6), part * now.miss / 4, -1)
    radius = jnp.where(moves, radius, jnp.where(taken, 2 * now.radius, shorter))
    # An exact product zs = ν is what the multipliers tend to; bounded, they cannot be far off it.
    new_z = z + trial.length * (nu / s - z - w * ds)
    bounds = (c * nu / jnp.abs(s_true) for c in (1e-3, 1e3))
    least = tolerance * value / max(1, s.size)
    settled = moved & kept & (optimality <= jnp.maximum(10 * now.nu / value, tolerance))
    return now._replace(
        controls=tree_where(taken, ground.controls(trial.v), now.controls),
        nodes=tree_where(taken, nodes, now.nodes),
        pace=jnp.where(taken, pace, now.pace),
        radius=radius,
        nu=jnp.where(settled, jnp.maximum(FADING * now.nu, least), now.nu),
        z=jnp.where(taken & kept, jnp.clip(new_z, *bounds), now.z),
        value=jnp.where(taken, trial.value, value),
        miss=jnp.where(taken, miss, now.miss),
        multipliers=jnp.where(moves, multipliers, now.multipliers),
        optimality=jnp.where(moves, optimality, now.optimality),
        settled=now.settled | (kept & (optimality <= tolerance) & ((now.nu <= 1.01 * least) | (s.size == 0))),
        iteration=now.iteration + moves,
        steps=now.steps + 1,
    )


def _corrected(at: Any, space: Tangents, v: Array, near: Scalar) -> tuple[Array, Array, Array, Scalar]:
    """v ← v − J⁺c(v) until max|c| ≤ near, with J of where the step began; v, and c, s and the value there."""

    def going(now: Any) -> Array:
        (_, c, _, _), i = now
        size = jnp.max(jnp.abs(c))
        return (size > near) & (size < 10) & (i < CORRECTIONS)

    def go(now: Any) -> Any:
        (v, c, _, _), i = now
        v = v - space.lift(c)
        return (v, *at(v)), i + 1

    return jax.lax.while_loop(going, go, ((v, *at(v)), jnp.asarray(0)))[0]
