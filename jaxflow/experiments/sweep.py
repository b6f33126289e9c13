"""How does a run depend on the number of heads? The same run with each number, one after the other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from jaxflow.experiments.job import Job, Progress, Run, State
from jaxflow.experiments.schema import Particles
from jaxflow.experiments.schema.weights import OrnsteinUhlenbeck, head_counts, with_heads
from jaxflow.experiments.tallies import BURN_IN, OUTCOMES
from jaxflow.particles import OrnsteinUhlenbeckLimit, uniform_energy
from jaxflow.solve.solution import ADVICE

COMMON = ("paths", "steps")
"""Keys of the summary that are the same for every number of heads."""


def members(experiment: Particles) -> dict[int, Particles]:
    """The runs of a sweep by their number of heads. They share seed, tokens and everything else."""
    counts = head_counts(experiment.weights)
    assert counts is not None
    return {heads: replace(experiment, weights=with_heads(experiment.weights, heads)) for heads in counts}


@dataclass(frozen=True)
class SweepJob:
    """Runs one after the other; what a run has left is kept under its number of heads."""

    experiment: Particles
    runs: dict[int, Job]

    def describe(self) -> dict[str, str]:
        first, *_ = each = [run.describe() for run in self.runs.values()]
        joined = {name: "; ".join(dict.fromkeys(said[name] for said in each)) for name in first}
        return {**joined, "heads": f"{', '.join(map(str, self.runs))}: one run each"}

    def begin(self) -> State:
        # All of them begin here, so that none refuses when others have already run.
        states = {heads: run.begin() for heads, run in self.runs.items()}
        return {"run": np.array(0), **{_key(heads, name): x for heads, s in states.items() for name, x in s.items()}}

    def advance(self, state: State) -> tuple[State, Progress]:
        at = int(state["run"])
        heads, run = list(self.runs.items())[at]
        inner, progress = run.advance(_part(state, heads))
        done = progress.done == progress.total
        state = {name: x for name, x in state.items() if not name.startswith(_key(heads, ""))}
        state |= {_key(heads, name): x for name, x in inner.items()}
        state["run"] = np.array(at + done)
        total = progress.total
        metrics = {"heads": float(heads), **progress.metrics}
        return state, Progress(at * total + progress.done, len(self.runs) * total, progress.unit, metrics)

    def finish(self, state: State) -> Run:
        found = {heads: run.finish(_part(state, heads)) for heads, run in self.runs.items()}
        first, *_ = found.values()
        arrays = {name: np.stack([run.arrays[name] for run in found.values()]) for name in first.arrays}
        arrays["ts"] = first.arrays["ts"]
        arrays["heads"] = np.array(list(found))
        summary = _summary(self.experiment, {heads: run.summary for heads, run in found.items()})
        floor = energy_floor(self.experiment, dim=arrays["points"].shape[-1], t=float(np.min(summary["t_final"])))
        return Run({**summary, "energy_floor": floor}, arrays)


def _key(heads: int, name: str) -> str:
    return f"{heads} heads: {name}"


def _part(state: State, heads: int) -> State:
    prefix = _key(heads, "")
    return {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}


def _summary(experiment: Particles, each: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Every key a list with an entry for each number of heads, and how G² and R depend on it."""
    first, *_ = summaries = list(each.values())
    outcome = max((summary["status"] for summary in summaries), key=OUTCOMES.index)
    summary: dict[str, Any] = {"status": outcome, "heads": list(each)}
    for name in first:
        values = [summary.get(name) for summary in summaries]
        if name not in ("status", "advice"):
            summary[name] = values[0] if name in COMMON or all(value is None for value in values) else values
    for name in ("slope", "rate"):
        mean, std = summary[f"{name}_mean"], summary.get(f"{name}_mean_std")
        summary[f"{name}_exponent"], summary[f"{name}_exponent_std"] = fit_exponent(
            list(each), mean, std, paths=experiment.paths
        )
    summary["burn_in"] = BURN_IN
    if outcome in ADVICE:
        summary["advice"] = ADVICE[outcome]
    return summary


def fit_exponent(
    heads: list[int], means: list[float] | None, stds: list[float] | None, *, paths: int
) -> tuple[float | None, float | None]:
    """The p of mean ∝ Hᵖ, by least squares in log H and log mean, and its standard error from the spread over paths.

    p = Σ_H k_H log mean_H with k_H = (log H − average)/Σ(log H − average)²; runs are independent and the error of a log
    mean is std/(mean √paths) to first order, so that var p = Σ k_H² std_H²/(mean_H² paths). That the law is no power is
    not part of it. (None, None) where a mean is not positive; no error for one path.
    """
    if means is None or min(means) <= 0:
        return None, None
    x = np.log(heads)
    k = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    p = float(k @ np.log(means))
    if stds is None:
        return p, None
    return p, float(np.sqrt(np.sum((k * np.array(stds) / np.array(means)) ** 2) / paths))


def energy_floor(experiment: Particles, *, dim: int, t: float) -> float | None:
    """The energy of the uniform measure under infinitely many heads, where there is a closed form; else None."""
    weights, flow = experiment.weights, experiment.flow
    if not isinstance(weights, OrnsteinUhlenbeck) or not weights.noise_var or weights.mean is not None:
        return None
    if flow.direction != "descend" or flow.geometry != "sphere" or weights.A is not None or weights.b is not None:
        return None
    return float(uniform_energy(OrnsteinUhlenbeckLimit(noise_var=weights.noise_var), dim=dim, t=t))
