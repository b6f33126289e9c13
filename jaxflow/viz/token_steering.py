"""How were clouds carried to clouds? Starts, paths, ends and targets on the globe, the circle or a plane."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxflow.viz.controls import plot_controls
from jaxflow.viz.globe import draw_ball, view
from jaxflow.viz.layout import picture_and_panels
from jaxflow.viz.plane import cloud_plane
from jaxflow.viz.steering import scientific
from jaxflow.viz.style import (
    BLUE,
    GREEN,
    GREY,
    NOTE,
    OCHRE,
    PURPLE,
    ROSE,
    axes_or_new,
    label_ends,
    tidy_log,
    time_axis,
)

COLORS = (BLUE, ROSE, GREEN, PURPLE, OCHRE)
SHOWN = 400
LOSSES = {"sliced": "$SW_2$", "energy": r"$\sqrt{D}$", "sinkhorn": r"$\sqrt{S_\epsilon}$"}
FAR = 0.28
"""How strong things on the far side of the globe are, beside those on the near side."""


def plot_token_steering(
    ts: Float[np.ndarray, " t"],
    tokens: list[np.ndarray],
    targets: list[np.ndarray],
    *,
    geometry: str = "euclidean",
    ax: Axes | None = None,
) -> Axes:
    """Each pair in its colour: small dots where tokens start, lines along their ways, large dots where they end, and
    rings where they were wanted. On S² seen from far away; on S¹ and on the line against time; else in a plane.

    Args:
        tokens: for each pair the tokens at the times `ts`, (t, n, d).
        targets: for each pair (m, d).
        geometry: "sphere" or "euclidean".
    """
    ax = axes_or_new(ax, height=6.5, width=6.5)
    d = tokens[0].shape[-1]
    tokens = [x[:, _few(x.shape[1])] for x in tokens]
    targets = [y[_few(len(y))] for y in targets]
    if geometry == "sphere" and d == 3:
        _on_globe(tokens, targets, ax)
    elif d == 1 or (geometry == "sphere" and d == 2):
        _against_time(ts, tokens, targets, ax, angles=geometry == "sphere")
    else:
        _in_plane(tokens, targets, ax)
    _legend(ax)
    return ax


def _few(n: int) -> np.ndarray:
    """Indices of at most SHOWN of n tokens."""
    return np.unique(np.linspace(0, n - 1, SHOWN).astype(int))


def _size(n: int) -> float:
    return float(np.clip(1600 / n, 9, 36))


def _on_globe(tokens: list[np.ndarray], targets: list[np.ndarray], ax: Axes) -> None:
    draw_ball(ax)
    for color, x, y in zip(_colors(len(tokens)), tokens, targets):
        seen, wanted, size = view(x), view(y), _size(x.shape[1])
        steps = np.stack([seen[:-1], seen[1:]], axis=2).reshape(-1, 2, 3)
        near = steps[..., 2].mean(axis=1) >= 0
        for side, strength, zorder in ((near, 0.5, 3.2), (~near, 0.5 * FAR, 2)):
            ax.add_collection(
                LineCollection(
                    list(steps[side][..., :2]), colors=[to_rgba(color, strength)], linewidths=0.9, zorder=zorder
                )
            )
        for points, style, scale, zorder in (
            (seen[0], "start", 0.35, 3.5),
            (wanted, "target", 2.6, 4.5),
            (seen[-1], "end", 1.0, 5),
        ):
            for side, strength, lift in ((points[:, 2] < 0, FAR, -2.4), (points[:, 2] >= 0, 1.0, 0.0)):
                _dots(points[side, :2], style, color, scale * size, strength, zorder + lift, ax)
    ax.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    ax.set_axis_off()


def _in_plane(tokens: list[np.ndarray], targets: list[np.ndarray], ax: Axes) -> None:
    d = tokens[0].shape[-1]
    plane = cloud_plane(np.concatenate([*(x.reshape(-1, d) for x in tokens), *targets]))
    for color, x, y in zip(_colors(len(tokens)), tokens, targets):
        paths, wanted, size = plane.points(x), plane.points(y), _size(x.shape[1])
        ways = LineCollection(list(np.moveaxis(paths, 1, 0)), colors=[to_rgba(color, 0.4)], linewidths=0.9, zorder=2)
        ax.add_collection(ways)
        for points, style, scale, zorder in (
            (paths[0], "start", 0.35, 3),
            (wanted, "target", 2.6, 4),
            (paths[-1], "end", 1.0, 5),
        ):
            _dots(points, style, color, scale * size, 1.0, zorder, ax)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.06)
    ax.set(xlabel=plane.labels[0], ylabel=plane.labels[1])


def _against_time(
    ts: np.ndarray, tokens: list[np.ndarray], targets: list[np.ndarray], ax: Axes, *, angles: bool
) -> None:
    turn = 2 * np.pi

    def heights(x: np.ndarray) -> np.ndarray:
        return np.unwrap(np.arctan2(x[..., 1], x[..., 0]), axis=0) if angles else x[..., 0]

    for color, x, y in zip(_colors(len(tokens)), tokens, targets):
        lines = heights(x)
        size = _size(x.shape[1])
        # A line that winds around is drawn once per turn it touches, and cut by the frame.
        turns = range(int(lines.min() // turn), int(lines.max() // turn) + 1) if angles else [0]
        ways = [np.column_stack([ts, line - k * turn]) for line in lines.T for k in turns]
        ax.add_collection(LineCollection(ways, colors=[to_rgba(color, 0.45)], linewidths=0.9, zorder=2))
        ends = (
            (lines[0], ts[0], "start", 0.35),
            (heights(y[None])[0], ts[-1], "target", 2.6),
            (lines[-1], ts[-1], "end", 1),
        )
        for values, t, style, scale in ends:
            shown = values % turn if angles else values
            _dots(
                np.column_stack([np.full(len(shown), t), shown]), style, color, scale * size, 1.0, 4, ax, clip_on=False
            )
    time_axis(ax, ts)
    ax.set_ylabel("angle of token" if angles else "position of token")
    if angles:
        ax.set_ylim(0, turn)
        ax.set_yticks(np.linspace(0, turn, 5), ["0", r"$\pi/2$", r"$\pi$", r"$3\pi/2$", r"$2\pi$"])
    else:
        ax.autoscale(axis="y")


def _dots(
    points: np.ndarray, style: str, color: str, size: float, strength: float, zorder: Any, ax: Axes, **options: Any
) -> None:
    """Tokens as small dots (start), rimmed dots (end) or rings (target)."""
    looks = {
        "start": {"color": [to_rgba(color, 0.55 * strength)], "linewidths": 0},
        "end": {"color": [to_rgba(color, strength)], "edgecolors": [(1, 1, 1, strength)], "linewidths": 0.6},
        "target": {"facecolors": "none", "edgecolors": [to_rgba(color, strength)], "linewidths": 1.1},
    }
    ax.scatter(*points.T, s=size, zorder=zorder, rasterized=len(points) > 500, **looks[style], **options)


def _colors(pairs: int) -> list[str]:
    return [COLORS[p % len(COLORS)] for p in range(pairs)]


def _legend(ax: Axes) -> None:
    marks = [
        Line2D([], [], marker="o", linestyle="", color=GREY, alpha=0.55, markersize=3.5, label="start"),
        Line2D([], [], marker="o", linestyle="", color=GREY, markersize=6.5, markeredgecolor="white", label="end"),
        Line2D([], [], marker="o", linestyle="", color="none", markersize=9, markeredgecolor=GREY, label="target"),
    ]
    ax.legend(handles=marks, loc="upper right", fontsize=NOTE, handletextpad=0.2, borderaxespad=0.2)


def plot_token_convergence(
    history: Float[np.ndarray, "i 2"], *, tolerance: float | None = None, loss: str = "sliced", ax: Axes | None = None
) -> Axes:
    """The objective and the distance of the worst pair at each iteration on a log axis; values not finite are gaps."""
    ax = axes_or_new(ax, height=3.5)
    ax.set_yscale("log")
    shown = np.where(np.isfinite(history) & (history > 0), history, np.nan)
    ends = []
    for column, label, color in ((0, "objective", OCHRE), (1, LOSSES[loss], BLUE)):
        values = shown[:, column]
        present = values[np.isfinite(values)]
        if present.size:
            ax.plot(
                np.arange(len(values)), values, color=color, marker="o" if present.size < 30 else None, markersize=3.5
            )
            ends.append((float(present[-1]), label, color))
    if tolerance is not None:
        ax.axhline(tolerance, color=GREY, linestyle=(0, (4, 3)), linewidth=1.1)
        ends.append((tolerance, "tolerance", GREY))
    tidy_log(ax)
    ax.set(xlim=(0, max(len(history) - 1, 1)), xlabel="iteration", title="Search")
    label_ends(ax, ends)
    return ax


def token_steering(arrays: dict[str, np.ndarray], summary: dict[str, Any], config: Any) -> Figure:
    """The figure of a `steer_tokens` run: the clouds, and beside them controls and search."""
    figure, main, top, bottom = picture_and_panels(1.0)
    pairs = sum(name.startswith("tokens_") for name in arrays)
    tokens = [arrays[f"tokens_{p}"] for p in range(1, pairs + 1)]
    targets = [arrays[f"target_{p}"] for p in range(1, pairs + 1)]
    plot_token_steering(arrays["ts"], tokens, targets, geometry=config.flow.geometry, ax=main)
    main.set_title(_headline(summary, pairs), fontsize=13)
    controls = {name: arrays[f"controls.{name}"] for name in "ABVb" if f"controls.{name}" in arrays}
    plot_controls(arrays["edges"], controls, ax=top)
    plot_token_convergence(arrays["history"], tolerance=config.tolerance, loss=config.control.loss, ax=bottom)
    return figure


def _headline(summary: dict[str, Any], pairs: int) -> str:
    w2, before = summary.get("w2"), summary.get("w2_start")
    what = "One cloud" if pairs == 1 else f"{pairs} clouds, one control"
    if w2 is None or before is None:
        return what
    return f"{what}: $W_2$ from {scientific(before)} to {scientific(w2)}"
