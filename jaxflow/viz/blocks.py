"""What do residual blocks do to the covariance of tokens? Its trace and κ_eff after every block, beside the moments."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jaxflow.viz.style import (
    BLUE,
    CYAN,
    GREEN,
    GREY,
    INK,
    NOTE,
    OCHRE,
    PURPLE,
    ROSE,
    axes_or_new,
    label_ends,
    new_figure,
    tidy_log,
)

COLORS = (BLUE, GREEN, ROSE, PURPLE, OCHRE, CYAN)
DOTS = 33


def plot_depth(
    depth: np.ndarray,
    tokens: np.ndarray,
    blocks: np.ndarray,
    ode: np.ndarray,
    *,
    names: list[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One quantity (cases, blocks) of tokens (dots), of the block on moments (line) and of the equation (dashes).

    The axis is logarithmic; NaN where there is no value. `names` are written at the ends of the dots.
    """
    ax = axes_or_new(ax)
    ax.set_yscale("log")
    every = max(1, round(len(depth) / DOTS))
    ends = []
    for i in range(len(tokens)):
        color = COLORS[i % len(COLORS)]
        ax.plot(depth, blocks[i], color=color, linewidth=1.6)
        ax.plot(depth, ode[i], color=color, linewidth=1.3, linestyle=(0, (4, 2.5)), alpha=0.9)
        ax.plot(depth[::every], tokens[i, ::every], "o", color=color, markersize=4.2, markeredgecolor="white", mew=0.5)
        if names is not None:
            ends.append((float(tokens[i, -1]), names[i], color))
    shown = tokens[np.isfinite(tokens) & (tokens > 0)]
    ax.set_ylim(shown.min() / 1.8, shown.max() * 4)
    tidy_log(ax)
    ax.set_xlim(0, depth[-1])
    ax.set_xlabel("residual block")
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 4, 5, 10], integer=True))
    label_ends(ax, ends)
    return ax


def blocks(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The trace of the covariance on the left, κ_eff on the right."""
    figure = new_figure(4.8, width=11.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    depth = arrays["depth"]
    ways = ("tokens", "blocks", "ode")
    traces = [_reached(arrays, way, np.trace(arrays[f"{way}_covariance"], axis1=-2, axis2=-1)) for way in ways]
    plot_depth(depth, *traces, ax=left)
    left.set_title(r"tr $\Sigma$ of the tokens")
    plot_depth(
        depth, *(_reached(arrays, way, arrays[f"{way}_kappa"]) for way in ways), names=summary["cases"], ax=right
    )
    right.axhline(1, color=GREY, linestyle=(0, (1, 2)), linewidth=1.3)
    right.set_title(r"$\kappa_{\mathrm{eff}}$: closure holds below about 1")
    _mark_blowup(left, arrays["blowup_depth"])
    left.legend(
        handles=[
            Line2D([], [], color=INK, marker="o", linestyle="", markersize=4.2, label="tokens"),
            Line2D([], [], color=INK, linewidth=1.6, label="blocks on the Gaussian"),
            Line2D([], [], color=INK, linewidth=1.3, linestyle=(0, (4, 2.5)), label="moment equation"),
        ],
        loc="upper left",
    )
    return figure


def _reached(arrays: dict[str, np.ndarray], way: str, values: np.ndarray) -> np.ndarray:
    """The values, and NaN beyond a blow-up."""
    return values if way == "tokens" else np.where(arrays[f"{way}_valid"].astype(bool), values, np.nan)


def _mark_blowup(ax: Axes, depths: np.ndarray) -> None:
    """Where the moment equation blows up, in the colour of its case; NaN where it does not."""
    for i in np.flatnonzero(np.isfinite(depths)):
        depth, color = float(depths[i]), COLORS[i % len(COLORS)]
        ax.axvline(depth, color=color, linewidth=0.9, linestyle=(0, (1, 2)))
        ax.annotate(
            "blow-up", (depth, 1), xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
            ha="center", va="bottom", color=color, fontsize=NOTE,
        )  # fmt: skip
