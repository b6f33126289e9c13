"""One Gaussian on its way to another, as a film: the ellipse slides, and the tokens ride on it."""

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.animation import FuncAnimation
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from jaxflow.viz.ellipses import ellipse, name_ellipse, plot_ellipse
from jaxflow.viz.plane import path_plane
from jaxflow.viz.steering import DASHES, DOTS
from jaxflow.viz.style import FAINT, GREY, INK, STYLE, TIME, new_figure

TAILS = 250
"""How many tokens draw a tail behind them."""

TAIL = 6
"""Frames that a tail reaches back."""

MARGIN = 0.08


def animate_steering(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t d"],
    covariance: Float[np.ndarray, "t d d"],
    *,
    target_mean: Float[np.ndarray, " d"],
    target_covariance: Float[np.ndarray, "d d"],
    tokens: Float[np.ndarray, "s n d"] | None = None,
    tokens_ts: Float[np.ndarray, " s"] | None = None,
    target_samples: Float[np.ndarray, "m d"] | None = None,
    frames: int = 80,
    rest: int = 24,
    fps: int = 20,
) -> FuncAnimation:
    """Ellipses of 1 and 2 standard deviations that slide from start to target, d ≥ 2, and tokens that ride on them.

    Args:
        ts, mean, covariance: the path.
        target_mean, target_covariance: where it should lead (dashed).
        tokens, tokens_ts: positions at times of their own, between which they move on straight lines.
        target_samples: measured points of the target (rings).
        frames, rest: pictures on the way, and of the end.
        fps: pictures per second.

    Returns:
        A matplotlib animation: `animation.save("steering.gif", writer="pillow")`, or `HTML(animation.to_jshtml())` in a
        notebook. For d > 2 everything is projected on the plane of `path_plane`. Times are spaced so that the film
        begins and ends gently.
    """
    plane = path_plane(mean, covariance)
    centres, spreads = plane.points(mean), plane.covariances(covariance)
    # Smooth start and stop: s = 3c² − 2c³.
    c = np.linspace(0, 1, frames)
    moments = ts[0] + (ts[-1] - ts[0]) * (3 * c**2 - 2 * c**3)
    centre_at, spread_at = between(ts, centres, moments), between(ts, spreads, moments)
    riders = None
    if tokens is not None and tokens_ts is not None:
        riders = between(tokens_ts, plane.points(tokens[:, :DOTS]), moments)
    goal = plane.points(target_mean), plane.covariances(target_covariance)

    low, high = _limits(np.concatenate([centre_at, goal[0][None]]), np.concatenate([spread_at, goal[1][None]]), riders)
    shape = (high[0] - low[0]) / (high[1] - low[1])
    width = float(np.clip(6.2 * shape, 5.0, 8.6))
    with mpl.rc_context(STYLE):
        figure = new_figure(width / shape + 0.7, width=width)
        figure.set_dpi(100)
        ax = figure.add_subplot()
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=plane.labels[0], ylabel=plane.labels[1])
    ax.set_aspect("equal")
    ax.plot(*centres.T, color=FAINT, linewidth=1.4, zorder=1)
    if target_samples is not None:
        shown = plane.points(target_samples[:DOTS]).T
        ax.scatter(*shown, s=13, facecolors="none", edgecolors=GREY, linewidths=0.6, alpha=0.8, zorder=2)
    for deviations in (2.0, 1.0):
        x, y = ellipse(centres[0], spreads[0], deviations=deviations).T
        ax.plot(x, y, color=TIME(0.0), linewidth=0.9, alpha=0.35, zorder=1.2)
    plot_ellipse(*goal, color=INK, ax=ax, fill=0.0, linestyle=DASHES, linewidth=1.3, zorder=4)
    up = bool(goal[0][1] >= centres[0, 1])
    name_ellipse(ax, *goal, text="target", color=INK, up=up)
    name_ellipse(ax, centres[0], spreads[0], text="start", color=TIME(0.0), up=not up)
    rings = [ax.fill([], [], linewidth=0, alpha=0.2, zorder=3)[0] for _ in range(2)]
    outlines = [ax.plot([], [], linewidth=1.7, zorder=3.2)[0] for _ in range(2)]
    trace = ax.plot([], [], color=INK, linewidth=1.5, zorder=3.1)[0]
    dots = ax.scatter([], [], s=9, linewidths=0, alpha=0.6, zorder=2.8)
    tails = LineCollection([], linewidths=0.8, zorder=2.6)
    ax.add_collection(tails)
    clock = ax.text(0.0, 1.02, "", transform=ax.transAxes, fontsize=13, color=INK, va="bottom")
    done = ax.plot([], [], transform=ax.transAxes, color=INK, linewidth=3, clip_on=False, solid_capstyle="butt")[0]

    def draw(frame: int) -> list[object]:
        i = min(frame, frames - 1)
        part = (moments[i] - ts[0]) / (ts[-1] - ts[0])
        color = TIME(part)
        for deviations, ring, outline in zip((2.0, 1.0), rings, outlines):
            curve = ellipse(centre_at[i], spread_at[i], deviations=deviations)
            ring.set_xy(curve)
            ring.set_facecolor(color)
            outline.set_data(*curve.T)
            outline.set_color(color)
        trace.set_data(*centre_at[: i + 1].T)
        if riders is not None:
            dots.set_offsets(riders[i])
            dots.set_color(color)
            first = max(0, i - TAIL)
            tails.set_segments(list(np.moveaxis(riders[first : i + 1, :TAILS], 1, 0)))
            tails.set_color(to_rgba(color, 0.28))
        clock.set_text(f"$t = {moments[i]:.2f}$")
        done.set_data([0, part], [1.0, 1.0])
        return [*rings, *outlines, trace, dots, tails, clock, done]

    return FuncAnimation(figure, draw, frames=frames + rest, interval=1000 / fps, blit=False)  # pyright: ignore[reportArgumentType]


def between(ts: np.ndarray, values: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The values at these moments, on straight lines between those at ts."""
    i = np.clip(np.searchsorted(ts, moments, side="right") - 1, 0, len(ts) - 2)
    c = ((moments - ts[i]) / (ts[i + 1] - ts[i])).reshape(-1, *[1] * (values.ndim - 1))
    return (1 - c) * values[i] + c * values[i + 1]


def _limits(centres: np.ndarray, spreads: np.ndarray, riders: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right of what holds everything at all times: a film does not zoom."""
    reach = 2.15 * np.sqrt(np.maximum(np.diagonal(spreads, axis1=1, axis2=2), 0))
    low, high = (centres - reach).min(0), (centres + reach).max(0)
    if riders is not None:
        # Nearly all tokens; a few outliers may leave the picture.
        seen = riders.reshape(-1, 2)
        low = np.minimum(low, np.quantile(seen, 0.002, axis=0))
        high = np.maximum(high, np.quantile(seen, 0.998, axis=0))
    # No picture is flatter or taller than three to one.
    pad = MARGIN * (high - low) + np.maximum(np.max(high - low) / 3 - (high - low), 0) / 2
    return low - pad, high + pad
