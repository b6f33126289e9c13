"""How was one Gaussian carried to another? The ellipses sliding to the target, with real tokens riding on them."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.controls import distances, plot_approach, plot_controls, plot_convergence
from jaxflow.viz.ellipses import evenly, plot_ellipse, plot_ellipses
from jaxflow.viz.line import plot_densities
from jaxflow.viz.plane import Plane, path_plane
from jaxflow.viz.style import GREY, INK, NOTE, TIME, axes_or_new, new_figure

PATHS = 60
DOTS = 1500
DASHES = (0, (4, 2.5))


def plot_steering(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t d"],
    covariance: Float[np.ndarray, "t d d"],
    *,
    target_mean: Float[np.ndarray, " d"],
    target_covariance: Float[np.ndarray, "d d"],
    tokens: Float[np.ndarray, "s n d"] | None = None,
    target_samples: Float[np.ndarray, "m d"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Ellipses of 1 and 2 standard deviations from start to target, d ≥ 2, and tokens at their saved times.

    For d > 2 everything is projected on the plane of `path_plane`.
    """
    ax = axes_or_new(ax, height=6.5, width=7.0)
    plane = path_plane(mean, covariance)
    centres, spreads = plane.points(mean), plane.covariances(covariance)
    first, last = TIME(0.0), TIME(1.0)
    between = evenly(ts, 11)[1:-1]
    plot_ellipses(ts[between], centres[between], spreads[between], ax=ax, span=(ts[0], ts[-1]))
    ax.plot(*centres.T, color=INK, linewidth=1.1, alpha=0.7, zorder=1.6)
    if target_samples is not None:
        ax.scatter(
            *plane.points(target_samples[:DOTS]).T, s=13, facecolors="none", edgecolors=GREY,
            linewidths=0.6, alpha=0.8, zorder=2.2, rasterized=True,
        )  # fmt: skip
    if tokens is not None:
        _ride(tokens, plane, ax)
    plot_ellipse(centres[0], spreads[0], color=first, ax=ax, linewidth=1.3)
    plot_ellipse(centres[-1], spreads[-1], color=last, ax=ax, linewidth=0)
    goal = plane.points(target_mean), plane.covariances(target_covariance)
    plot_ellipse(*goal, color=INK, ax=ax, fill=0, linestyle=DASHES, linewidth=1.3, zorder=4)
    _name_ellipse(ax, centres[0], spreads[0], centres[-1], "start", first)
    _name_ellipse(ax, *goal, centres[0], "target", INK)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.06)
    ax.set(xlabel=plane.labels[0], ylabel=plane.labels[1])
    return ax


def _ride(tokens: np.ndarray, plane: Plane, ax: Axes) -> None:
    """Tokens at the start and at the end, and the paths of a few between."""
    shown = plane.points(tokens)
    for path in np.moveaxis(shown[:, :PATHS], 1, 0):
        ax.plot(*path.T, color=INK, linewidth=0.55, alpha=0.28, zorder=1.8)
    for moment, color in ((shown[0], TIME(0.0)), (shown[-1], TIME(1.0))):
        ax.scatter(
            *moment[:DOTS].T, s=9, color=color, alpha=0.65, linewidths=0, zorder=2.6, rasterized=True
        )  # fmt: skip


def _name_ellipse(ax: Axes, mean: Any, covariance: Any, other: Any, text: str, color: Any) -> None:
    """A name outside the ellipse of two deviations, above or below it: on the side away from the other end."""
    up = 1 if mean[1] >= other[1] else -1
    edge = mean[1] + up * 2 * np.sqrt(max(covariance[1, 1], 0))
    ax.annotate(
        text, (mean[0], edge), xytext=(0, 8 * up), textcoords="offset points", color=color,
        fontsize=NOTE + 1.5, ha="center", va="bottom" if up > 0 else "top", zorder=5,
    )  # fmt: skip


def steering(arrays: dict[str, np.ndarray], summary: dict[str, Any], config: Any) -> Figure:
    """The figure of a `steer` run: the way on the left, controls and search on the right."""
    figure = new_figure(6.0)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.9, 1), wspace=0.06, hspace=0.08)
    left, top, bottom = (figure.add_subplot(cell) for cell in (grid[:, 0], grid[0, 1], grid[1, 1]))
    ts, mean, covariance = arrays["ts"], arrays["mean"], arrays["covariance"]
    target = {"target_mean": arrays["target_mean"], "target_covariance": arrays["target_covariance"]}
    extras = {"tokens": arrays.get("tokens"), "target_samples": arrays.get("target_samples")}
    if mean.shape[1] == 1:
        plot_densities(ts, mean, covariance, **target, **extras, tokens_ts=arrays.get("tokens_ts"), ax=left)
    else:
        plot_steering(ts, mean, covariance, **target, **extras, ax=left)
    left.set_title(_headline(summary), fontsize=13)
    controls = {name: arrays[f"controls.{name}"] for name in "ABVb" if f"controls.{name}" in arrays}
    plot_controls(arrays["edges"], controls, ax=top)
    history = arrays["history"]
    if len(history) > 1:
        plot_convergence(history, tolerance=config.tolerance, ax=bottom)
    else:
        plot_approach(ts, distances(mean, covariance, *target.values()), ax=bottom)
    return figure


def _headline(summary: dict[str, Any]) -> str:
    w2, iterations = summary.get("w2"), summary.get("iterations")
    if w2 is None:
        return "Steering"
    text = f"Steered to $W_2 = {scientific(w2)}$"
    return f"{text} in {iterations} iterations" if iterations else text


def scientific(value: float) -> str:
    """A number to two digits as mathematics: 3.2×10⁻⁴."""
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return rf"{mantissa}\times 10^{{{int(exponent)}}}"
