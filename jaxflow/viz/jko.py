"""Do minimising movements meet the flow? Their energies beside it, and their errors against the step."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from jaxflow.viz.powers import plot_power
from jaxflow.viz.style import BLUE, GREEN, INK, NOTE, ROSE, TIME, axes_or_new, new_figure, time_axis


def plot_movements(arrays: dict[str, np.ndarray], *, ax: Axes | None = None) -> Axes:
    """E(μ^k) of every step τ as stairs of points, over the energy of the flow."""
    ax = axes_or_new(ax)
    names = sorted((key.removeprefix("ts_") for key in arrays if key.startswith("ts_")), key=float)
    for name, shade in zip(names, np.linspace(0.0, 0.92, len(names))):
        ts, energy = arrays[f"ts_{name}"], arrays[f"energy_{name}"]
        size = float(np.clip(60 / len(ts), 1.5, 5))
        ax.plot(ts, energy, "o-", color=to_hex(TIME(shade)), markersize=size, linewidth=0.9, label=rf"$\tau={name}$")
    ax.plot(arrays["ts"], arrays["energy"], color=INK, linewidth=1.6, label="flow", zorder=1)
    time_axis(ax, arrays["ts"])
    ax.set_title(r"Energy $E(\mu^k)$")
    ax.legend(loc="best", fontsize=NOTE)
    return ax


def jko(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The energies on the left, the errors on the right."""
    figure = new_figure(4.8, width=12.0)
    left, right = figure.subplots(1, 2)
    plot_movements(arrays, ax=left)
    order = np.argsort(arrays["tau"])
    shown = (
        ("error", r"$\sup_k W_2(\mu^k,\mu(t_k))$", BLUE, "o"),
        ("deficit", "deficit of energy and dissipation", ROSE, "s"),
        ("energy_error", r"$|E(\mu^K)-E(\mu(t_1))|$", GREEN, "^"),
    )
    for key, name, color, marker in shown:
        slope, error = summary[f"{key}_slope"], summary[f"{key}_slope_std"]
        x, y = arrays["tau"][order], arrays[key][order]
        plot_power(x, y, slope=slope, error=error, name=name, color=color, marker=marker, ax=right)
    right.set_xlabel(r"step $\tau$")
    right.set_title("Errors, and their powers of the step")
    right.legend(loc="upper left", fontsize=NOTE, handlelength=1.2)
    low, high = right.get_ylim()
    right.set_ylim(low, high * (high / low) ** 0.25)
    return figure
