"""`kind = "stability"`: how fast do neighbouring clouds part under the same weights?

W₂(μ_t, ν_t) ≤ e^{Lt} W₂(μ₀, ν₀) (arXiv:2605.18870, §4), with L of `particles.lipschitz_bound`; rates log(W₂(t)/W₂(0))/t
from the start, and between saved times, to which the theorem applies as well.
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

from jaxflow.errors import InputError
from jaxflow.experiments import build, curves
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Stability
from jaxflow.experiments.tallies import each_outcome
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, lipschitz_bound, spreading_rate
from jaxflow.transport import wasserstein_path
from jaxflow.weights import largest_norm

ROUNDING = 500
"""Distances below so many units of rounding say nothing, nor do their rates of growth."""

SLACK = 1e-9
"""Relative excess over a bound that counts as rounding."""

LARGEST_EXPONENT = 700.0
"""e to more than this is no number."""

LARGEST_SPREADING = 600
"""Coordinates n·d up to which the largest rate of small displacements is computed, a matrix of that size a time."""


def job(experiment: Stability, *, folder: Path, precision: str) -> "StabilityJob":
    """The job of a checked config."""
    key = curves.root(experiment.seed)
    cloud = curves.tokens(experiment.tokens, key, folder=folder, precision=precision)
    dim = cloud.points.shape[1]
    weights = curves.schedule(experiment.weights, key, dim=dim, precision=precision, times=experiment.solve)
    flow = AttentionFlow(weights, law=experiment.flow.law, direction=experiment.flow.direction)
    flow.check(cloud)
    smallest = 10 * _rounding(cloud.points.dtype)
    for index, size in enumerate(experiment.neighbours.size):
        if size < smallest:
            raise InputError(
                "is too small to be told from rounding",
                where=f"neighbours.size[{index}]",
                got=size,
                expected=f"at least {smallest:.2g} in {precision}",
            )
    return StabilityJob(experiment, flow, cloud, key)


@dataclass(frozen=True)
class StabilityJob:
    """The cloud itself, then one neighbour in a chunk."""

    experiment: Stability
    flow: AttentionFlow
    cloud: Cloud
    key: Any

    @property
    def sizes(self) -> list[float]:
        """The size of the noise of every neighbour."""
        table = self.experiment.neighbours
        return [size for size in table.size for _ in range(table.repeats)]

    @cached_property
    def norm(self) -> float:
        """R, the largest ‖D_h(t)‖ of the run."""
        found = largest_norm(self.flow.weights, 0.0, self.experiment.solve.t1, times=curves.TIMES)
        assert found is not None  # tied heads
        return found

    @cached_property
    def bound(self) -> float:
        """L."""
        return float(lipschitz_bound(self.norm, law=self.flow.law))

    def describe(self) -> dict[str, str]:
        n, d = self.cloud.points.shape
        table = self.experiment.neighbours
        return {
            "tokens": f"{n} in dimension {d}",
            "heads": f"{self.flow.weights.at(0.0).heads}, of norm at most {self.norm:.4g}",
            "law": f"{self.flow.law}, {self.flow.direction}",
            "neighbours": f"{table.repeats} at each of {', '.join(f'{size:g}' for size in table.size)}",
            "bound": f"L = {self.bound:.4g}",
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done = int(state["done"])
        cloud = self.cloud if done == 0 else self._neighbour(done - 1)
        options = curves.static(build.solve_options(self.experiment.solve))
        sol = curves.follow(self.flow, cloud, options)
        points = np.asarray(sol.states.points)
        state = {**state, "done": np.array(done + 1)}
        state = curves.appended(state, outcome=each_outcome(sol.status)[0])
        if done == 0:
            state |= {"ts": np.asarray(sol.ts), "points": points}
            if points[0].size <= LARGEST_SPREADING:
                state["sharp"] = np.asarray(_spreading(self.flow, sol.ts, sol.states))
            metrics = {"t": float(sol.t_end)}
        else:
            base = curves.curves(state["points"], self.cloud)
            w2 = wasserstein_path(base, curves.curves(points, self.cloud), geometry=Sphere())
            state = curves.appended(state, w2=w2)
            metrics = {"size": self.sizes[done - 1], "growth": float(np.max(w2) / w2[0])}
        return state, Progress(done + 1, 1 + len(self.sizes), "clouds", metrics)

    def _neighbour(self, index: int) -> Cloud:
        """The cloud with every token moved along the sphere by normal noise of its own, or by that of all."""
        x, geometry = self.cloud.points, Sphere()
        key = jax.random.fold_in(build.stream(self.key, "noise"), index)
        shape = (1, x.shape[1]) if self.experiment.neighbours.together else x.shape
        step = self.sizes[index] * jnp.broadcast_to(jax.random.normal(key, shape, x.dtype), x.shape)
        return Cloud(geometry.retract(x + geometry.project(x, step)), self.cloud.log_weights)

    def finish(self, state: State) -> Run:
        ts, w2 = state["ts"], state["w2"]
        sharp = {name: state[name] for name in ("sharp",) if name in state}
        rounding, elapsed = _rounding(state["points"].dtype), ts - ts[0]
        ratio = w2 / w2[:, :1]
        seen = w2 > rounding
        grown = np.where(seen, np.log(np.where(seen, ratio, 1.0)), -np.inf)
        violations = int(np.sum(grown > self.bound * elapsed + SLACK + rounding / w2[:, :1]))
        both = seen[:, 1:] & seen[:, :-1]
        steps = np.log(np.where(both, w2[:, 1:], 1.0) / np.where(both, w2[:, :-1], 1.0)) / np.diff(ts)
        reach = self.bound * elapsed[-1]
        summary = {
            **curves.verdict(state["outcome"], violations=violations),
            "norm": self.norm,
            "bound": self.bound,
            "growth_rate": _largest(grown[:, 1:] / elapsed[1:]),
            "step_rate": _largest(np.where(both, steps, -np.inf)),
            "sharp_rate": float(np.max(state["sharp"])) if sharp else None,
            "growth": float(np.max(ratio)),
            "allowed": float(np.exp(reach)) if reach < LARGEST_EXPONENT else None,
            "violations": violations,
            "w2_initial": w2[:, 0].tolist(),
            "w2_final": w2[:, -1].tolist(),
            "size": self.sizes,
            "clouds": len(self.sizes),
        }
        arrays = {
            **sharp,
            "ts": ts,
            "points": state["points"],
            "w2": w2,
            "rates": np.where(both, steps, np.nan),
            "size": np.array(self.sizes),
        }
        return Run(summary, arrays)


@eqx.filter_jit
def _spreading(flow: AttentionFlow, ts: Array, curve: Cloud) -> Array:
    """The largest rate at which small displacements grow at every time, one time after the other."""
    return jax.lax.map(lambda moment: spreading_rate(flow, moment[1], flow.weights.at(moment[0])), (ts, curve))


def _rounding(dtype: Any) -> float:
    return ROUNDING * float(np.finfo(dtype).eps)


def _largest(rates: np.ndarray) -> float | None:
    """The largest rate; None where every distance is rounding."""
    top = float(np.max(rates, initial=-np.inf))
    return top if np.isfinite(top) else None
