"""What is said of perturbed runs at their end? Distances, energies and minimisers against ε, with powers and bounds."""

from typing import Any

import jax
import numpy as np

from jaxflow.experiments import curves
from jaxflow.experiments.job import Run, State
from jaxflow.experiments.powers import power_law
from jaxflow.experiments.schema import Perturbation
from jaxflow.particles import energy_gap_bound, perturbation_bound

SLACK = 1e-9
"""Relative excess over a bound that counts as rounding."""

ROUNDING = 100
"""Absolute excess over a bound, in units of rounding, that counts as rounding."""

FAMILIES = ("shift", "decay")
"""D + εS and (1 − ε)D."""


def summarise(experiment: Perturbation, state: State, *, norm: float, change: float, S: np.ndarray) -> Run:
    """The Run of all members.

    Args:
        state: `ts` (t,), `points` (t, n, d) without perturbation; `w2` and `gap` (m, t), m = 1 + 2k members, ε = 0
            first, then k shifts and k decays; `outcome`; and where minima were asked for `minimiser` (m, n, d),
            `minimum_energy`, `minimum_upper`, `minimum_w2` (m,).
        norm: R. change: ‖S‖.
    """
    eps, ts = np.array(experiment.perturbation.eps), state["ts"]
    k, law = len(eps), experiment.flow.law
    rows = {"shift": slice(1, 1 + k), "decay": slice(1 + k, 1 + 2 * k)}
    changes = {"shift": change * eps, "decay": norm * eps}
    found: dict[str, Any] = {}
    arrays = {"eps": eps, "ts": ts, "points": state["points"], "S": S}
    rounding = ROUNDING * float(np.finfo(state["points"].dtype).eps)
    violations, reach_of = 0, jax.vmap(lambda R, c, t: perturbation_bound(R, c, t, law=law))
    for family in FAMILIES:
        w2, gap = (state[name][rows[family]] for name in ("w2", "gap"))
        larger = np.full(k, norm) + (changes[family] if family == "shift" else 0.0)
        reach = np.asarray([reach_of(*np.broadcast_arrays(R, c, ts)) for R, c in zip(larger, changes[family])])
        allowed = np.array([float(energy_gap_bound(norm, c)) for c in changes[family]])
        violations += int(np.sum(w2 > reach * (1 + SLACK) + rounding))
        violations += int(np.sum(gap > allowed[:, None] * (1 + SLACK) + rounding))
        mine = {"w2": w2.max(1), "w2_bound": reach[:, -1], "energy_gap": gap.max(1), "energy_gap_bound": allowed}
        if "minimiser" in state:
            energy = state["minimum_energy"][rows[family]]
            mine |= {"minimum_gap": np.abs(energy - state["minimum_energy"][0])}
            mine |= {"minimum_energy": energy, "minimum_w2": state["minimum_w2"][rows[family]]}
        for name, values in mine.items():
            found[f"{family}_{name}"] = [float(x) if np.isfinite(x) else None for x in values]
            arrays[f"{family}_{name}"] = values
            if not name.endswith(("_bound", "minimum_energy")):
                found[f"{family}_{name}_slope"], found[f"{family}_{name}_slope_std"] = power_law(eps, values)
        arrays[f"{family}_w2_path"] = w2
    summary = {
        **curves.verdict(state["outcome"], violations=violations),
        "eps": eps.tolist(),
        "norm": norm,
        "change": change,
        "violations": violations,
        **found,
    }
    if "minimiser" in state:
        upper = state["minimum_upper"]
        summary |= {"minimum_energy": float(state["minimum_energy"][0]), "minimum_stationarity": float(upper.max())}
        arrays |= {"minimiser": state["minimiser"], "minimum_upper": upper}
    return Run(summary, arrays)
