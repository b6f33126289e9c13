"""steer(start, target, ...) -> Plan: the front door."""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import nondifferentiable

from jaxflow._checks import check_positive, is_concrete
from jaxflow.control.asked import check_descent_only, check_plain, curve_of, interval_of
from jaxflow.control.construct import constant_linear, two_piece_linear
from jaxflow.control.curves import AbstractCurve, Steps
from jaxflow.control.implicit import respond
from jaxflow.control.limits import check_bounds
from jaxflow.control.losses import Loss
from jaxflow.control.optimise import METHODS, advance, begin, why
from jaxflow.control.plan import Plan, make_plan
from jaxflow.control.problem import Problem, check_allow
from jaxflow.control.reachability import check_reachable
from jaxflow.control.stop import Stop
from jaxflow.control.warm import with_controls
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.solve import RK4, AbstractMethod
from jaxflow.weights import AbstractSchedule


def steer(
    start: Gaussian,
    target: Gaussian,
    *,
    segments: int | None = None,
    t1: float | tuple[float, float] = 1.0,
    allow: str = "ABVb",
    effort: float = 1e-2,
    method: Literal["adam", "lbfgs", "gauss-newton", "constructive"] = "lbfgs",
    tolerance: float = 1e-3,
    iterations: int | None = None,
    learning_rate: float = 0.05,
    warm_start: AbstractSchedule | None = None,
    integrator: AbstractMethod | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    dt: float | None = None,
    controls: Literal["constant", "linear", "fourier", "mlp"] | AbstractCurve = "constant",
    heads: int = 1,
    symmetric_B: bool = False,
    bounds: Mapping[str, float] | None = None,
    loss: Loss = "w2",
    smoothness: float = 0.0,
    time_weight: float = 0.0,
) -> Plan:
    """Fit layers in time, u = (A, B, V, b) on [0, T], that carry one Gaussian to another.

    Minimises  W₂²(N(T), target) + effort·∫₀ᵀ|u|² dt + smoothness·∫₀ᵀ|u̇|² dt + time_weight·T  by gradient descent
    through the moment flow ("adam", "lbfgs"), or goes straight for an exact hit in the smallest steps ("gauss-newton"),
    or writes the answer down ("constructive": one linear layer at full rank, two below). A target of equal rank is
    always reachable when A, or V and B, and b are free. The weights of effort, smoothness and time fade to zero over
    the iterations, in step, so that the search both arrives and stays cheap: larger weights or more iterations give
    cheaper controls. "gauss-newton" ignores `effort`.

    Args:
        segments: equal pieces of constant or straight controls (default 10), or Fourier frequencies (default 3).
        t1: the horizon T; or (low, high), between which T is found as well. The plan then says which `horizon`.
        allow: which controls are free; the others are zero.
        tolerance: stop once W₂ ≤ tolerance.
        iterations: at most so many (default 1000 for adam, 300 for lbfgs, 100 for gauss-newton).
        learning_rate: of Adam; decays to a hundredth over `iterations`.
        warm_start: layers of the same kind and size to begin from.
        integrator, rtol, atol, dt: how the moments are integrated during the search, at 1e-8 (finer for finer
            tolerances): Dopri8 for constant controls and Tsit5 for others, or RK4 where dt is given. A descent with
            constant controls takes a fifth (d = 2) to a thirtieth (d = 16) of the time where none is named.
        controls: how controls depend on time: "constant" on pieces, "linear" between knots, "fourier", "mlp" (a
            network of time, 2 layers of 16 tanh); or a curve: `Steps(k)`, `Lines(k)`, `Waves(m)`, `Network(width, …)`.
        heads: how many pairs B_h, V_h.
        symmetric_B: keep every B symmetric, as (Y + Yᵀ)/2.
        bounds: largest Frobenius norms, such as {"A": 3.0, "b": 1.0}, over all heads, kept at every time by every
            method: u = y/√(1 + |y|²/r²) with y free.
        loss: "w2"; "kl", KL(N(T) ‖ target), full rank only; "moments", |μ − μ₁|² + |Σ − Σ₁|². Tolerance, history and
            the best controls stay in W₂.
        smoothness: weight of ∫|u̇|² dt; for constant pieces of Σ|u_{i+1} − u_i|²/h.
        time_weight: weight of a free horizon.

    Returns:
        A Plan, also when the tolerance was not met: look at `converged` and `stop`. Bounds that shut the target out
        leave the nearest controls that were found, and the reason `Stop.bounds`.

    Raises:
        UnreachableError: the target has another rank, or another invariant of these controls forbids it.
        InputError: an unknown method or control, a horizon that is not positive, an option that does not apply; a free
            horizon under jit or vmap, because a schedule's edges are static.

    Cost: per iteration one flow of d(r+1) equations and its gradient ("adam"), some two of them ("lbfgs"), or d(d+3)/2
    gradients ("gauss-newton", 6 to 20 iterations); compiling takes 5 to 10 s. Works under jit and vmap (thousands of
    targets at once; on a CPU "lbfgs" is faster under `jax.lax.map`, where none waits for the slowest). Weights found
    by "gauss-newton" are differentiable in start and target: they answer with the smallest change that still hits;
    those of a descent are not, and asking for their derivative raises RuntimeError.
    Source: arXiv:2606.07600, §3.
    """
    check_allow(allow)
    check_reachable(start, target, allow)
    if rtol is None and atol is None and dt is None and start.mean.dtype == jnp.float64:
        # An exact hit asks for moments that are exact to match.
        rtol = atol = float(np.clip(tolerance / 100, 1e-13, 1e-8))
    check_positive(tolerance, "tolerance")
    weighed = {"effort": effort, "smoothness": smoothness, "time_weight": time_weight}
    for name, value in weighed.items():
        if is_concrete(value) and not value >= 0:
            raise InputError("must not be negative", where=name, got=value)
    if method not in (*METHODS, "constructive"):
        raise InputError("is not known", where="method", got=method, expected=", ".join((*METHODS, "constructive")))
    curve = curve_of(controls, segments) if isinstance(controls, str) else _given(controls, segments)
    horizon = interval_of(t1, start, target, time_weight)
    options = {
        "heads": (heads, 1), "symmetric_B": (symmetric_B, False), "bounds": (bounds or {}, {}),
        "controls": (type(curve).__name__, "Steps"), "t1": (horizon, None), "warm_start": (warm_start, None),
    }  # fmt: skip
    check_plain(method, options)
    check_descent_only(method, loss=loss, smoothness=smoothness, time_weight=time_weight)

    def weight(value: float) -> Any:
        return None if is_concrete(value) and value == 0 else jnp.asarray(value, start.mean.dtype)

    problem = Problem(
        start, target, curve.pieces, 1.0 if horizon else float(t1), allow,  # pyright: ignore[reportArgumentType]
        jnp.asarray(effort, start.mean.dtype), integrator or (None if dt is None else RK4()), rtol, atol, dt,
        curve=None if isinstance(curve, Steps) else curve, heads=heads, symmetric_B=symmetric_B,
        bounds=check_bounds(bounds or {}, allow), loss_name=loss, smoothness_weight=weight(smoothness),
        time_weight=weight(time_weight), horizon=horizon,
    )  # fmt: skip
    if method == "constructive":
        nothing = jnp.zeros((0, 2), start.mean.dtype)
        return make_plan(
            problem, constructive_controls(problem), nothing, jnp.asarray(0), tolerance=tolerance, stop=Stop.closed_form
        )
    total = iterations or DEFAULT_ITERATIONS[method]
    first = problem.zero_controls() if warm_start is None else with_controls(problem, warm_start)
    how = {"method": method, "learning_rate": learning_rate, "iterations": total}
    # The search of Gauss–Newton is not differentiated; what it finds is. Of a descent neither.
    exact = method == "gauss-newton"
    if exact:
        fixed, first = jax.lax.stop_gradient((problem, first))
    else:
        refused = InputError(
            "finds layers that have no derivative", where="method", got=method, expected="gauss-newton",
            fix="or take cheapest, which answers prices and caps as well",
        )  # fmt: skip
        fixed, first = nondifferentiable((problem, first), msg=str(refused))
    search, history = advance(fixed, begin(fixed, first, **how), steps=total, tolerance=tolerance, **how)
    stop = why(fixed, search, method=method, tolerance=tolerance)
    found = respond(problem, search.best) if exact else search.best
    return make_plan(problem, found, history, search.iteration, tolerance=tolerance, stop=stop)


DEFAULT_ITERATIONS = {"adam": 1000, "lbfgs": 300, "gauss-newton": 100}
"""Iterations allowed when none are given."""


def _given(curve: AbstractCurve, segments: int | None) -> AbstractCurve:
    if not isinstance(curve, AbstractCurve):
        raise InputError("must be a name or a curve", where="controls", got=type(curve).__name__)
    if segments is not None:
        raise InputError("does not apply to a curve, which knows its size", where="segments", got=segments)
    return curve


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
