"""What problem does a steering config pose, and what does its plan leave behind? Numbers, arrays, and advice."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import control
from jaxflow.control import Plan, Problem
from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.schema import Steer
from jaxflow.experiments.trees import to_arrays
from jaxflow.measures import Gaussian
from jaxflow.solve import Solution
from jaxflow.weights import Piecewise

TIMES = 201
"""Times at which controls that are not constant on pieces are kept."""


ADVICE = {
    "tolerance": "the search met it, the finer integration at the end did not: lower solve.rtol and solve.atol",
    "iterations": 'raise control.iterations, lower control.effort, or set control.method = "gauss-newton"',
    "stalled": "allow more controls, more segments or a longer time",
    "bounds": "a control has reached its bound: raise control.bounds, allow more controls, or a longer time",
    "blow_up": "every control that was tried blew up: shorten control.t1, or allow A",
    "closed_form": "the closed form is only exact to rounding times the condition of the covariances",
}


def problem_of(experiment: Steer, start: Gaussian, target: Gaussian) -> control.Problem:
    """The steering problem of `[control]` and `[solve]`."""
    C = experiment.control
    dtype = start.mean.dtype

    def weight(value: float | None) -> Any:
        return jnp.asarray(value, dtype) if value else None

    # The construction takes one layer at full rank and two below.
    segments = C.segments or (1 if start.rank == start.dim else 2)
    constant = C.controls in (None, "constant")
    try:
        return control.Problem(
            start,
            target,
            segments,
            1.0 if isinstance(C.t1, list) else C.t1,
            C.allow,
            jnp.asarray(C.effort or 0.0, dtype),
            None if experiment.solve.method is None else build.METHODS[experiment.solve.method],
            experiment.solve.rtol,
            experiment.solve.atol,
            curve=None if constant else control.curve_of(C.controls or "", C.segments),
            heads=C.heads or 1,
            symmetric_B=bool(C.symmetric_B),
            bounds=control.check_bounds(C.limits, C.allow),
            loss_name=C.loss or "w2",
            smoothness_weight=weight(C.smoothness),
            time_weight=weight(C.time_weight),
            horizon=(C.t1[0], C.t1[1]) if isinstance(C.t1, list) else None,
        )
    except InputError as error:
        raise error.at("control") from None


def summary_of(plan: Plan, fine: Solution, tolerance: float) -> dict[str, Any]:
    """The numbers of summary.json that do not depend on tokens. `fine` observed moments on the way."""
    reason = control.name_of(plan.stop)
    summary: dict[str, Any] = {
        "status": "done" if bool(plan.converged) else "not_converged",
        "stop": reason,
        "reachable": "yes",
        "w2": float(plan.error),
        "w2_squared": float(plan.error) ** 2,
        "residual": float(plan.residual),
        "effort": float(plan.effort),
        "horizon": float(plan.horizon),
        "iterations": int(plan.iterations),
        "kappa_eff": float(jnp.max(fine.observables.kappa)),
    }
    if not plan.converged and reason in ADVICE:
        summary["advice"] = f"W₂ = {float(plan.error):.3g} is above the tolerance {tolerance:g}: {ADVICE[reason]}"
    return summary


def arrays_of(problem: Problem, best: Any, plan: Plan, fine: Solution) -> dict[str, Any]:
    """The path, the controls, and the search. Controls that are not constant on pieces come at `controls_ts`, with the
    numbers they are made of as `parameters[…]`."""
    stretch = float(plan.horizon) / problem.t1
    arrays: dict[str, Any] = {
        "ts": stretch * np.asarray(fine.ts),
        "mean": fine.states.mean,
        "covariance": fine.observables.covariance,
        "target_mean": problem.target.mean,
        "target_covariance": problem.target.covariance,
        "history": plan.history,
    }
    if isinstance(plan.weights, Piecewise):
        layers = plan.weights.layers
        arrays["edges"] = np.asarray(plan.weights.edges)
    else:
        times = np.linspace(0, float(plan.horizon), TIMES)
        layers = jax.vmap(plan.weights.at)(jnp.asarray(times, problem.start.mean.dtype))
        arrays["edges"] = np.asarray(plan.weights.edges or (0.0, float(plan.horizon)))
        arrays |= {"controls_ts": times, **to_arrays("parameters", best)}
    for name in sorted(problem.allow):
        x = np.asarray(getattr(layers, name))
        # One head has no head axis.
        arrays[f"controls.{name}"] = x[:, 0] if name in {"B", "V"} and problem.heads == 1 else x
    return arrays


def shape_in_words(problem: Problem) -> str:
    """How the controls depend on time."""
    match problem.shape:
        case control.Steps(k=k):
            return f"constant on {k} segments"
        case control.Lines(k=k):
            return f"straight on {k} segments"
        case control.Waves(modes=m):
            return f"{m} Fourier frequencies"
        case control.Network(width=w, depth=l):
            return f"a network of time, {l} layers of {w}"
        case shape:
            return type(shape).__name__
