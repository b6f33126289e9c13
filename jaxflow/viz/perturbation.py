"""What do nearby heads change? Clouds, energies and minimisers against the size of the perturbation."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.powers import plot_power
from jaxflow.viz.style import BLUE, NOTE, ROSE, axes_or_new, new_figure

FAMILIES = {"shift": (r"$D+\varepsilon S$", BLUE, "o"), "decay": (r"$(1-\varepsilon)D$", ROSE, "s")}

ROOM = 1e3
"""Bounds further above what they bound are left out."""


def plot_against_eps(
    arrays: dict[str, np.ndarray],
    summary: dict[str, Any],
    quantity: str,
    *,
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """One quantity of both families on log axes, with its bound where it has one."""
    ax = axes_or_new(ax)
    eps = arrays["eps"]
    for family, (name, color, marker) in FAMILIES.items():
        key = f"{family}_{quantity}"
        plot_power(
            eps,
            arrays[key],
            slope=summary[f"{key}_slope"],
            error=summary[f"{key}_slope_std"],
            name=name,
            color=color,
            marker=marker,
            ax=ax,
        )
        bound = arrays.get(f"{key}_bound")
        if bound is not None and np.all(bound < ROOM * arrays[key]):
            ax.plot(eps, bound, color=color, linewidth=1.3, linestyle=(0, (4, 3)))
    ax.set_xlabel(r"$\varepsilon$")
    ax.set_title(title)
    ax.legend(loc="upper left", fontsize=NOTE, handlelength=1.2)
    low, high = ax.get_ylim()
    # The legend stands above the points.
    ax.set_ylim(low, high * (high / low) ** 0.3)
    return ax


def perturbation(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """Clouds and energies; below, where minima were asked for, their values and their distances."""
    panels = [
        ("w2", r"$\sup_t\,W_2(\mu^\varepsilon_t,\mu_t)$"),
        ("energy_gap", r"$\sup\,|E^\varepsilon-E|$ on the clouds (dashed: bound)"),
    ]
    if "minimiser" in arrays:
        panels += [
            ("minimum_gap", r"$|\min E^\varepsilon-\min E|$"),
            ("minimum_w2", r"$W_2$ of the minimisers"),
        ]
    rows = len(panels) // 2
    figure = new_figure(3.9 * rows + 0.3, width=11.0)
    for ax, (quantity, title) in zip(figure.subplots(rows, 2, squeeze=False).flat, panels):
        plot_against_eps(arrays, summary, quantity, title=title, ax=ax)
    return figure
