"""What is said of a density's run at its end? Energy, mass, positivity, growth rates; clouds, and their rate in n."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

from jaxflow.errors import InputError
from jaxflow.experiments.job import Run, State
from jaxflow.experiments.schema import MeanField
from jaxflow.experiments.sweep import fit_exponent
from jaxflow.experiments.tallies import OUTCOMES
from jaxflow.meanfield import (
    Density,
    DensityBalance,
    DensityFlow,
    InfiniteDensityFlow,
    fastest_mode,
    growth_rates,
    sampling_distance,
)
from jaxflow.meanfield.waves import waves
from jaxflow.particles import uniform_energy
from jaxflow.solve.solution import ADVICE

RATES = 12
"""Growth rates of degrees 1 to at most this one are reported."""

LAST = {
    "energy_final": "energy",
    "rate_integral": "rate_integral",
    "slope_integral": "slope_integral",
    "dt_energy_integral": "dt_energy_integral",
    "deficit": "deficit",
    "martingale": "martingale",
    "balance_residual": "residual",
    "slope_balance_residual": "slope_residual",
    "rate_final": "rate",
}
ARRAYS = ("energy", "rate", "slope", "upper", *(name for name in LAST.values() if name not in ("energy", "rate")))


def summarise(
    experiment: MeanField, flow: DensityFlow | InfiniteDensityFlow, state: State, report: DensityBalance | None
) -> Run:
    """The Run of a finished density.

    Args:
        state: `ts` (t,), `coefficients` (t, K), `valid` (t,), `final` (K,), `outcome` (1,), `t_end`, `steps`,
            `distances` of the clouds, repeats of one n side by side.
        report: the balance, or None where it has no meaning; its keys are null then.
    """
    valid, outcome = state["valid"], OUTCOMES[int(np.max(state["outcome"]))]
    dim = flow.dim if isinstance(flow, InfiniteDensityFlow) else flow.weights.at(0.0).dim
    c, ts = state["coefficients"][valid], state["ts"][valid]
    densities, final = Density(jnp.asarray(c), dim), Density(jnp.asarray(state["final"]), dim)
    lowest = np.array([_range(row, dim) for row in c])
    arrays: dict[str, np.ndarray] = {"ts": ts, "coefficients": c, "final_coefficients": state["final"]}
    arrays |= {"dim": np.array(dim), "least": lowest[:, 0], "largest": lowest[:, 1]}
    arrays["power"] = np.asarray(densities.power)
    summary: dict[str, Any] = {"status": outcome, "t_final": float(state["t_end"])}
    summary |= dict.fromkeys(("energy_initial", *LAST))
    if report is not None:
        arrays |= {name: np.asarray(getattr(report, name))[valid][None] for name in ARRAYS}
        summary["energy_initial"] = float(report.energy[0])
        last = int(np.flatnonzero(valid)[-1])
        summary |= {key: float(getattr(report, name)[last]) for key, name in LAST.items()}
    summary["energy_floor"] = _floor(flow, float(state["t_end"]))
    summary["mass_error"] = float(np.abs(np.asarray(densities.mass) - 1).max())
    summary["least"], summary["largest"] = float(lowest[:, 0].min()), float(lowest[-1, 1])
    summary["order"] = float(jnp.linalg.norm(final.mean))
    summary["peaks"] = count_peaks(final)
    summary["resolution"] = float(np.sqrt(final.power[-1] / final.power[0]))
    rates = _rates(experiment, flow)
    summary["growth_rates"] = None if rates is None else [float(x) for x in rates[1 : RATES + 1]]
    summary["fastest_mode"] = None if rates is None else fastest_mode(rates)
    facts = {name: int(value) for name, value in flow.facts(final).items()}
    summary |= {"degree": final.degree, **facts, "steps": int(np.max(state["steps"]))}
    _add_clouds(experiment, state, final, summary, arrays)
    if outcome in ADVICE:
        summary["advice"] = ADVICE[outcome]
    return Run(summary, arrays)


def _range(c: np.ndarray, dim: int) -> tuple[float, float]:
    """Smallest and largest value on a grid of twice the degree."""
    F = _values(Density(jnp.asarray(c), dim))[1]
    return float(F.min()), float(F.max())


def _values(density: Density) -> tuple[np.ndarray, np.ndarray]:
    """Points of a grid of twice the degree, and ρ there."""
    W = waves(density.dim, density.degree, max(2 * density.degree, 8))
    return W.points, np.asarray(W.values(density.coefficients))


def count_peaks(density: Density) -> int:
    """How many points of a grid are higher than all around them and a hundredth above the mean: 0 if ρ is uniform."""
    points, F = _values(density)
    near = 2.2 * np.pi / max(2 * density.degree, 8)
    groups = KDTree(points).query_ball_point(points, near)
    highest = np.array([group[int(np.argmax(F[group]))] for group in groups])
    high = 1.01 / (2 * np.pi * (density.dim - 1)) < F
    return int(np.sum(high & (highest == np.arange(len(F)))))


def _floor(flow: Any, t: float) -> float | None:
    """The least energy of infinitely many heads that descend."""
    if not isinstance(flow, InfiniteDensityFlow) or flow.direction != "descend":
        return None
    return float(uniform_energy(flow.kernel, dim=flow.dim, t=t))


def _rates(experiment: MeanField, flow: Any) -> np.ndarray | None:
    """Growth rates of the first layer about the uniform density, where there is a closed form."""
    options: dict[str, Any] = {"direction": flow.direction, "kappa": experiment.flow.kappa}
    degree = experiment.density.degree
    try:
        if isinstance(flow, InfiniteDensityFlow):
            return growth_rates(flow.kernel, dim=flow.dim, degree=degree, law="unnormalized", **options)
        return growth_rates(flow.weights.at(0.0), degree=degree, law=flow.law, **options)
    except InputError:
        return None


def _add_clouds(
    experiment: MeanField, state: State, final: Density, summary: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Distances of the clouds, those of independent samples of the end, and the exponent of n."""
    table = experiment.clouds
    if not table.n or not len(state["distances"]):
        return
    found = state["distances"].reshape(len(table.n), table.repeats)
    sampling = [float(sampling_distance(final, n=n, degree=table.degree)) for n in table.n]
    arrays |= {"clouds": np.array(table.n), "distances": found, "sampling": np.array(sampling)}
    mean, std = found.mean(1), found.std(1, ddof=1)
    summary |= {"clouds": list(table.n), "distance": mean.tolist(), "distance_std": std.tolist()}
    summary["sampling_distance"] = sampling
    if len(table.n) > 1:
        p, error = fit_exponent(list(table.n), mean.tolist(), std.tolist(), paths=table.repeats)
        summary |= {"exponent": p, "exponent_std": error}
