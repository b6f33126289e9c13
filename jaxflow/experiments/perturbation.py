"""`kind = "perturbation"`: what do slightly different heads change? D + εS, and weight decay (1 − ε)D, as ε → 0.

Three things are compared with ε = 0 (arXiv:2605.18870, §4): the clouds, sup_t W₂(μ^ε_t, μ_t) = O(ε); the energies,
|E^ε − E| ≤ ½e^R(e^{‖S‖ε} − 1) whatever the cloud; and the minimisers that Γ-convergence is about, found by a long run
of the law "steepest" under the heads of the end.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.experiments import build, curves
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.perturbation_report import FAMILIES, summarise
from jaxflow.experiments.schema import Perturbation
from jaxflow.experiments.tallies import each_outcome
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, stationarity
from jaxflow.solve import Tsit5
from jaxflow.transport import wasserstein_clouds, wasserstein_path
from jaxflow.weights import AbstractSchedule, Constant, Perturbed, largest_norm, random_heads

MAX_STEPS = 100_000


def job(experiment: Perturbation, *, folder: Path, precision: str) -> "PerturbationJob":
    """The job of a checked config."""
    key = curves.root(experiment.seed)
    cloud = curves.tokens(experiment.tokens, key, folder=folder, precision=precision)
    dim = cloud.points.shape[1]
    weights = curves.schedule(experiment.weights, key, dim=dim, precision=precision, times=experiment.solve)
    given, heads = experiment.perturbation.S, weights.at(0.0).heads
    if given is None:
        S = random_heads(build.stream(jax.random.fold_in(key, 1), "heads"), heads=heads, dim=dim)
        S = S / jnp.linalg.norm(S, 2, axis=(-2, -1))[:, None, None]
    else:
        S = jnp.broadcast_to(jnp.asarray(given, precision), (heads, dim, dim))
    job = PerturbationJob(experiment, cloud, weights, S)
    job.flow(0.0, "shift").check(cloud)
    return job


@dataclass(frozen=True)
class PerturbationJob:
    """ε = 0, then every ε of one family after the other, one in a chunk; each with its minimum, if one is asked for."""

    experiment: Perturbation
    cloud: Cloud
    weights: AbstractSchedule
    S: Float[Array, "h d d"]

    @property
    def members(self) -> list[tuple[str, float]]:
        """The perturbations in the order of the runs, that of size 0 first."""
        return [("shift", 0.0), *((family, eps) for family in FAMILIES for eps in self.experiment.perturbation.eps)]

    @property
    def norm(self) -> float:
        """R, the largest ‖D_h(t)‖ of the run without perturbation."""
        found = largest_norm(self.weights, 0.0, self.experiment.solve.t1, times=curves.TIMES)
        assert found is not None  # tied heads
        return found

    @property
    def change(self) -> float:
        """‖S‖."""
        return float(np.linalg.norm(np.asarray(self.S), 2, axis=(-2, -1)).max())

    def schedule(self, eps: float, family: str) -> Perturbed:
        """The weights of one member: numbers alone tell members apart, so that they share a program."""
        shift, decay = (eps, 0.0) if family == "shift" else (0.0, eps)
        return Perturbed(self.weights, shift=shift * self.S, decay=jnp.asarray(decay, self.S.dtype))

    def flow(self, eps: float, family: str) -> AttentionFlow:
        table = self.experiment.flow
        return AttentionFlow(self.schedule(eps, family), law=table.law, direction=table.direction)

    def describe(self) -> dict[str, str]:
        n, d = self.cloud.points.shape
        eps, minimum = self.experiment.perturbation.eps, self.experiment.minimum
        return {
            "tokens": f"{n} in dimension {d}",
            "heads": f"{self.S.shape[0]}, of norm at most {self.norm:.4g}; S of norm {self.change:.4g}",
            "law": f"{self.experiment.flow.law}, {self.experiment.flow.direction}",
            "eps": f"{len(eps)}, from {eps[0]:g} to {eps[-1]:g}, for D + εS and (1 − ε)D",
            "minimum": "not asked for" if minimum is None else f"steepest law to t = {minimum.t1:g}",
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done = int(state["done"])
        family, eps = self.members[done]
        options = curves.static(build.solve_options(self.experiment.solve))
        sol = curves.follow(self.flow(eps, family), self.cloud, options)
        points = np.asarray(sol.states.points)
        state = {**state, "done": np.array(done + 1)}
        if done == 0:
            state |= {"ts": np.asarray(sol.ts), "points": points}
        base, here = (curves.curves(x, self.cloud) for x in (state["points"], points))
        w2 = wasserstein_path(base, here, geometry=Sphere()) if done else np.zeros(len(sol.ts))
        gaps = [_energy_gaps(self.flow(eps, family), self.weights, sol.ts, curve) for curve in (base, here)]
        state = curves.appended(
            state, outcome=each_outcome(sol.status)[0], w2=w2, gap=np.max(np.abs(np.asarray(gaps)), axis=0)
        )
        metrics = {"eps": eps, "w2": float(w2.max())}
        if self.experiment.minimum is not None:
            state, found = self._minimise(state, family, eps)
            metrics |= found
        return state, Progress(done + 1, len(self.members), "runs", metrics)

    def _minimise(self, state: State, family: str, eps: float) -> tuple[State, dict[str, float]]:
        """Follow the steepest law for long, from the common start under the heads of the end."""
        minimum, end = self.experiment.minimum, self.schedule(eps, family).at(self.experiment.solve.t1)
        assert minimum is not None
        flow = AttentionFlow(Constant(D=end.B), law="steepest", direction=self.experiment.flow.direction)
        options: dict[str, Any] = {"t1": minimum.t1, "method": Tsit5(), "max_steps": MAX_STEPS}
        options |= {"rtol": minimum.rtol, "atol": minimum.rtol}
        sol = curves.follow(flow, self.cloud, curves.static(options))
        energy, upper = (float(x) for x in _at_rest(flow, sol.final))
        x = np.asarray(sol.final.points)
        first = jnp.asarray(state["minimiser"][0] if "minimiser" in state else x)
        distance = wasserstein_clouds(Cloud(first, self.cloud.log_weights), sol.final, geometry=Sphere())
        state = curves.appended(
            state,
            outcome=each_outcome(sol.status)[0],
            minimiser=x,
            minimum_energy=energy,
            minimum_upper=upper,
            minimum_w2=distance,
        )
        return state, {"minimum": energy}

    def finish(self, state: State) -> Run:
        return summarise(self.experiment, state, norm=self.norm, change=self.change, S=np.asarray(self.S))


@eqx.filter_jit
def _energy_gaps(flow: AttentionFlow, weights: AbstractSchedule, ts: Array, curve: Cloud) -> Array:
    """E^ε(μ_t) − E(μ_t) under the heads of the time t, (t,)."""

    def one(t: Array, cloud: Cloud) -> Array:
        return stationarity(flow, cloud, flow.weights.at(t))[0] - stationarity(flow, cloud, weights.at(t))[0]

    return jax.vmap(one)(ts, curve)


@eqx.filter_jit
def _at_rest(flow: AttentionFlow, cloud: Cloud) -> Any:
    return stationarity(flow, cloud, flow.weights.at(0.0))
