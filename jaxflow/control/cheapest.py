"""cheapest(start, target, ...) -> Cheapest: controls that hit, of least effort or least kinetic energy."""

from collections.abc import Mapping
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow._checks import check_positive, is_concrete
from jaxflow._typing import Count, Scalar
from jaxflow.control.asked import curve_of
from jaxflow.control.curves import AbstractCurve, Steps
from jaxflow.control.ground import COSTS, Cost, Ground, larger_variances
from jaxflow.control.limits import check_bounds
from jaxflow.control.minimum import Descent, descend, first_descent
from jaxflow.control.newton import along_geodesic
from jaxflow.control.optimise import advance, begin
from jaxflow.control.plan import misses
from jaxflow.control.problem import Controls, Problem, check_allow
from jaxflow.control.reachability import check_reachable
from jaxflow.control.shoot import finest
from jaxflow.control.stationary import Minimum, respond
from jaxflow.control.stop import Stop, name_of
from jaxflow.control.warm import with_controls
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.solve.one_by_one import one_by_one
from jaxflow.weights import AbstractSchedule, Piecewise

RESIDUAL = 1e-8
"""The largest error in mean and covariance of what counts as a hit, relative to the largest of start and target."""

DRIFT = 4.0
"""Variances on the way, relative to those of start and target, beyond which a search that has not ended is said to be
drifting towards blow-up."""


@final
class Cheapest(eqx.Module):
    """Layers that hit at the least cost found, and the evidence.

    Attributes:
        weights: the layers.
        cost: ∫ |A|² + |B|² + |V|² + |b|² dt, or the kinetic energy.
        residual: largest absolute error in mean and covariance, integrated anew by another program at 1e-13.
        error: W₂ to the target, likewise.
        optimality: |∇cost − Jᵀλ − Gᵀν/s| relative to |∇cost|: zero at a first-order minimum.
        multiplier_mean, multiplier_covariance: λ: how the least cost answers the target, ∂cost/∂μ₁ (d,) and ∂cost/∂Σ₁
            (d, d) symmetric.
        multiplier_caps: z ≥ 0 for every piece but the last, (k − 1, d): the gain from one unit more of its variance;
            (0, d) without caps.
        room: smallest 1 − diag Σ/cap at the ends of pieces; 1 without caps.
        peak: largest variance at the ends of pieces, relative to the larger of start's and target's.
        stop: a `Stop`: minimum, iterations, drifting, excluded or missed.
        history: (cost, optimality, peak) after every step, (steps, 3); while the search still makes room below the caps
            the first is the violation.
        iterations: Newton steps.
    """

    weights: AbstractSchedule
    cost: Scalar
    residual: Scalar
    error: Scalar
    optimality: Scalar
    multiplier_mean: Float[Array, " d"]
    multiplier_covariance: Float[Array, "d d"]
    multiplier_caps: Float[Array, "m d"]
    room: Scalar
    peak: Scalar
    stop: Stop
    history: Float[Array, "i 3"]
    iterations: Count

    @property
    def converged(self) -> Bool[Array, ""]:
        """Whether this is a first-order minimum that hits and keeps the caps."""
        return self.stop == Stop.minimum

    @property
    def reason(self) -> str:
        """The name of `stop`, on the host."""
        return name_of(self.stop)


