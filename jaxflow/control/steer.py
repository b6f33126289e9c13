"""steer(start, target, ...) -> Plan: the front door."""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow._checks import check_positive, is_concrete
from jaxflow._typing import Count, Scalar
from jaxflow.control.construct import constant_linear, two_piece_linear
from jaxflow.control.implicit import respond
from jaxflow.control.optimise import METHODS, advance, begin
from jaxflow.control.problem import Controls, Problem, check_allow, with_controls
from jaxflow.control.problem import effort as effort_of
from jaxflow.control.reachability import check_reachable
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.solve import RK4, AbstractMethod, Solution, Status, Tsit5
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Piecewise


@final
class Plan(eqx.Module):
    """Layers that steer, and how well.

    Attributes:
        weights: the layers; they move Gaussians (`MomentFlow`) and tokens (`AttentionFlow`) alike.
        error: W₂ between where they lead and the target, re-integrated more finely than the search did.
        residual: largest absolute error in mean and covariance, likewise.
        effort: ∫ |A|² + |B|² + |V|² + |b|² dt.
        history: (objective, W₂) for every iteration, (iterations, 2).
        iterations: steps taken.
        converged: whether error ≤ tolerance.
    """

    weights: Piecewise
    error: Scalar
    residual: Scalar
    effort: Scalar
    history: Float[Array, "i 2"]
    iterations: Count
    converged: Bool[Array, ""]


def steer(
    start: Gaussian,
    target: Gaussian,
    *,
    segments: int = 10,
    t1: float = 1.0,
    allow: str = "ABVb",
    effort: float = 1e-2,
    method: Literal["adam", "lbfgs", "gauss-newton", "constructive"] = "lbfgs",
    tolerance: float = 1e-3,
    iterations: int | None = None,
    learning_rate: float = 0.05,
    warm_start: Piecewise | None = None,
    integrator: AbstractMethod | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    dt: float | None = None,
) -> Plan:
    """Fit layers, constant on equal segments of [0, t1], that carry one Gaussian to another.

    Minimises W₂²(N(t1), target) + effort·∫|A|²+|B|²+|V|²+|b|² dt by gradient descent through the moment flow
    ("adam", "lbfgs"), or goes straight for an exact hit in the smallest steps ("gauss-newton"), or writes the answer
    down ("constructive": one linear layer at full rank, two below). A target of equal rank is always reachable when A,
    or V and B, and b are free. The weight of the effort fades to zero over the iterations, so that the search both
    arrives and stays cheap: more effort weight or more iterations give cheaper controls. "gauss-newton" ignores
    `effort`.

    Args:
        allow: which controls are free; the others are zero.
        tolerance: stop once W₂ ≤ tolerance.
        iterations: at most so many (default 1000 for adam, 300 for lbfgs, 100 for gauss-newton).
        learning_rate: of Adam; decays to a hundredth over `iterations`.
        warm_start: a schedule with the same segments to begin from.
        integrator, rtol, atol, dt: how the moments are integrated during the search: Tsit5 at 1e-8 (finer for finer
            tolerances), or RK4 where dt is given.

    Returns:
        A Plan, also when the tolerance was not met: look at `converged`.

    Raises:
        UnreachableError: the target has another rank, or another invariant of these controls forbids it.
        InputError: an unknown method or control, a horizon that is not positive.

    Cost: per iteration a few solves of d(r+1) equations and their gradient, or d(d+3)/2 gradients ("gauss-newton", 6
    to 20 iterations); compiling takes 5 to 10 s. Works under jit and vmap (thousands of targets at once). Weights found
    by "gauss-newton" are differentiable in start and target: they answer with the smallest change that still hits.
    Source: arXiv:2606.07600, §3.
    """
    check_allow(allow)
    check_reachable(start, target, allow)
    if rtol is None and atol is None and dt is None and start.mean.dtype == jnp.float64:
        # An exact hit asks for moments that are exact to match.
        rtol = atol = float(np.clip(tolerance / 100, 1e-13, 1e-8))
    check_positive(tolerance, "tolerance")
    if is_concrete(effort) and not effort >= 0:
        raise InputError("must not be negative", where="effort", got=effort)
    weight = jnp.asarray(effort, start.mean.dtype)
    integrator = integrator or (Tsit5() if dt is None else RK4())
    problem = Problem(start, target, segments, float(t1), allow, weight, integrator, rtol, atol, dt)
    if method == "constructive":
        nothing = jnp.zeros((0, 2), start.mean.dtype)
        return make_plan(problem, constructive_controls(problem), nothing, jnp.asarray(0), tolerance=tolerance)
    if method not in METHODS:
        raise InputError("is not known", where="method", got=method, expected=", ".join((*METHODS, "constructive")))
    total = iterations or DEFAULT_ITERATIONS[method]
    controls = problem.zero_controls() if warm_start is None else with_controls(problem, warm_start)
    options = {"method": method, "learning_rate": learning_rate, "iterations": total}
    if method != "gauss-newton":
        search = begin(problem, controls, **options)
        search, history = advance(problem, search, steps=total, tolerance=tolerance, **options)
        return make_plan(problem, search.best, history, search.iteration, tolerance=tolerance)
    # The search is not differentiated; what it finds is.
    fixed, controls = jax.lax.stop_gradient((problem, controls))
    search = begin(fixed, controls, **options)
    search, history = advance(fixed, search, steps=total, tolerance=tolerance, **options)
    found = respond(problem, search.best)
    return make_plan(problem, found, history, search.iteration, tolerance=tolerance)


DEFAULT_ITERATIONS = {"adam": 1000, "lbfgs": 300, "gauss-newton": 100}
"""Iterations allowed when none are given."""


def constructive_controls(problem: Problem) -> dict[str, Any]:
    """The closed form as controls of this problem: one linear layer at full rank, two below.

    Raises:
        InputError: A and b are not both allowed, or there is one segment where the rank asks for two.
    """
    if not {"A", "b"} <= set(problem.allow):
        raise InputError(
            "needs the controls A and b",
            where="method",
            got=f"constructive with allow = {problem.allow!r}",
            fix="add A and b to allow, or take another method",
        )
    build = constant_linear if problem.start.rank == problem.start.dim else two_piece_linear
    weights = build(problem.start, problem.target, t1=problem.t1, segments=problem.segments)
    nothing = {name: jnp.zeros_like(x) for name, x in problem.zero_controls().items()}
    return nothing | {"A": weights.layers.A, "b": weights.layers.b}


def make_plan(
    problem: Problem,
    controls: Controls,
    history: Float[Array, "i 2"],
    iterations: Count,
    *,
    tolerance: float,
    verified: Solution | None = None,
) -> Plan:
    """The plan of these controls, with its error measured on a finer solve (`verified`, if there is one already)."""
    verified = problem.verify(controls) if verified is None else verified
    weights, final, target = problem.weights(controls), verified.final, problem.target
    arrived = verified.status == Status.done
    gaps = (final.mean - target.mean, final.covariance - target.covariance)
    error = jnp.where(arrived, wasserstein_gaussian(final, target), jnp.inf)
    return Plan(
        weights=weights,
        error=error,
        residual=jnp.where(arrived, jnp.maximum(*(jnp.max(jnp.abs(gap)) for gap in gaps)), jnp.inf),
        effort=effort_of(weights),
        history=history,
        iterations=iterations,
        converged=error <= tolerance,
    )
