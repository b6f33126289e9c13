"""`method = "cheapest"` of a steering run: the search for controls of least cost, in chunks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import control
from jaxflow.control.cheapest import EXTRA, caps_of, first_controls, make_cheapest
from jaxflow.control.ground import Ground
from jaxflow.control.minimum import OVER, Descent, descend, first_descent
from jaxflow.errors import InputError
from jaxflow.experiments.job import Progress, State
from jaxflow.experiments.schema import Control
from jaxflow.experiments.trees import from_arrays, to_arrays

CHUNK = 10
"""Newton steps per compiled chunk."""

ADVICE = {
    "iterations": "raise control.iterations, or control.cap",
    "drifting": "the effort has no minimum in sight: variances grow without bound on the way; give control.cap",
    "excluded": "no way below the caps was found: raise control.cap or control.segments",
    "missed": "no controls that hit were found: allow more controls or more segments, or raise control.bounds",
}


def ground_of(problem: control.Problem, C: Control) -> Ground:
    """What the search stands on.

    Raises:
        InputError: caps that do not fit.
    """
    cap = jnp.asarray(C.cap, problem.start.mean.dtype) if isinstance(C.cap, list) else C.cap
    try:
        return Ground(problem, caps_of(problem, cap), C.cost or "effort")
    except InputError as error:
        raise error.at("control") from None


def begin(ground: Ground) -> State:
    """The state before the first step."""
    dtype = ground.problem.start.mean.dtype
    return {**to_arrays("search", _first(ground)), "history": np.zeros((0, 2), dtype)}


def search_in(ground: Ground, state: State) -> Descent:
    """The search that a state holds."""
    like = first_descent(ground, ground.problem.zero_controls())
    return jax.tree.map(jnp.asarray, from_arrays("search", like, state))


def advance(ground: Ground, state: State, *, iterations: int, tolerance: float) -> tuple[State, Progress]:
    """A chunk of steps."""
    now, before = search_in(ground, state), len(state["history"])
    now, new = _descend(ground, now, steps=CHUNK, iterations=iterations, tolerance=tolerance)
    taken = int(now.steps) - before
    history = np.concatenate([state["history"], np.asarray(jnp.stack(new[:2], axis=-1))[:taken]])
    over = int(now.phase) == OVER
    metrics = {"cost": float(now.value), "optimality": float(now.optimality)}
    total = len(history) if over else max(iterations + EXTRA, len(history) + 1)
    return {**to_arrays("search", now), "history": history}, Progress(len(history), total, "iterations", metrics)


def found(ground: Ground, now: Descent) -> tuple[dict[str, Any], control.Stop]:
    """The numbers of summary.json that this method alone has, and why it ended."""
    plan = _made(ground, now)
    summary: dict[str, Any] = {
        "cost": float(plan.cost),
        "optimality": float(plan.optimality),
        "room": float(plan.room),
        "peak": float(plan.peak),
        "status": "done" if plan.reason == "minimum" else "not_converged",
    }
    if plan.reason != "minimum":
        summary["advice"] = ADVICE[plan.reason]
    return summary, plan.stop


@eqx.filter_jit
def _first(ground: Ground) -> Descent:
    return first_descent(ground, first_controls(ground, None))


@eqx.filter_jit
def _descend(ground: Ground, now: Descent, **options: Any) -> Any:
    return descend(ground, now, **options)


@eqx.filter_jit
def _made(ground: Ground, now: Descent) -> control.Cheapest:
    return make_cheapest(ground, now, jnp.zeros((0, 3), now.value.dtype))
