"""What is said of an ensemble of clouds at its end? Means over paths, `_std` beside them, and the arrays."""

from typing import Any

import numpy as np

from jaxflow.experiments.job import Run, State
from jaxflow.experiments.schema import Particles
from jaxflow.particles import Balance, count_clusters
from jaxflow.solve import Status
from jaxflow.solve.solution import ADVICE

OUTCOMES = ("done", "blow_up", "max_steps", "nonfinite", "unresolved")
"""From best to worst: the status of a run is the worst of its paths."""

BURN_IN = 1 / 8
"""Fraction of the run left out of the time means of G² and R: 2.5 of 20, as in arXiv:2605.18870 §5."""


def each_outcome(status: Any) -> np.ndarray:
    """The place of every path's status in OUTCOMES."""
    values = [int(np.asarray(getattr(Status, name)._value)) for name in OUTCOMES]
    return np.array([values.index(int(v)) for v in np.atleast_1d(np.asarray(status._value))])


def summarise(experiment: Particles, state: State, report: Balance | None, *, kernel: str) -> Run:
    """The Run of finished paths.

    Args:
        state: `ts` (t,), `points` (t, n, d) of the first path, `final_points` (p, n, d); `outcome`, `t_end`,
            `steps` and `order` (p,).
        kernel: how attention was computed, in words.
        report: the balance with fields (p, t), or None where it has no meaning; its keys are null then.
    """
    outcome = OUTCOMES[int(np.max(state["outcome"]))]
    summary: dict[str, Any] = {"status": outcome, "t_final": float(np.min(state["t_end"]))}
    tally = _Tally(summary)
    ts, points, final = state["ts"], state["points"], state["final_points"]
    arrays = {"ts": ts, "points": points, "final_points": final}
    late = ts >= BURN_IN * ts[-1]
    found: dict[str, Any] = dict.fromkeys(BALANCE_KEYS)
    if report is not None:
        arrays |= {name: np.asarray(getattr(report, name)) for name in BALANCE_ARRAYS}
        a = arrays
        found = {
            "energy_initial": a["energy"][:, 0],
            "energy_final": a["energy"][:, -1],
            "rate_integral": a["rate_integral"][:, -1],
            "slope_integral": a["slope_integral"][:, -1],
            "dt_energy_integral": a["dt_energy_integral"][:, -1],
            "deficit": a["deficit"][:, -1],
            "martingale": a["martingale"][:, -1],
            "balance_residual": a["residual"][:, -1],
            "slope_balance_residual": a["slope_residual"][:, -1],
            "rate_final": a["rate"][:, -1],
            "slope_mean": a["slope"][:, late].mean(1),
            "rate_mean": a["rate"][:, late].mean(1),
        }
    for name, values in found.items():
        tally.add(name, values)
    on_sphere = experiment.flow.geometry == "sphere"
    norms = [np.linalg.norm(x, axis=-1) for x in (points, final)]
    summary["max_norm_error"] = float(max(np.abs(r - 1).max() for r in norms)) if on_sphere else None
    tally.add("clusters", np.array([count_clusters(x) for x in final], float))
    tally.add("order", state["order"])
    summary["paths"] = experiment.paths
    summary["steps"] = int(np.max(state["steps"]))
    summary["kernel"] = kernel
    if outcome in ADVICE:
        summary["advice"] = ADVICE[outcome]
    return Run(summary, arrays)


BALANCE_KEYS = (
    "energy_initial",
    "energy_final",
    "rate_integral",
    "slope_integral",
    "dt_energy_integral",
    "deficit",
    "martingale",
    "balance_residual",
    "slope_balance_residual",
    "rate_final",
    "slope_mean",
    "rate_mean",
)

BALANCE_ARRAYS = (
    "energy",
    "rate",
    "slope",
    "upper",
    "rate_integral",
    "slope_integral",
    "dt_energy_integral",
    "deficit",
    "martingale",
    "residual",
    "slope_residual",
)


class _Tally:
    """Writes the mean over paths into a summary, and the standard deviation beside it if there are several."""

    def __init__(self, summary: dict[str, Any]) -> None:
        self.summary = summary

    def add(self, name: str, values: np.ndarray | None) -> None:
        if values is None:
            self.summary[name] = None
            return
        mean = float(np.mean(values))
        self.summary[name] = int(mean) if name == "clusters" and len(values) == 1 else mean
        if len(values) > 1:
            self.summary[f"{name}_std"] = float(np.std(values, ddof=1))
