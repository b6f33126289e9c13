"""With which power does an error vanish? Points on log axes, and the line fitted through them."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from jaxflow.viz.style import axes_or_new, tidy_log


def plot_power(
    x: Float[np.ndarray, " k"],
    y: Float[np.ndarray, " k"],
    *,
    slope: float | None,
    error: float | None,
    name: str,
    color: str,
    marker: str = "o",
    ax: Axes | None = None,
) -> Axes:
    """y against x where it is positive, the fitted power through it, and both named in the legend."""
    ax = axes_or_new(ax)
    ax.set(xscale="log", yscale="log")
    shown = y > np.finfo(float).tiny
    text = name
    if slope is not None:
        draw_power(ax, x, y, slope, color=color)
        text += f": {slope:.3f} ± {error:.1g}"
    ax.plot(x[shown], y[shown], marker, color=color, markersize=7, mec="white", label=text)
    label_powers(ax, x)
    return ax


def draw_power(ax: Axes, x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"], slope: float, *, color: str) -> None:
    """The line of this slope through the middle of the points on log axes."""
    line = np.exp(np.mean(np.log(y)) + slope * (np.log(x) - np.mean(np.log(x))))
    ax.plot(x, line, color=color, linewidth=1.3)


def label_powers(ax: Axes, x: Float[np.ndarray, " k"]) -> None:
    """The measured x as the only numbers on their log axis."""
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(x[0] / 1.5, x[-1] * 1.5)
    tidy_log(ax)
