"""How does a Gaussian on the line move? Bands of one and two standard deviations against time."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from jaxflow.viz.style import BLUE, GREY, INK, NOTE, TIME, axes_or_new, time_axis

PATHS = 60


def plot_line_band(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t 1"],
    covariance: Float[np.ndarray, "t 1 1"],
    *,
    ax: Axes | None = None,
    color: str = BLUE,
) -> Axes:
    """The mean, and the bands within one and two standard deviations of it."""
    ax = axes_or_new(ax)
    centre, deviation = mean[:, 0], np.sqrt(np.maximum(covariance[:, 0, 0], 0))
    for width in (2, 1):
        ax.fill_between(
            ts, centre - width * deviation, centre + width * deviation, color=color, alpha=0.15, linewidth=0
        )
    ax.plot(ts, centre, color=color)
    time_axis(ax, ts)
    ax.set_ylabel("$x$")
    return ax


def plot_densities(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t 1"],
    covariance: Float[np.ndarray, "t 1 1"],
    *,
    target_mean: Float[np.ndarray, "1"],
    target_covariance: Float[np.ndarray, "1 1"],
    tokens: Float[np.ndarray, "s n 1"] | None = None,
    tokens_ts: Float[np.ndarray, " s"] | None = None,
    target_samples: Float[np.ndarray, "m 1"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The bands with paths of tokens, and the densities at the start, the end and of the target (dashed)."""
    ax = axes_or_new(ax)
    plot_line_band(ts, mean, covariance, ax=ax, color=GREY)
    if tokens is not None and tokens_ts is not None:
        ax.plot(tokens_ts, tokens[:, :PATHS, 0], color=INK, linewidth=0.5, alpha=0.3)
    length = 0.16 * (ts[-1] - ts[0])
    # The taller of the two densities has this length in time.
    scale = length * np.sqrt(max(min(covariance[0, 0, 0], target_covariance[0, 0]), np.finfo(float).tiny))
    for i, color in ((0, TIME(0.0)), (-1, TIME(1.0))):
        y, bump = _bump(mean[i, 0], covariance[i, 0, 0], scale)
        ax.fill_betweenx(y, ts[i], ts[i] + bump, color=color, alpha=0.3, linewidth=0, zorder=3)
        ax.plot(ts[i] + bump, y, color=color, linewidth=1.4, zorder=3)
    y, bump = _bump(target_mean[0], target_covariance[0, 0], scale)
    ax.plot(ts[-1] + bump, y, color=INK, linewidth=1.3, linestyle=(0, (4, 2.5)), zorder=4)
    ax.annotate(
        "target", (ts[-1] + bump.max(), target_mean[0]), xytext=(6, 0), textcoords="offset points",
        color=INK, fontsize=NOTE + 1.5, va="center",
    )  # fmt: skip
    if target_samples is not None:
        samples = target_samples[:300, 0]
        ax.plot(np.full(samples.shape, ts[-1]), samples, "_", color=GREY, alpha=0.35, zorder=2, markersize=8)
    ax.set_xlim(ts[0], ts[-1] + 1.1 * bump.max())
    return ax


def _bump(mean: float, variance: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Points y, and the Gaussian density there times √(2π) `scale`."""
    deviation = np.sqrt(max(variance, np.finfo(float).tiny))
    z = np.linspace(-3.2, 3.2, 161)
    return mean + deviation * z, scale / deviation * np.exp(-(z**2) / 2)
