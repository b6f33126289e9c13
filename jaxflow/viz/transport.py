"""By which way is a cloud carried to another? The path of its particles, the refinement of its length, the bounds."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from jaxflow.viz.globe import draw_ball, view
from jaxflow.viz.layout import picture_and_panels
from jaxflow.viz.plane import cloud_plane
from jaxflow.viz.style import BLUE, GREY, HALO, INK, NOTE, ROSE, TIME, axes_or_new

PIECES = 6
"""Every step of the path is drawn in so many."""

FAR = 0.3
"""Opacity of what lies on the far side of the ball."""


def plot_paths(
    ts: Float[np.ndarray, " t"],
    path: Float[np.ndarray, "t n d"],
    mass: Float[np.ndarray, " n"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """One line per particle, coloured by time and as broad as its mass: angle against time on S¹, seen from afar on
    S², in the two leading principal coordinates beyond. The start is a dark disc, the target a light ring."""
    ax = axes_or_new(ax, height=6.0, width=6.0)
    widths = np.clip(2.6 * np.sqrt(mass / mass.max()), 0.8, 2.6)
    if path.shape[-1] == 2:
        return _against_time(ts, path, widths, ax)
    fine, dense = _refined(ts, path)
    if path.shape[-1] == 3:
        draw_ball(ax)
        seen = view(dense)
        flat, depth = seen[..., :2], seen[..., 2]
        ax.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
        ax.set_axis_off()
    else:
        plane = cloud_plane(path)
        flat, depth = plane.points(dense), np.ones(dense.shape[:2])
        ax.set(xlabel=plane.labels[0], ylabel=plane.labels[1], aspect="equal")
    for i, width in enumerate(widths):
        _line(ax, fine, flat[:, i], depth[:, i], float(width))
    front = depth >= 0
    for k, face, edge in ((0, TIME(0.0), "white"), (-1, "white", TIME(1.0))):
        for side, alpha in ((front[k], 1.0), (~front[k], FAR)):
            xy = flat[k][side]
            ax.scatter(*xy.T, s=40, color=face, edgecolors=edge, linewidths=1.6, alpha=alpha, zorder=6)
    ax.autoscale_view()
    return ax


def _refined(ts: np.ndarray, path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times and points of the great circles between saved points: straight pieces would show their corners."""
    s = np.linspace(ts[0], ts[-1], PIECES * (len(ts) - 1) + 1)
    flat = path.reshape(len(ts), -1)
    x = np.stack([np.interp(s, ts, column) for column in flat.T], axis=1).reshape(len(s), *path.shape[1:])
    return s, x / np.linalg.norm(x, axis=-1, keepdims=True)


def _line(ax: Axes, ts: np.ndarray, xy: np.ndarray, depth: np.ndarray, width: float) -> None:
    """A curve in pieces between saved times, each with the colour of its time, faint on the far side."""
    pieces = np.stack([xy[:-1], xy[1:]], axis=1)
    colors = TIME((ts[1:] + ts[:-1]) / (2 * ts[-1]))
    colors[:, 3] = np.where((depth[1:] + depth[:-1]) / 2 >= 0, 0.9, FAR)
    ax.add_collection(LineCollection(list(pieces), colors=colors, linewidths=width, zorder=5, capstyle="butt"))


def _against_time(ts: np.ndarray, path: np.ndarray, widths: np.ndarray, ax: Axes) -> Axes:
    """Angles along the path, unwound: lines that part have split."""
    angle = np.unwrap(np.arctan2(path[..., 1], path[..., 0]), axis=0)
    for i, width in enumerate(widths):
        _line(ax, ts, np.stack([ts, angle[:, i]], axis=1), np.ones(len(ts)), float(width))
    ax.plot(np.full(angle.shape[1], ts[0]), angle[0], "o", color=TIME(0.0), markersize=6, mec="white", zorder=6)
    ax.plot(np.full(angle.shape[1], ts[-1]), angle[-1], "o", color="white", markersize=6, mec=TIME(1.0), zorder=6)
    ax.set(xlim=(ts[0] - 0.02, ts[-1] + 0.02), xlabel="path parameter $s$", ylabel="angle of particle")
    return ax


