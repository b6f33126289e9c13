"""steer_through(stops, times) -> ThroughPlan: several Gaussians at given times; track(path): a whole curve of them.

The state at a stop is prescribed in full, and what happens after it depends on nothing before it: the legs from stop to
stop are steering problems of their own. All of them are solved at once, on [0, 1]; on a leg of length τ the layers are
A/τ, V/τ, b/τ and B, which is the same motion at another speed.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow._typing import Count, Scalar
from jaxflow.control.implicit import respond
from jaxflow.control.limits import faster
from jaxflow.control.optimise import advance, begin, why
from jaxflow.control.problem import Controls, Problem, check_allow
from jaxflow.control.reachability import check_reachable
from jaxflow.control.steer import constructive_controls
from jaxflow.control.stop import Stop
from jaxflow.errors import InputError, UnreachableError
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import Dopri8, solve
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Layer, Piecewise

ThroughMethod = Literal["gauss-newton", "constructive"]
THROUGH_METHODS: tuple[ThroughMethod, ...] = ("gauss-newton", "constructive")

FINEST = {True: 1e-13, False: 1e-6}
"""Tolerances of the last run through all legs, by whether it is in float64."""


@final
class ThroughPlan(eqx.Module):
    """Layers that lead through stops, and how well. All errors are of one run through all legs, from the first stop on.

    Attributes:
        weights: the layers on [0, times[-1]], as many pieces of equal length on every leg.
        times: of the stops, m + 1 of them, static.
        errors: W₂ to every stop but the first, (m,); inf from where the flow blows up.
        residuals: largest absolute error in mean and covariance, likewise.
        efforts: ∫ |A|² + |B|² + |V|² + |b|² dt over every leg.
        iterations: steps taken on every leg.
        converged: whether every error is ≤ tolerance.
        between: `track` only: W₂ to the path halfway between the stops, (m,).
        stop: a `Stop`, why the search for the worst leg ended.
    """

    weights: Piecewise
    times: tuple[float, ...] = eqx.field(static=True)
    errors: Float[Array, " m"]
    residuals: Float[Array, " m"]
    efforts: Float[Array, " m"]
    iterations: Int[Array, " m"]
    converged: Bool[Array, ""]
    between: Float[Array, " m"] | None
    stop: Any

    @property
    def residual(self) -> Scalar:
        """That of the worst stop."""
        return jnp.max(self.residuals)

    @property
    def effort(self) -> Scalar:
        """That of all legs together."""
        return jnp.sum(self.efforts)

    @property
    def tracking_error(self) -> Scalar:
        """The largest W₂ between flow and path halfway between the stops.

        Raises:
            InputError: a plan of `steer_through`, which knows no path.
        """
        if self.between is None:
            raise InputError("is known to plans of track alone", where="tracking_error")
        return jnp.max(self.between)


def steer_through(
    stops: Sequence[Gaussian],
    times: Sequence[float],
    *,
    segments: int = 4,
    allow: str = "ABVb",
    method: ThroughMethod = "gauss-newton",
    tolerance: float = 1e-9,
    iterations: int = 100,
) -> ThroughPlan:
    """Fit layers, constant on pieces, whose moment flow is at N(μ_i, Σ_i) at time t_i for every i.

    The legs between neighbouring stops decouple: each is a problem of `steer` from one stop to the next, and one
    Gauss–Newton search, vmapped, solves all. With two stops at 0 and 1 the plan is that of `steer`. On every leg the
    steps are the smallest in the layers of unit time, τA, τV, τb and B.

    Args:
        stops: m + 1 ≥ 2 Gaussians of one rank, means (d,), factors (d, r); the flow starts at the first.
        times: m + 1 increasing known numbers, the first 0.
        segments: equal pieces on every leg.
        allow: which of A, B, V, b are free; the others are zero.
        method: "gauss-newton", exact hits with any controls; "constructive", written down: one linear layer a leg at
            full rank, two below (needs A and b).
        tolerance: largest W₂ at a stop. The legs are searched for a hundredth of it, because what a leg misses the
            later ones carry on.
        iterations: of each leg's search at most.

    Returns:
        A ThroughPlan, also when the tolerance was not met: look at `converged`, `errors` and `stop`.

    Raises:
        UnreachableError: a stop has another rank than the one before, or another invariant of these controls forbids
            the leg to it; the stop is named.
        InputError: fewer than two stops, as many times as stops not given, times that do not increase from 0, mixed
            precisions, an unknown method or control.

    Cost: that of `steer` for the slowest leg times their number; compiled once for all. Works under jit and vmap,
    "constructive" at full rank alone. Plans are differentiable in the stops to first order, as those of `steer` are.
    """
    instants = check_options(stops, times, segments, allow, method, tolerance, iterations)
    leg = Leg(segments, allow, method, float(tolerance), iterations)
    return _plan(leg, list(stops), instants, None)


def track(
    path: Callable[[float], Gaussian],
    *,
    t1: float = 1.0,
    times: int = 8,
    segments: int = 1,
    allow: str = "ABVb",
    method: ThroughMethod = "gauss-newton",
    tolerance: float = 1e-9,
    iterations: int = 100,
) -> ThroughPlan:
    """Fit layers whose moment flow follows a path of Gaussians: exactly at m + 1 equispaced times, closely between.

    Args:
        path: t in [0, t1] ↦ Gaussian, of one rank; asked at 2m + 1 Python numbers.
        t1: the horizon.
        times: m, the legs.
        segments: equal pieces on every leg.
        allow, method, tolerance, iterations: as for `steer_through`.

    Returns:
        The ThroughPlan of the m + 1 stops, with `between`, W₂ to the path halfway between them, and their largest,
        `tracking_error`. For a path with two continuous derivatives it falls like m⁻².

    Raises:
        UnreachableError, InputError: as for `steer_through`; a horizon that is not positive, no legs.
    """
    check_positive(t1, "t1")
    if times < 1:
        raise InputError("must be at least 1", where="times", got=times, expected="the number of legs")
    grid = [float(t) for t in np.linspace(0, t1, 2 * times + 1)]
    seen = [path(t) for t in grid]
    stops, halfway = seen[::2], seen[1::2]
    instants = check_options(stops, grid[::2], segments, allow, method, tolerance, iterations)
    return _plan(Leg(segments, allow, method, float(tolerance), iterations), stops, instants, halfway)


def check_options(
    stops: Sequence[Gaussian], times: Sequence[float], segments: int, allow: str, method: str, tolerance: float,
    iterations: int,
) -> tuple[float, ...]:  # fmt: skip
    """Refuse what `steer_through` refuses; the times as floats."""
    check_allow(allow)
    check_positive(tolerance, "tolerance")
    check_positive(iterations, "iterations")
    if method not in THROUGH_METHODS:
        raise InputError("is not known", where="method", got=method, expected=", ".join(THROUGH_METHODS))
    if segments < 1:
        raise InputError("must be at least 1", where="segments", got=segments)
    if len(stops) < 2:
        raise InputError("must be at least two", where="stops", got=len(stops), fix="give the start and a target")
    instants = tuple(float(t) for t in times)
    if len(instants) != len(stops):
        raise InputError("must be one for every stop", where="times", got=len(instants), expected=f"{len(stops)} times")
    if instants[0] != 0 or not (np.isfinite(instants).all() and (np.diff(instants) > 0).all()):
        raise InputError("must increase, from 0 on", where="times", got=instants)
    check_same_dtype({f"stops[{i}]": stop for i, stop in enumerate(stops)})
    for i in range(1, len(stops)):
        try:
            check_reachable(stops[i - 1], stops[i], allow)
        except UnreachableError as error:
            where = error.where.replace("target", f"stops[{i}]")
            expected = error.expected.replace("the start", f"stops[{i - 1}]")
            raise UnreachableError(error.what, where=where, got=error.got, expected=expected, fix=error.fix) from None
    return instants


class Leg(NamedTuple):
    """How every leg is solved."""

    segments: int
    allow: str
    method: ThroughMethod
    tolerance: float
    iterations: int


def _plan(
    how: Leg, stops: Sequence[Gaussian], times: tuple[float, ...], halfway: Sequence[Gaussian] | None
) -> ThroughPlan:
    """All legs solved, joined, and run through again."""
    m, k = len(stops) - 1, how.segments
    starts, targets = _stacked(stops[:-1]), _stacked(stops[1:])
    if how.method == "constructive":
        # Below full rank the closed form wants to see its numbers: no vmap.
        legs = [_solved(how, *pair) for pair in pairwise(stops)]
        unit, distances, taken, stop = jax.tree.map(lambda *x: jnp.stack(x), *legs)
    else:
        unit, distances, taken, stop = jax.vmap(lambda *pair: _solved(how, *pair))(starts, targets)
    taus = jnp.asarray(np.diff(times), starts.mean.dtype)
    layers = jax.vmap(faster)(unit, 1 / taus)
    layers = jax.tree.map(lambda x: x.reshape(m * k, *x.shape[2:]), layers)
    durations = np.repeat(np.diff(times) / k, k).tolist()
    weights = Piecewise(A=layers.A, B=layers.B, V=layers.V, b=layers.b, durations=durations)
    nodes = np.asarray([0.0, *weights.edges[k::k]])
    asked = nodes[1:] if halfway is None else np.sort(np.concatenate([nodes[1:], (nodes[:-1] + nodes[1:]) / 2]))
    finest = FINEST[starts.mean.dtype == jnp.float64]
    run = solve(
        MomentFlow(weights), stops[0], t1=float(nodes[-1]), method=Dopri8(), rtol=finest, atol=finest, save_at=asked
    )
    every = 1 if halfway is None else 2
    there, valid = jax.tree.map(lambda x: x[every - 1 :: every], (run.states, run.valid))
    errors = jnp.where(valid, jax.vmap(wasserstein_gaussian)(there, targets), jnp.inf)
    gaps = [jnp.abs(there.mean - targets.mean), jnp.abs(there.covariance - targets.covariance).reshape(m, -1)]
    between = None
    if halfway is not None:
        here, seen = jax.tree.map(lambda x: x[::2], (run.states, run.valid))
        between = jnp.where(seen, jax.vmap(wasserstein_gaussian)(here, _stacked(halfway)), jnp.inf)
    squares = [
        jnp.sum(x**2, axis=tuple(range(1, x.ndim))) for x in (layers.A, layers.B, layers.V, layers.b) if x is not None
    ]
    return ThroughPlan(
        weights=weights,
        times=times,
        errors=errors,
        residuals=jnp.where(valid, jnp.max(jnp.concatenate(gaps, axis=1), axis=1), jnp.inf),
        efforts=jnp.sum(sum(squares[1:], squares[0]).reshape(m, k), axis=1) * taus / k,
        iterations=taken,
        converged=jnp.max(errors) <= how.tolerance,
        between=between,
        stop=jax.tree.map(lambda x: x[jnp.argmax(distances)], stop),
    )


def _solved(how: Leg, start: Gaussian, target: Gaussian) -> tuple[Layer, Scalar, Count, Any]:
    """One leg on [0, 1]: its layers, W₂ at their end, the iterations they took and why the search ended."""
    dtype = start.mean.dtype
    problem = Problem(start, target, how.segments, 1.0, how.allow, jnp.zeros((), dtype))
    if how.method == "constructive":
        return _layers(problem, constructive_controls(problem)), jnp.zeros((), dtype), jnp.asarray(0), Stop.closed_form
    # What a leg misses is carried on by the later ones. Searching beyond the precision of the ends would only stall.
    closest = max(how.tolerance / 100, 10 * FINEST[dtype == jnp.float64])
    options = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": how.iterations}
    fixed = jax.lax.stop_gradient(problem)
    search, _ = advance(
        fixed, begin(fixed, fixed.zero_controls(), **options), steps=how.iterations, tolerance=closest, **options
    )
    stop = why(fixed, search, method="gauss-newton", tolerance=how.tolerance)
    return _layers(problem, respond(problem, search.best)), search.distance, search.iteration, stop


def _layers(problem: Problem, controls: Controls) -> Layer:
    weights = problem.weights(controls)
    assert isinstance(weights, Piecewise)
    return weights.layers


def _stacked(gaussians: Sequence[Gaussian]) -> Gaussian:
    """One Gaussian with a leading axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *gaussians)