def cheapest(
    start: Gaussian,
    target: Gaussian,
    *,
    segments: int | None = None,
    t1: float = 1.0,
    allow: str = "ABVb",
    controls: str | AbstractCurve = "constant",
    heads: int = 1,
    symmetric_B: bool = False,
    bounds: Mapping[str, float] | None = None,
    cost: Cost = "effort",
    cap: Float[Array, " d"] | float | None = None,
    tolerance: float = 1e-6,
    iterations: int = 150,
    warm_start: Piecewise | None = None,
    prices: Mapping[str, Scalar | float] | None = None,
) -> Cheapest:
    """Layers that carry one Gaussian to another exactly, at the least cost.

    Minimises ∫ p_A|A|² + p_B|B|² + p_V|V|² + p_b|b|² dt ("effort"), or ∫ tr(KΣKᵀ) + |μ̇|² dt ("kinetic"), subject to
    N(t1) = target and, if a cap is given, diag Σ ≤ cap at the end of every piece. Sequential quadratic programming with
    exact curvature among controls that hit, started from the Bures–Wasserstein geodesic (see `control/minimum.py`).

    Args:
        start, target: Gaussians of one rank.
        segments, t1, allow, controls, heads, symmetric_B, bounds: as for `steer`.
        cap: variances allowed on the way, (d,); or one number, times the larger of start's and target's; or None.
        tolerance: of the optimality, and of the cost's distance from the minimum due to the barrier.
        iterations: Newton steps, at most.
        warm_start: layers with the same segments to begin from.
        prices: of the effort's terms, such as {"V": 4.0}: positive numbers; 1 for controls that are not named.

    Returns:
        A Cheapest. Iterates hit from the first one on, so that a search cut short is an answer, too; a minimum it is
        where `converged`, and `reason` says why not elsewhere.

    Raises:
        UnreachableError: the target is out of reach of these controls.
        InputError: an unknown cost, a cap that start or target exceed, a horizon that is not positive, NaN.

    Without a cap the effort often has no minimum: it falls for ever while Σ on the way goes to infinity, because
    attention is the cheaper the larger Σ is. `reason` says so. A minimum is a local one: the cost is not convex. The
    least kinetic energy is that of `geodesic`, W₂²/t1, up to what the pieces cannot follow. Cost: 10 to 150 Newton
    steps, each of d(d+3)/2 gradients (with caps d(k−1) more) and up to 60 Hessian products: 3 ms each at d = 4 and ten
    segments on one core, after 8 to 20 s of compiling. Works under jit and vmap; a batch on a CPU is solved one after
    the other, and `jaxflow.solve.spread` deals it to several devices. Meant for float64.

    Weights, cost and the multipliers of the target are differentiable (first order, forward and reverse) in start,
    target, prices and the cap, by the equations of a minimum (`control/stationary.py`); the derivative is NaN where
    there is none, and that of everything else zero. At a tolerance of 1e-8 (with active caps 1e-7) it agrees with
    differences of searches to 1e-4 of its largest entry.
    Source: arXiv:2606.07600, §3; J. Nocedal and S. Wright, Numerical Optimization, 2nd ed., §18 and §19.
    """
    check_allow(allow)
    check_reachable(start, target, allow)
    check_positive(tolerance, "tolerance")
    if cost not in COSTS:
        raise InputError("is not known", where="cost", got=cost, expected=" or ".join(COSTS))
    if iterations < 1:
        raise InputError("must be at least 1", where="iterations", got=iterations)
    check_positive(t1, "t1")
    curve = curve_of(controls, segments) if isinstance(controls, str) else controls
    problem = Problem(
        start, target, curve.pieces, float(t1), allow, jnp.zeros((), start.mean.dtype),
        curve=None if isinstance(curve, Steps) else curve, heads=heads, symmetric_B=symmetric_B,
        bounds=check_bounds(bounds or {}, allow),
    )  # fmt: skip
    if prices is not None:
        problem = eqx.tree_at(
            lambda problem: problem.prices, problem, prices_of(prices, problem, cost), is_leaf=lambda x: x is None
        )
    ground = Ground(problem, caps_of(problem, cap), cost)
    fixed = jax.lax.stop_gradient((problem, ground.cap, warm_start))
    plan, minimum = one_by_one(_search)(_Search(*fixed, cost, iterations, tolerance))
    best, multipliers, least = respond(ground, minimum)
    answers = (problem.weights(best), least, *ground.in_moments(multipliers))
    return eqx.tree_at(
        lambda plan: (plan.weights, plan.cost, plan.multiplier_mean, plan.multiplier_covariance), plan, answers
    )


class _Search(NamedTuple):
    """What is asked."""

    problem: Problem
    cap: Array | None
    warm_start: Piecewise | None
    cost: Cost
    iterations: int
    tolerance: float


def _search(asked: _Search) -> tuple[Cheapest, Minimum]:
    ground = Ground(asked.problem, asked.cap, asked.cost)
    now = first_descent(ground, first_controls(ground, asked.warm_start))
    steps, iterations = asked.iterations + EXTRA, asked.iterations
    now, history = descend(ground, now, steps=steps, iterations=iterations, tolerance=asked.tolerance)
    plan, (_, s) = make_cheapest(ground, now, jnp.stack(history, axis=-1)), ground.read(now.nodes)
    return plan, Minimum(now.controls, now.multipliers, now.z, plan.cost, now.pace, s, plan.converged)


FAR = 3.0
"""What the geodesic's layers may miss, in the target's deviations, to be where a search begins: thin targets they can
miss by a hundred, and Newton's corrections of c alone then come to a halt."""

EXTRA = 40
"""Steps of a search beside its iterations: to hit at the beginning, and to polish at the end."""


