"""`kind = "moments"`: the mean and covariance of one Gaussian along a schedule of layers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from jaxflow.experiments import build
from jaxflow.experiments.forecast import forecast
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Moments
from jaxflow.gaussian import MomentFlow, moments
from jaxflow.measures import Gaussian
from jaxflow.solve import solve
from jaxflow.solve.solution import ADVICE

SETTLED = 1e-6
"""Below this relative rate of change of Σ per unit time, the covariance counts as settled."""


def job(experiment: Moments, *, folder: Path, precision: str) -> "MomentsJob":
    """The job of a checked config."""
    start = build.gaussian(experiment.start, where="start", folder=folder, precision=precision)
    key = jax.random.key(experiment.seed)
    weights = build.schedule(experiment.weights, key, dim=start.dim, precision=precision)
    noise = build.stream(key, "noise") if weights.random else None
    options = {**build.solve_options(experiment.solve), "key": noise, "observe": moments}
    return MomentsJob(MomentFlow(weights, experiment.flow.direction), start, options)


@dataclass(frozen=True)
class MomentsJob:
    """One solve, in one chunk: moments are cheap."""

    flow: MomentFlow
    start: Gaussian
    options: dict[str, Any]

    def describe(self) -> dict[str, str]:
        return {
            "dimension": str(self.start.dim),
            "rank": str(self.start.rank),
            "heads": str(self.flow.weights.at(0.0).heads),
            "method": type(self.options["method"]).__name__,
        }

    def begin(self) -> State:
        # Asking for the shapes raises what the flow refuses, before anything is written.
        eqx.filter_eval_shape(lambda flow, start: solve(flow, start, **self.options).status, self.flow, self.start)
        return {}

    def advance(self, state: State) -> tuple[State, Progress]:
        sol = eqx.filter_jit(lambda flow, start: solve(flow, start, **self.options))(self.flow, self.start)
        report = sol.observables
        _, terms = self.flow.field(sol.t_end, sol.final, self._last_layer())
        found = {
            "ts": sol.ts,
            "valid": sol.valid,
            "mean": sol.states.mean,
            "factor": sol.states.factor,
            "covariance": report.covariance,
            "eigenvalues": report.eigenvalues,
            "kappa": report.kappa,
            "rank": report.rank,
            "end.t": sol.t_end,
            "end.mean": sol.final.mean,
            "end.covariance": sol.final.covariance,
            "end.growth": terms.K @ sol.final.covariance + (terms.K @ sol.final.covariance).T,
            "end.outcome": np.array(OUTCOMES.index(sol.outcome)),
            "steps": sol.stats["steps"],
        }
        state = {name: np.asarray(value) for name, value in found.items()}
        metrics = {"t": float(sol.t_end), "trace": float(np.trace(state["end.covariance"]))}
        return state, Progress(1, 1, "solve", metrics)

    def _last_layer(self) -> Any:
        return self.flow.weights.at(float(self.options["t1"]))

    def finish(self, state: State) -> Run:
        outcome = OUTCOMES[int(state["end.outcome"])]
        blown_up = outcome == "blow_up"
        covariance, valid = state["end.covariance"], state["valid"]
        kappa = float(np.max(state["kappa"][valid])) if valid.any() else float(state["kappa"][0])
        summary: dict[str, Any] = {
            "status": outcome,
            "regime": regime(state, blown_up=blown_up),
            "blowup_time": float(state["end.t"]) if blown_up else None,
            "t_final": float(state["end.t"]),
            "mean": state["end.mean"].tolist(),
            "covariance": covariance.tolist(),
            "rank": int(state["rank"][valid][-1] if valid.any() else state["rank"][0]),
            "kappa_eff": kappa,
            "steps": int(state["steps"]),
        }
        summary |= forecast(self.flow, self.start)
        if kappa > 1:
            summary["warning"] = "kappa_eff exceeds 1: finitely many tokens lag behind these moments"
        if outcome in ADVICE:
            summary["advice"] = ADVICE[outcome]
        return Run(summary, {name: x for name, x in state.items() if not name.startswith("end.")})


OUTCOMES = ("done", "blow_up", "max_steps", "nonfinite")


def regime(state: State, *, blown_up: bool) -> str:
    """What the covariance was doing at the end: blow_up, settled, decaying, growing or moving."""
    if blown_up:
        return "blow_up"
    Sigma, dSigma = state["end.covariance"], state["end.growth"]
    size = np.linalg.norm(Sigma)
    if np.linalg.norm(dSigma) <= SETTLED * size:
        return "settled"
    eigenvalues = np.linalg.eigvalsh(dSigma)
    if eigenvalues[-1] <= 0:
        return "decaying"
    return "growing" if eigenvalues[0] >= 0 else "moving"
