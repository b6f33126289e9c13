"""`kind = "jko"`: minimising movements with ever smaller steps τ, beside the flow of steepest descent.

μ^{k+1} ∈ argmin E(ν, t_{k+1}) + W_{m,2}²(ν, μ^k; Θ_{t_k})/(2τ) (arXiv:2605.18870, §4) converges to the flow of the law
"steepest" with order 1: sup_k W₂(μ^k, μ(t_k)), the error of the last energy and the deficit of the energy–dissipation
equality against τ.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxflow.experiments import build, curves
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.powers import power_law
from jaxflow.experiments.schema import Movement
from jaxflow.experiments.tallies import each_outcome
from jaxflow.experiments.transport import NOT_CONVERGED
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance
from jaxflow.solve import Tsit5
from jaxflow.transport import jko, wasserstein_path
from jaxflow.transport.minimise import NAMES, code_of
from jaxflow.weights import AbstractSchedule

MAX_STEPS = 100_000
ADVICE = "a movement has no minimum to the tolerance: shorten scheme.tau, or lower the norms of the heads"


def job(experiment: Movement, *, folder: Path, precision: str) -> "MovementJob":
    """The job of a checked config."""
    key = curves.root(experiment.seed)
    cloud = curves.tokens(experiment.tokens, key, folder=folder, precision=precision)
    weights = build.schedule(experiment.weights, key, dim=cloud.points.shape[1], precision=precision)
    job = MovementJob(experiment, cloud, weights)
    job.flow.check(cloud)
    return job


@dataclass(frozen=True)
class MovementJob:
    """The flow, saved at the times of all schemes, then the longest step, the next one, and so on."""

    experiment: Movement
    cloud: Cloud
    weights: AbstractSchedule

    @property
    def flow(self) -> AttentionFlow:
        return AttentionFlow(self.weights, law="steepest", direction=self.experiment.scheme.direction)

    @property
    def taus(self) -> list[float]:
        """The steps, longest first."""
        return self.experiment.scheme.tau[::-1]

    def times(self, tau: float) -> np.ndarray:
        """t_0, …, t_K of the scheme with this step."""
        t1 = self.experiment.scheme.t1
        return np.linspace(0.0, t1, max(1, math.ceil(t1 / tau - 1e-9)) + 1)

    @cached_property
    def saved(self) -> np.ndarray:
        """The times of all schemes, those that differ by rounding once."""
        every = np.unique(np.concatenate([self.times(tau) for tau in self.taus]))
        return every[np.append(True, np.diff(every) > 1e-9)]

    def describe(self) -> dict[str, str]:
        n, d = self.cloud.points.shape
        scheme = self.experiment.scheme
        return {
            "tokens": f"{n} in dimension {d}",
            "heads": str(self.weights.at(0.0).heads),
            "scheme": f"{scheme.mobility} mobility, {scheme.direction}, to t = {scheme.t1:g}",
            "steps": ", ".join(str(len(self.times(tau)) - 1) for tau in self.taus),
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done = int(state["done"])
        state = {**state, "done": np.array(done + 1)}
        state, metrics = self._follow(state) if done == 0 else self._move(state, self.taus[done - 1])
        return state, Progress(done + 1, 1 + len(self.taus), "runs", metrics)

    def _follow(self, state: State) -> tuple[State, dict[str, float]]:
        """The flow that all schemes are held against."""
        scheme = self.experiment.scheme
        options: dict[str, Any] = {"t1": scheme.t1, "method": Tsit5(), "rtol": scheme.rtol, "atol": scheme.rtol}
        options |= {"save_at": self.saved.tolist(), "max_steps": MAX_STEPS}
        sol = curves.follow(self.flow, self.cloud, curves.static(options), balance)
        state = {**state, "ts": self.saved, "points": np.asarray(sol.states.points)}
        state |= {"energy": np.asarray(sol.observables.energy), "outcome": each_outcome(sol.status)}
        return state, {"t": float(sol.t_end), "energy": float(state["energy"][-1])}

    def _move(self, state: State, tau: float) -> tuple[State, dict[str, float]]:
        """One scheme; its length is its own, so that its arrays are kept under its step."""
        scheme = self.experiment.scheme
        found = _movement(self.cloud, self.weights, tau, scheme.t1, scheme.mobility, scheme.direction)
        at = np.abs(state["ts"][None] - np.asarray(found.ts)[:, None]).argmin(1)
        flow = curves.curves(state["points"][at], self.cloud)
        errors = wasserstein_path(found.clouds, flow, geometry=Sphere())
        name = f"{tau:g}"
        state |= {f"ts_{name}": np.asarray(found.ts), f"energy_{name}": np.asarray(found.energies)}
        state |= {f"error_{name}": errors, f"points_{name}": np.asarray(found.clouds.points[-1])}
        energy = float(found.energies[-1] - state["energy"][-1])
        state = curves.appended(
            state,
            error=errors.max(),
            energy_error=abs(energy),
            deficit=abs(float(found.deficit[-1])),
            slack=float(found.slack.min()),
            rise=float(jnp.max(jnp.diff(found.energies))),
            ended=int(code_of(found.status)),
            iterations=int(found.iterations.sum()),
        )
        return state, {"tau": tau, "w2": float(errors.max()), "energy": float(found.energies[-1])}

    def finish(self, state: State) -> Run:
        taus = np.array([self.experiment.scheme.t1 / (len(self.times(tau)) - 1) for tau in self.taus])
        ended = NAMES[int(state["ended"].max())]
        summary: dict[str, Any] = curves.verdict(state["outcome"])
        if summary["status"] == "done" and ended != "optimal":
            summary = {"status": NOT_CONVERGED, "advice": ADVICE}
        summary |= {"stop": ended, "tau": taus.tolist()}
        for name in ("error", "energy_error", "deficit"):
            summary[name] = state[name].tolist()
            summary[f"{name}_slope"], summary[f"{name}_slope_std"] = power_law(taus, state[name])
        summary |= {
            "energy_initial": float(state["energy"][0]),
            "energy_final": float(state["energy"][-1]),
            "least_slack": float(state["slack"].min()),
            "largest_rise": float(state["rise"].max()),
            "iterations": state["iterations"].tolist(),
        }
        kept = ("ts", "points", "energy", "error", "energy_error", "deficit")
        arrays = {name: x for name, x in state.items() if name.startswith((*(f"{k}_" for k in kept), *kept))}
        return Run(summary, {**arrays, "tau": taus})


@eqx.filter_jit
def _movement(cloud: Cloud, weights: AbstractSchedule, tau: float, t1: float, mobility: Any, direction: Any) -> Any:
    return jko(cloud, weights, tau=tau, t1=t1, mobility=mobility, direction=direction)