def prices_of(prices: Mapping[str, Any], problem: Problem, cost: Cost) -> dict[str, Array]:
    """The prices as arrays.

    Raises:
        InputError: prices of a kinetic energy, of a control that is not free, or not positive.
    """
    if cost != "effort":
        raise InputError("do not apply", where="prices", got=f"cost = {cost!r}", fix='take cost="effort"')
    for name, price in prices.items():
        if name not in problem.allow or len(name) != 1:
            raise InputError(
                "is no free control", where=f"prices.{name}", got=f"allow = {problem.allow!r}", fix="leave it out"
            )
        if is_concrete(price) and not (np.ndim(price) == 0 and np.isfinite(price) and price > 0):
            raise InputError("must be positive", where=f"prices.{name}", got=price, expected="a finite number > 0")
    return {name: jnp.asarray(prices[name], problem.start.mean.dtype) for name in sorted(prices)}


def caps_of(problem: Problem, cap: Any) -> Array | None:
    """The caps as variances, (d,), checked against start and target."""
    if cap is None:
        return None
    if problem.shape.pieces == 1:
        raise InputError(
            "is kept at the ends of pieces, and these controls have one piece",
            where="cap",
            got=f"controls of kind {type(problem.shape).__name__} with one piece",
            fix='take controls="constant" or "linear" with two segments or more',
        )
    ends = larger_variances(problem)
    caps = jnp.asarray(cap, ends.dtype)
    caps = caps * ends if caps.ndim == 0 else caps
    if caps.shape != ends.shape:
        raise InputError("has the wrong shape", where="cap", got=caps.shape, expected=f"a number, or {ends.shape}")
    if is_concrete(caps) and is_concrete(ends) and not (np.asarray(caps) > np.asarray(ends)).all():
        raise InputError(
            "is not above the variances of start and target",
            where="cap",
            got=np.asarray(caps).tolist(),
            expected=f"more than {np.asarray(ends).tolist()}",
            fix="raise the cap: the way begins and ends there",
        )
    return caps


def first_controls(ground: Ground, warm_start: Piecewise | None) -> Controls:
    """Where a search begins: the geodesic's own layers if A and b are free and they come near the target, else what
    Gauss–Newton finds."""
    problem = ground.problem
    if warm_start is not None:
        return with_controls(problem, warm_start)
    zero = problem.zero_controls()
    options: Any = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": 100}

    def search_from(controls: Controls) -> Controls:
        search, _ = advance(problem, begin(problem, controls, **options), steps=100, tolerance=1e-7, **options)
        return search.best

    if not {"A", "b"} <= set(problem.allow):
        return search_from(zero)
    along = along_geodesic(problem, zero)
    nodes, arrived, _ = ground.precise(ground.flat(along))
    near = arrived & (jnp.max(jnp.abs(ground.read(nodes)[0])) <= FAR)
    return jax.lax.cond(near, lambda controls: controls, search_from, along)


def make_cheapest(ground: Ground, now: Descent, history: Float[Array, "i 3"]) -> Cheapest:
    """What a search has found, measured by `solve`."""
    problem = ground.problem
    weights, verified = problem.weights(now.controls), problem.verify(now.controls)
    error, residual = misses(verified, problem.target)
    sizes = [jnp.max(jnp.abs(x)) for g in (problem.start, problem.target) for x in (g.mean, g.covariance)]
    hits = residual <= jnp.maximum(RESIDUAL, 1e3 * finest(residual.dtype)) * jnp.max(jnp.stack(sizes))
    _, s = ground.read(now.nodes)
    room, peak, d = jnp.min(s, initial=1), ground.peak(now.nodes), problem.start.dim
    mean, covariance = ground.in_moments(now.multipliers)
    drifts = ~now.settled & (peak > DRIFT) & (ground.cap is None)
    stop = Stop.where(now.settled, Stop.minimum, Stop.iterations)
    stop = Stop.where(room < 0, Stop.excluded, stop)
    stop = Stop.where(hits, stop, Stop.missed)
    stop = Stop.where(drifts, Stop.drifting, stop)
    z = now.z.reshape(-1, d)
    if ground.cap is not None:
        z = z / ground.cap[None, :]
    return Cheapest(
        weights=weights,
        cost=ground.smooth(ground.flat(now.controls), now.pace)[2],
        residual=residual,
        error=error,
        optimality=now.optimality,
        multiplier_mean=mean,
        multiplier_covariance=covariance,
        multiplier_caps=z,
        room=room,
        peak=peak,
        stop=stop,
        history=history,
        iterations=now.iteration,
    )
