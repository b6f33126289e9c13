"""How was one Gaussian carried to another? The ellipses sliding to the target, with tokens riding on them."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from jaxflow.viz.controls import distances, plot_approach, plot_controls, plot_convergence
from jaxflow.viz.ellipses import evenly, name_ellipse, plot_ellipse, plot_ellipses
from jaxflow.viz.layout import picture_and_panels, shape_of
from jaxflow.viz.line import plot_densities
from jaxflow.viz.plane import Plane, path_plane
from jaxflow.viz.style import GREY, INK, TIME, axes_or_new

PATHS = 60
DOTS = 1500
DASHES = (0, (4, 2.5))
ENDS = {"bounds": "Held by its bounds at", "stalled": "Stalled at", "blow_up": "Blown up:"}
"""What the headline says of searches that did not end well."""


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
    ax.plot(*centres.T, color=INK, linewidth=1.2, alpha=0.75, zorder=2)
    if target_samples is not None:
        ax.scatter(
            *plane.points(target_samples[:DOTS]).T, s=13, facecolors="none", edgecolors=GREY,
            linewidths=0.6, alpha=0.8, zorder=2.2, rasterized=True,
        )  # fmt: skip
    if tokens is not None:
        _ride(tokens, plane, ax)
    plot_ellipse(centres[0], spreads[0], color=first, ax=ax, linewidth=1.3)
    plot_ellipse(centres[-1], spreads[-1], color=last, ax=ax, fill=0.22, linewidth=0)
    goal = plane.points(target_mean), plane.covariances(target_covariance)
    plot_ellipse(*goal, color=INK, ax=ax, fill=0.0, linestyle=DASHES, linewidth=1.3, zorder=4)
    # Names on the sides that look away from each other.
    target_above = bool(goal[0][1] >= centres[0, 1])
    name_ellipse(ax, centres[0], spreads[0], text="start", color=first, up=not target_above)
    name_ellipse(ax, *goal, text="target", color=INK, up=target_above)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.06)
    ax.set(xlabel=plane.labels[0], ylabel=plane.labels[1])
    return ax


def _ride(tokens: np.ndarray, plane: Plane, ax: Axes) -> None:
    """Tokens at the start and at the end, and the paths of a few between."""
    shown = plane.points(tokens)
    paths = np.moveaxis(shown[:, :PATHS], 1, 0)
    steps = np.stack([paths[:, :-1], paths[:, 1:]], axis=2).reshape(-1, 2, 2)
    color = np.tile(np.linspace(0, 1, paths.shape[1] - 1), len(paths))
    ax.add_collection(LineCollection(list(steps), cmap=TIME, array=color, linewidths=0.6, alpha=0.4, zorder=1.5))
    for moment, color in ((shown[0], TIME(0.0)), (shown[-1], TIME(1.0))):
        ax.scatter(
            *moment[:DOTS].T, s=8, color=color, alpha=0.5, linewidths=0, zorder=2.6, rasterized=True
        )  # fmt: skip


def steering(arrays: dict[str, np.ndarray], summary: dict[str, Any], config: Any) -> Figure:
    """The figure of a `steer` run: the way, beside it (below it, if the way is long) controls and search."""
    ts, mean, covariance = arrays["ts"], arrays["mean"], arrays["covariance"]
    figure, main, top, bottom = picture_and_panels(shape_of(mean, covariance, deviations=2.6))
    target_mean, target_covariance = arrays["target_mean"], arrays["target_covariance"]
    tokens, samples = arrays.get("tokens"), arrays.get("target_samples")
    if mean.shape[1] == 1:
        plot_densities(
            ts, mean, covariance, target_mean=target_mean, target_covariance=target_covariance,
            tokens=tokens, tokens_ts=arrays.get("tokens_ts"), target_samples=samples, ax=main,
        )  # fmt: skip
    else:
        plot_steering(
            ts, mean, covariance, target_mean=target_mean, target_covariance=target_covariance,
            tokens=tokens, target_samples=samples, ax=main,
        )  # fmt: skip
    main.set_title(_headline(summary), fontsize=13)
    controls = {name: arrays[f"controls.{name}"] for name in "ABVb" if f"controls.{name}" in arrays}
    times = arrays.get("controls_ts", arrays["edges"])
    plot_controls(times, controls, bounds=getattr(config.control, "limits", None), ax=top)
    if len(arrays["history"]) > 1:
        cheapest = "optimality" in summary
        labels = ("cost", "optimality") if cheapest else ("objective", "$W_2$")
        plot_convergence(arrays["history"], labels=labels, tolerance=config.tolerance, ax=bottom)
    else:
        plot_approach(ts, distances(mean, covariance, target_mean, target_covariance), ax=bottom)
    return figure


def _headline(summary: dict[str, Any]) -> str:
    w2, iterations = summary.get("w2"), summary.get("iterations")
    if w2 is None:
        return "Steering"
    did = ENDS.get(summary.get("stop", ""), "Steered to")
    text = f"{did} $W_2 = {scientific(w2)}$"
    return f"{text} in {iterations} iterations" if iterations else text


def scientific(value: float) -> str:
    """A number to two digits as mathematics: 3.2×10⁻⁴."""
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return rf"{mantissa}\times 10^{{{int(exponent)}}}"
