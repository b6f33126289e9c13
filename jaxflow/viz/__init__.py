"""Pictures of flows: `figures` for a whole run, `plot_*(data, *, ax=None) -> Axes` for one's own figures."""

from jaxflow.viz.animate import animate_steering
from jaxflow.viz.balance import plot_balance, plot_residual
from jaxflow.viz.blocks import plot_depth
from jaxflow.viz.circle import plot_circle
from jaxflow.viz.closure import plot_departure, plot_gain
from jaxflow.viz.controls import plot_approach, plot_controls, plot_convergence
from jaxflow.viz.density import (
    plot_clouds,
    plot_density_circle,
    plot_density_globe,
    plot_density_strip,
    plot_extremes,
    plot_spectrum,
)
from jaxflow.viz.ellipses import plot_ellipse, plot_ellipses
from jaxflow.viz.energy import plot_dissipation, plot_energy
from jaxflow.viz.globe import plot_globe
from jaxflow.viz.jko import plot_movements
from jaxflow.viz.kinds import animations, figures
from jaxflow.viz.limits import plot_cases
from jaxflow.viz.line import plot_densities, plot_line_band
from jaxflow.viz.moments import plot_eigenvalues, plot_kappa, plot_moments
from jaxflow.viz.perturbation import plot_against_eps
from jaxflow.viz.phase import plot_boundary, plot_phase
from jaxflow.viz.powers import plot_power
from jaxflow.viz.pretrained import plot_departure_by_depth, plot_heads, plot_prediction, plot_spectra
from jaxflow.viz.snapshots import plot_cloud, plot_positions
from jaxflow.viz.stability import plot_parting, plot_rates
from jaxflow.viz.steering import plot_steering
from jaxflow.viz.token_steering import plot_token_convergence, plot_token_steering
from jaxflow.viz.transport import plot_bounds, plot_paths, plot_refinement

__all__ = [
    "animate_steering",
    "animations",
    "figures",
    "plot_against_eps",
    "plot_approach",
    "plot_balance",
    "plot_boundary",
    "plot_bounds",
    "plot_cases",
    "plot_circle",
    "plot_cloud",
    "plot_clouds",
    "plot_controls",
    "plot_convergence",
    "plot_densities",
    "plot_density_circle",
    "plot_density_globe",
    "plot_density_strip",
    "plot_departure",
    "plot_departure_by_depth",
    "plot_depth",
    "plot_dissipation",
    "plot_eigenvalues",
    "plot_ellipse",
    "plot_ellipses",
    "plot_energy",
    "plot_extremes",
    "plot_gain",
    "plot_globe",
    "plot_heads",
    "plot_kappa",
    "plot_line_band",
    "plot_moments",
    "plot_movements",
    "plot_parting",
    "plot_paths",
    "plot_phase",
    "plot_positions",
    "plot_power",
    "plot_prediction",
    "plot_rates",
    "plot_refinement",
    "plot_residual",
    "plot_spectra",
    "plot_spectrum",
    "plot_steering",
    "plot_token_convergence",
    "plot_token_steering",
]
