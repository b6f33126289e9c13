"""`kind = "transport"`: how far apart are two clouds, for the eye and for attention?

W₂ by angles, its sliced version by chords, and W_{m,2} of the heads at one time (arXiv:2605.18870, §4), between
e^{−R/2}W₂ and e^{R/2}W₂, with the path of particles that has it and the refinement that led to it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.experiments import build, curves
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Transport
from jaxflow.measures import Cloud
from jaxflow.transport import WeightedDistance, sliced_wasserstein, weighted_distance
from jaxflow.transport.minimise import NAMES, code_of
from jaxflow.transport.pairs import check_pair
from jaxflow.weights import AbstractRandom, Layer

NOT_CONVERGED = "not_converged"
"""Status of a search that stopped before its tolerance, here and in the other kinds."""

ADVICE = {
    "iterations": "raise distance.max_iterations",
    "stalled": "loosen distance.tolerance: rounding leaves no more to gain",
    "nonfinite": "lower the norms of the heads: e^{⟨x, Dy⟩} overflows",
}
SEVERAL = "an optimal pair is antipodal: its geodesic is not unique, and the path is one of several of equal length"

ROUNDING = 1e-9
"""Relative excess over the two-sided bound that counts as rounding."""

TOLERANCES = {"float64": 1e-8, "float32": 1e-5}


def job(experiment: Transport, *, folder: Path, precision: str) -> "TransportJob":
    """The job of a checked config.

    Raises:
        InputError: clouds that cannot be compared.
    """
    key = curves.root(experiment.seed)
    start, target = (
        curves.tokens(table, jax.random.fold_in(key, index), folder=folder, precision=precision)
        for index, table in enumerate((experiment.start, experiment.target))
    )
    check_pair(start, target)
    dim, time = start.points.shape[1], experiment.distance.time
    weights = build.schedule(experiment.weights, key, dim=dim, precision=precision)
    noise = None
    if isinstance(weights, AbstractRandom) and time > 0:
        # Not the key of the push that a search begins with.
        own = jax.random.fold_in(build.stream(key, "noise"), 1)
        noise = weights.advance(weights.begin(None), time, own)
    return TransportJob(experiment, start, target, weights.at(time, noise), build.stream(key, "noise"))


@dataclass(frozen=True)
class TransportJob:
    """The search, in one piece."""

    experiment: Transport
    start: Cloud
    target: Cloud
    layer: Layer
    key: Any

    @property
    def norm(self) -> float:
        """R = max_h ‖D_h‖."""
        return float(np.linalg.norm(np.asarray(self.layer.B), 2, axis=(-2, -1)).max())

    def describe(self) -> dict[str, str]:
        n, d = self.start.points.shape
        m, table = len(self.target.points), self.experiment.distance
        return {
            "clouds": f"{n} and {m} tokens in dimension {d}",
            "heads": f"{self.layer.heads}, of norm at most {self.norm:.4g}, at t = {table.time:g}",
            "path": f"{table.steps} steps, 1 to {table.split} particles for each of at most {n + m - 1} pairs",
        }

    def begin(self) -> State:
        return {}

    def advance(self, state: State) -> tuple[State, Progress]:
        table = self.experiment.distance
        found = weighted_distance(
            self.start,
            self.target,
            self.layer,
            steps=table.steps,
            split=table.split,
            key=self.key,
            tolerance=table.tolerance or TOLERANCES[str(self.start.points.dtype)],
            max_iterations=table.max_iterations,
        )
        sliced = float(sliced_wasserstein(self.start, self.target))
        state = {name: np.asarray(x) for name, x in _numbers(found).items()} | {"sliced": np.array(sliced)}
        return state, Progress(1, 1, "distance", {"w2": float(found.wasserstein), "weighted": float(found.value)})

    def finish(self, state: State) -> Run:
        ended = NAMES[int(state["ended"])]
        value, actions = float(state["value"]), state["actions"]
        lower, upper = float(state["lower"]), float(state["upper"])
        summary: dict[str, Any] = {
            "status": "done" if ended == "optimal" else NOT_CONVERGED,
            "stop": ended,
            "w2": float(state["wasserstein"]),
            "sliced_w2": float(state["sliced"]),
            "weighted": value,
            "weighted_error": float(state["error"]),
            "lower": lower,
            "upper": upper,
            "within": bool(lower * (1 - ROUNDING) <= value <= upper * (1 + ROUNDING)),
            "norm": self.norm,
            "actions": actions.tolist(),
            "split_gain": float(1 - actions[-2] / actions[0]) if actions[0] > 0 else 0.0,
            "optimality": float(state["optimality"]),
            "iterations": int(state["iterations"]),
            "particles": int(state["path"].shape[1]),
            "antipodal": bool(state["antipodal"]),
        }
        if summary["antipodal"]:
            summary["warning"] = SEVERAL
        if ended in ADVICE:
            summary["advice"] = ADVICE[ended]
        start, target = self.start, self.target
        arrays = {
            "ts": state["ts"],
            "path": state["path"],
            "mass": state["mass"],
            "actions": actions,
            "start": np.asarray(start.points),
            "start_weights": np.asarray(start.weights),
            "target": np.asarray(target.points),
            "target_weights": np.asarray(target.weights),
        }
        return Run(summary, arrays)


def _numbers(found: WeightedDistance) -> dict[str, Any]:
    """The fields of a distance as arrays; the stop reason as its place in a list."""
    fields = ("value", "error", "wasserstein", "lower", "upper", "ts", "actions", "optimality", "iterations")
    return {
        **{name: getattr(found, name) for name in fields},
        "path": found.clouds.points,
        "mass": jnp.exp(found.clouds.log_w[0]),
        "antipodal": found.antipodal,
        "ended": code_of(found.status),
    }
