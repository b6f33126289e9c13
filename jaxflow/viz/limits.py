"""Do tokens come to rest? Dissipation, energy, and how far clouds are from rest for the limiting energy."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.integrate import trapezoid

from jaxflow.viz.style import INK, NOTE, PALETTE, axes_or_new, label_ends, new_figure, time_axis

FLOOR = 1e-24
"""Squares of rounding: below this nothing is drawn."""


def plot_cases(
    ts: Float[np.ndarray, " t"],
    values: Float[np.ndarray, "k t"],
    names: list[str],
    *,
    log: bool = False,
    label: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One line for each case, on a log axis where it is above rounding."""
    ax = axes_or_new(ax)
    if log:
        ax.set_yscale("log")
    ends = []
    for row, name, color in zip(values, names, PALETTE * len(names)):
        shown = np.where(row > FLOOR, row, np.nan) if log else row
        ax.plot(ts, shown, color=color)
        if np.isfinite(shown).any():
            ends.append((float(shown[np.isfinite(shown)][-1]), name, color))
    time_axis(ax, ts)
    if label:
        label_ends(ax, ends)
    return ax


def limits(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """G², E with the energy of the limiting heads on the same clouds (dashed), and |∂E_∞|² of those heads."""
    ts, names = arrays["ts"], summary["cases"]
    figure = new_figure(4.4, width=14.0)
    left, middle, right = figure.subplots(1, 3)
    plot_cases(ts, arrays["slope"], names, log=True, label=False, ax=left)
    for row, speed, name, color in zip(arrays["rate"], arrays["speed"], names, PALETTE * len(names)):
        left.plot(ts, np.where(row > FLOOR, row, np.nan), color=INK, linewidth=0.8, linestyle=(0, (1, 1.5)))
        length = trapezoid(speed, arrays["speed_ts"])
        left.plot([], [], color=color, label=rf"{name}, $\int\|\dot D\|=${length:.3g}")
    left.legend(loc="lower left", fontsize=NOTE, handlelength=1.2)
    left.set_title("Dissipation: $G^2$, and $R$ (dotted)")
    plot_cases(ts, arrays["energy"], names, label=False, ax=middle)
    for row, color in zip(arrays["limit_energy"], PALETTE * len(names)):
        middle.plot(ts, row, color=color, linewidth=1.2, linestyle=(0, (4, 3)))
    middle.set_title(r"Energy $E$, and $E_\infty$ (dashed)")
    plot_cases(ts, arrays["limit_upper"], names, log=True, ax=right)
    right.set_title(r"$|\partial E_\infty|^2$: zero at rest")
    return figure
