"""How far do finitely many tokens follow the moments? The gain of attention and W₂ at t1, against its strength κ."""

import re

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.bands import plot_band, plot_positive_band
from jaxflow.viz.style import (
    BLUE,
    CYAN,
    GREEN,
    GREY,
    HALO,
    INK,
    NOTE,
    OCHRE,
    PURPLE,
    ROSE,
    axes_or_new,
    label_ends,
    new_figure,
)

TOKENS, NODES = (CYAN, BLUE, PURPLE), (GREEN, OCHRE, ROSE)


def plot_gain(
    kappa: Float[np.ndarray, " k"],
    gains: dict[str, Float[np.ndarray, "k p"]],
    *,
    ax: Axes | None = None,
    label: bool = True,
) -> Axes:
    """The measured over the ideal gain of attention for each cloud, mean ± one standard deviation; ideal is 1."""
    ax = axes_or_new(ax)
    ax.axhline(1, color=INK, linewidth=0.9, alpha=0.5)
    ends = []
    for name, (color, text) in _clouds(gains).items():
        plot_band(kappa, gains[name].T, color=color, ax=ax)
        ends.append((float(gains[name][-1].mean()), text, color))
    lowest = min(float(np.min(x)) for x in gains.values())
    ax.set_ylim(bottom=max(0.0, min(0.5, lowest - 0.1)), top=1.15)
    _strength_axis(ax, kappa)
    ax.set_title("Gain of attention, over that of infinitely many tokens")
    if label:
        label_ends(ax, ends)
    return ax


def plot_departure(
    kappa: Float[np.ndarray, " k"],
    distances: dict[str, Float[np.ndarray, "k p"]],
    *,
    ax: Axes | None = None,
) -> Axes:
    """W₂ between the moments of the tokens and the moment flow at t1, on a log axis down to that of random tokens."""
    ax = axes_or_new(ax)
    ends, shown = [], []
    for name, (color, text) in _clouds(distances).items():
        kept = np.isfinite(distances[name]).all(axis=1)
        if not kept.any():
            continue
        plot_positive_band(kappa[kept], distances[name][kept].T, color=color, ax=ax)
        means = distances[name][kept].mean(axis=1)
        ends.append((float(means[-1]), text, color))
        shown += [] if name.startswith("nodes") else means[means > 0].tolist()
    if shown:
        ax.set_ylim(bottom=min(shown) / 3)
    _strength_axis(ax, kappa)
    ax.set_title("$W_2$ to the moment flow at $t_1$")
    label_ends(ax, ends)
    return ax


def closure(arrays: dict[str, np.ndarray]) -> Figure:
    """The gain on the left, the distance on the right; both name their curves."""
    figure = new_figure(4.6, width=11.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    gains, distances = (
        {key.removeprefix(prefix): x for key, x in arrays.items() if key.startswith(prefix)}
        for prefix in ("gain_", "w2_")
    )
    plot_gain(arrays["kappa"], gains, ax=left)
    plot_departure(arrays["kappa"], distances, ax=right)
    left.annotate(
        "closure holds\nbelow about 1", (1, 0.04), xycoords=left.get_xaxis_transform(), xytext=(6, 0),
        textcoords="offset points", color=GREY, fontsize=NOTE, va="bottom", path_effects=HALO,
    )  # fmt: skip
    return figure


def _clouds(values: dict[str, np.ndarray]) -> dict[str, tuple[str, str]]:
    """The colour and the words of each cloud: blues for random tokens, green for Gauss–Hermite nodes."""
    found = {}
    for nodes, colors in ((False, TOKENS), (True, NODES)):
        names = [name for name in values if name.startswith("nodes") == nodes]
        for i, name in enumerate(names):
            size = re.sub(r"\D", "", name)
            found[name] = (colors[i % len(colors)], f"{size} nodes/axis" if nodes else f"$n$ = {size}")
    return found


def _strength_axis(ax: Axes, kappa: np.ndarray) -> None:
    ax.axvline(1, color=GREY, linestyle=(0, (4, 3)), linewidth=1.1)
    ax.set_xlim(0, kappa[-1] if kappa[-1] > 1 else 1.1)
    ax.set_xlabel(r"strength $\kappa_{\mathrm{eff}}$ at the start")