def plot_refinement(summary: dict[str, Any], *, ax: Axes | None = None) -> Axes:
    """√A against the particles per pair at half the steps, and the value at all steps with its error."""
    ax = axes_or_new(ax)
    levels = np.sqrt(np.maximum(summary["actions"][:-1], 0.0))
    split = 2 ** np.arange(len(levels))
    ax.plot(split, levels, "o-", color=BLUE, linewidth=1.4, markersize=6)
    ax.errorbar(
        [split[-1]], [summary["weighted"]], yerr=[summary["weighted_error"]], fmt="D", color=ROSE, markersize=6,
        capsize=4, label=_with_error(summary["weighted"], summary["weighted_error"]),
    )  # fmt: skip
    # A length that no refinement changes is a flat line, not a close-up of its rounding.
    low, high = ax.get_ylim()
    room = max(0.0, 0.02 * high - (high - low)) / 2
    ax.set_ylim(low - room, high + room)
    ax.set_xscale("log", base=2)
    ax.set_xticks(split, [str(s) for s in split])
    ax.minorticks_off()
    ax.set_xlabel("particles per pair")
    ax.set_title(r"Length of the path, $\sqrt{A}$")
    ax.legend(loc="best", fontsize=NOTE, handlelength=1.0)
    return ax


def _with_error(value: float, error: float) -> str:
    """A number with as many decimals as its error has a leading digit."""
    if not error > 0:
        return f"{value:.6g}"
    decimals = int(np.clip(-np.floor(np.log10(error)), 0, 10))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def plot_bounds(summary: dict[str, Any], *, ax: Axes | None = None) -> Axes:
    """W₂ and W_{m,2} on one log axis, within the bounds that hold for all clouds."""
    ax = axes_or_new(ax)
    low, high = summary["lower"], summary["upper"]
    ax.set_xscale("log")
    ax.plot([low, high], [0, 0], color=GREY, linewidth=6, alpha=0.35, solid_capstyle="butt")
    shown = (
        ("w2", "$W_2$", INK, "o", -1),
        ("weighted", "$W_{m,2}$", ROSE, "D", 1),
        ("sliced_w2", "sliced", BLUE, "s", -1),
    )
    for key, text, color, marker, side in shown:
        ax.plot([summary[key]], [0], marker, color=color, markersize=8, mec="white", zorder=3)
        ax.annotate(
            text, (summary[key], 0), xytext=(0, 13 * side), textcoords="offset points", color=color, fontsize=NOTE,
            ha="center", va="bottom" if side > 0 else "top", path_effects=HALO,
        )  # fmt: skip
    for value, text, align in ((low, "$e^{-R/2}W_2$", "left"), (high, "$e^{R/2}W_2$", "right")):
        ax.annotate(text, (value, 0), xytext=(0, 34), textcoords="offset points", color=GREY, fontsize=NOTE, ha=align)
    reach = (min(low, summary["sliced_w2"]), high)
    ax.set_xlim(reach[0] / 1.25, reach[1] * 1.25)
    ax.set_ylim(-1, 1)
    ax.get_yaxis().set_visible(False)
    ax.spines["left"].set_visible(False)
    ax.set_title("Distances, within the bounds")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    return ax


def transport(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The path on the left, the refinement and the bounds on the right."""
    figure, picture, first, second = picture_and_panels(1.0)
    plot_paths(arrays["ts"], arrays["path"], arrays["mass"], ax=picture)
    picture.set_title("From the start (discs) to the target (rings)")
    plot_refinement(summary, ax=first)
    plot_bounds(summary, ax=second)
    return figure
