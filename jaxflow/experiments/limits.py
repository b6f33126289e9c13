"""`kind = "limits"`: where does a cloud come to rest when its weights settle, and when they do not?

If ∫‖Ḋ‖dt < ∞ every ω-limit is a stationary point of the energy of the limiting heads (arXiv:2605.18870, §4). Every case
runs the same start under weights of its own; beside its balance of energy, clouds are held against the energy E_∞ of
the limiting heads, or, where there are none, of the mean of the heads over the second half of the run.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.integrate import trapezoid

from jaxflow.experiments import build, curves
from jaxflow.experiments.checks.regimes import key_of
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Limits
from jaxflow.experiments.tallies import each_outcome
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, head_speed, limit_of, stationarity
from jaxflow.weights import AbstractSchedule, Layer, make_layer

SPEEDS = 2001
"""Times at which ‖Ḋ‖ is integrated."""

LATE = 0.5
"""From this share of the run on it counts as late."""


def job(experiment: Limits, *, folder: Path, precision: str) -> "LimitsJob":
    """The job of a checked config. All cases draw their heads from the same stream: equal tables start equal."""
    key = curves.root(experiment.seed)
    cloud = curves.tokens(experiment.tokens, key, folder=folder, precision=precision)
    dim = cloud.points.shape[1]
    weights = [
        curves.schedule(case.weights, key, dim=dim, precision=precision, times=experiment.solve)
        for case in experiment.cases
    ]
    job = LimitsJob(experiment, cloud, weights)
    for each in weights:
        job.flow(each).check(cloud)
    return job


@dataclass(frozen=True)
class LimitsJob:
    """One case in a chunk."""

    experiment: Limits
    cloud: Cloud
    weights: list[AbstractSchedule]

    def flow(self, weights: AbstractSchedule) -> AttentionFlow:
        table = self.experiment.flow
        return AttentionFlow(weights, law=table.law, direction=table.direction)

    @cached_property
    def references(self) -> list[Layer]:
        """The limiting heads of every case, or the mean of its heads over the second half of the run."""
        return [limit_of(each) or self._mean(each) for each in self.weights]

    def _mean(self, weights: AbstractSchedule) -> Layer:
        t1 = self.experiment.solve.t1
        ts = np.linspace(LATE * t1, t1, SPEEDS)
        layers = jax.vmap(weights.at)(jnp.asarray(ts))
        assert layers.B is not None  # tied heads
        mean = trapezoid(np.asarray(layers.B), ts, axis=0) / (ts[-1] - ts[0])
        return make_layer(D=mean.astype(layers.B.dtype))

    def describe(self) -> dict[str, str]:
        n, d = self.cloud.points.shape
        cases = self.experiment.cases
        settle = [case.name for case, each in zip(cases, self.weights) if limit_of(each) is not None]
        return {
            "tokens": f"{n} in dimension {d}",
            "law": f"{self.experiment.flow.law}, {self.experiment.flow.direction}",
            "cases": ", ".join(case.name for case in cases),
            "settling": ", ".join(settle) or "none",
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done = int(state["done"])
        weights, reference = self.weights[done], self.references[done]
        flow = self.flow(weights)
        sol = curves.follow(flow, self.cloud, curves.static(build.solve_options(self.experiment.solve)), balance)
        energy, upper = _against(flow, reference, sol.states)
        report = sol.observables
        fine = jnp.linspace(0.0, self.experiment.solve.t1, SPEEDS)
        speed = np.asarray(head_speed(weights, fine))
        state = {**state, "done": np.array(done + 1), "ts": np.asarray(sol.ts), "speed_ts": np.asarray(fine)}
        state = curves.appended(
            state,
            outcome=each_outcome(sol.status)[0],
            points=sol.states.points,
            energy=report.energy,
            slope=report.slope,
            rate=report.rate,
            upper=report.upper,
            residual=report.residual,
            limit_energy=energy,
            limit_upper=upper,
            speed=speed,
        )
        metrics = {"case": float(done), "slope": float(report.slope[-1])}
        return state, Progress(done + 1, len(self.weights), "cases", metrics)

    def finish(self, state: State) -> Run:
        ts, cases = state["ts"], self.experiment.cases
        late = ts >= LATE * ts[-1]
        summary: dict[str, Any] = {**curves.verdict(state["outcome"]), "cases": [case.name for case in cases]}
        for index, (case, weights) in enumerate(zip(cases, self.weights)):
            row = {name: x[index] for name, x in state.items() if name not in ("done", "ts", "speed_ts", "outcome")}
            limit = limit_of(weights)
            at_rest = row["limit_upper"][-1] <= self.experiment.tolerance * row["limit_energy"][-1]
            found = {
                "settles": limit is not None,
                "path_length": float(trapezoid(row["speed"], state["speed_ts"])),
                "speed_final": float(row["speed"][-1]),
                "slope_final": float(row["slope"][-1]),
                "slope_late": float(row["slope"][late].max()),
                "rate_final": float(row["rate"][-1]),
                "energy_final": float(row["energy"][-1]),
                "energy_swing": float(np.ptp(row["energy"][late])),
                "limit_energy": float(row["limit_energy"][-1]),
                "stationarity": float(row["limit_upper"][-1]),
                "stationary": bool(at_rest),
                "balance_residual": float(row["residual"][-1]),
            }
            summary |= {f"{key_of(case.name)}_{name}": value for name, value in found.items()}
        arrays = {name: x for name, x in state.items() if name not in ("done", "outcome")}
        arrays["settles"] = np.array([limit_of(each) is not None for each in self.weights])
        return Run(summary, arrays)


@eqx.filter_jit
def _against(flow: AttentionFlow, layer: Layer, curve: Cloud) -> tuple[Array, Array]:
    """E and |∂E|² under the heads of `layer`, along a curve."""
    return jax.vmap(lambda cloud: stationarity(flow, cloud, layer))(curve)
