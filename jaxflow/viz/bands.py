"""How is one quantity shown over several random paths? Its mean, with a band of one standard deviation."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from jaxflow.viz.style import axes_or_new, tidy_log


def plot_band(
    ts: Float[np.ndarray, " t"], values: Float[np.ndarray, "p t"], *, color: str, ax: Axes | None = None
) -> Axes:
    """The mean over paths ± one standard deviation; a single path is a line."""
    ax = axes_or_new(ax)
    mean = values.mean(0)
    if len(values) > 1:
        deviation = values.std(0)
        ax.fill_between(ts, mean - deviation, mean + deviation, color=color, alpha=0.18, linewidth=0)
    ax.plot(ts, mean, color=color)
    return ax


def plot_positive_band(
    ts: Float[np.ndarray, " t"],
    values: Float[np.ndarray, "p t"],
    *,
    color: str,
    ax: Axes | None = None,
    width: float = 1.8,
) -> Axes:
    """On a log axis: the mean over paths where it is positive, and the 16th to 84th percentile around it."""
    ax = axes_or_new(ax)
    if ax.get_yscale() != "log":
        ax.set_yscale("log")
    mean = values.mean(0)
    floor = np.finfo(float).tiny
    positive = mean[mean > floor]
    if positive.size == 0:
        return ax
    if len(values) > 1:
        low, high = np.percentile(values, [16, 84], axis=0)
        # A percentile that is not positive has no place on the axis: the band ends at the smallest mean.
        low, high = np.maximum(low, 0.1 * positive.min()), np.maximum(high, 0.1 * positive.min())
        ax.fill_between(ts, low, high, color=color, alpha=0.18, linewidth=0)
    ax.plot(ts, np.where(mean > floor, mean, np.nan), color=color, linewidth=width)
    tidy_log(ax)
    return ax


def over(paths: int) -> str:
    """What a title adds when there are several paths."""
    return f", mean of {paths} paths" if paths > 1 else ""
