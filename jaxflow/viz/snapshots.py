"""Where are the tokens at a few moments? On the globe, on the circle, or in their principal plane."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.circle import plot_circle
from jaxflow.viz.globe import plot_globe, start_colors
from jaxflow.viz.plane import cloud_plane
from jaxflow.viz.style import BLUE, GREY, NOTE, WHEEL, axes_or_new, new_figure, time_axis

# Tokens move fastest at first.
FRACTIONS = (0.0, 0.05, 0.2, 0.45, 0.7, 1.0)
# The moments of the published figures, which run to t = 20.
PUBLISHED = (0.0, 1.0, 5.0, 16.0, 18.0, 20.0)

MOST_TOKENS = 5000
"""More dots hide each other."""


def moments_shown(ts: Float[np.ndarray, " t"]) -> np.ndarray:
    """Indices of at most six saved times, the first and the last among them."""
    wanted = np.array(PUBLISHED) if np.isclose(ts[-1], 20) else ts[0] + (ts[-1] - ts[0]) * np.array(FRACTIONS)
    return np.unique(np.abs(ts[None, :] - wanted[:, None]).argmin(axis=1))


def plot_cloud(points: Float[np.ndarray, "n 2"], *, colors: Any = BLUE, ax: Axes | None = None) -> Axes:
    """Tokens in a plane."""
    ax = axes_or_new(ax, height=5.0, width=5.0)
    size = float(np.clip(3600 / len(points), 4, 24))
    ax.scatter(
        *points.T,
        s=size,
        c=colors,
        alpha=0.75,
        linewidths=0.3,
        edgecolors="white",
        rasterized=len(points) > 500,
    )
    ax.set_aspect("equal")
    return ax


def plot_positions(ts: Float[np.ndarray, " t"], points: Float[np.ndarray, "t n"], *, ax: Axes | None = None) -> Axes:
    """Tokens on the line: one thin line each against time."""
    ax = axes_or_new(ax, height=5.0, width=9.0)
    shown = points[:, np.unique(np.linspace(0, points.shape[1] - 1, 400).astype(int))]
    ax.plot(ts, shown, color=BLUE, linewidth=0.8, alpha=float(np.clip(40 / shown.shape[1], 0.2, 0.8)))
    time_axis(ax, ts)
    ax.set_ylabel("position of token")
    return ax


def snapshots(ts: np.ndarray, points: np.ndarray, *, geometry: str) -> Figure:
    """The figure of the tokens of one path, points (t, n, d); of many, of some taken at equal distances in the list."""
    n, d = points.shape[1:]
    if n > MOST_TOKENS:
        points = points[:, np.linspace(0, n - 1, MOST_TOKENS).astype(int)]
    if d == 1 or (d == 2 and geometry == "sphere"):
        figure = new_figure(4.8)
        ax = figure.add_subplot()
        return (plot_positions(ts, points[..., 0], ax=ax) if d == 1 else plot_circle(ts, points, ax=ax)).figure  # pyright: ignore[reportReturnType]
    shown = moments_shown(ts)
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(0.6 + rows * (10.0 / columns) * 0.98)
    globe = d == 3 and geometry == "sphere"
    cells = figure.subplots(rows, columns, squeeze=False, sharex=not globe, sharey=not globe)
    plane = cloud_plane(points[shown])
    flat = plane.points(points[shown])
    colors = start_colors(points[0]) if globe else _by_angle(flat[0])
    for i, ax in enumerate(cells.flat):
        if i >= len(shown):
            ax.set_axis_off()
            continue
        if globe:
            plot_globe(points[shown[i]], colors=colors, ax=ax)
        else:
            plot_cloud(flat[i], colors=colors, ax=ax)
        ax.set_title(f"$t = {ts[shown[i]]:.3g}$", loc="center")
    if not globe:
        for ax in cells[-1]:
            ax.set_xlabel(plane.labels[0])
        for ax in cells[:, 0]:
            ax.set_ylabel(plane.labels[1])
    how = "half-axis nearest to the token" if globe else "direction of the token from the middle of the cloud"
    some = f"{MOST_TOKENS} of {n} tokens, " if n > MOST_TOKENS else ""
    figure.supxlabel(f"{some}colour: {how} at $t={ts[0]:.3g}$", color=GREY, fontsize=NOTE)
    return figure


def _by_angle(flat: np.ndarray) -> np.ndarray:
    """Colours by the direction in which a token lies from the middle of the cloud."""
    x, y = (flat - flat.mean(0)).T
    return WHEEL(np.arctan2(y, x) % (2 * np.pi) / (2 * np.pi))
