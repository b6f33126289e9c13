"""How do tokens lie on the sphere S²? Seen from far away (orthographic), the far side faint."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import Circle

from jaxflow.viz.style import GREY, PALETTE, axes_or_new

# A view along no axis of symmetry, so that opposite vertices of an octahedron do not cover each other.
AZIMUTH, ELEVATION = np.deg2rad(24.0), np.deg2rad(22.0)


def view(x: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3"]:
    """Coordinates (right, up, towards the eye)."""
    ca, sa, ce, se = np.cos(AZIMUTH), np.sin(AZIMUTH), np.cos(ELEVATION), np.sin(ELEVATION)
    frame = np.array([[-sa, ca, 0.0], [-se * ca, -se * sa, ce], [ce * ca, ce * sa, se]])
    return x @ frame.T


def start_colors(points: Float[np.ndarray, "n d"]) -> np.ndarray:
    """One colour per token, by the half-axis ±e_i nearest to it: (n, 3). Six colours for d = 3."""
    axis = np.argmax(np.abs(points), axis=1)
    side = np.take_along_axis(points, axis[:, None], axis=1)[:, 0] < 0
    colors = np.array([to_rgb(color) for color in PALETTE])
    return colors[(2 * axis + side) % len(colors)]


def plot_globe(points: Float[np.ndarray, "n 3"], *, colors: np.ndarray | None = None, ax: Axes | None = None) -> Axes:
    """Tokens on S²; their colours, when absent, say which coordinate axis is nearest."""
    ax = axes_or_new(ax, height=5.0, width=5.0)
    colors = start_colors(points) if colors is None else colors
    draw_ball(ax)
    p = view(points)
    order = np.argsort(p[:, 2])
    p, colors = p[order], colors[order]
    # Many tokens are drawn smaller; all shrink and fade with distance from the eye.
    size = np.clip(9000 / len(p), 7, 32) * (0.55 + 0.45 * (p[:, 2] + 1) / 2)
    rim = 0.45 if len(p) <= 500 else 0.0
    for side, alpha, edge, zorder in ((p[:, 2] < 0, 0.32, 0.0, 2), (p[:, 2] >= 0, 0.92, rim, 4)):
        rgba = np.column_stack([colors[side], np.full(side.sum(), alpha)])
        ax.scatter(
            p[side, 0], p[side, 1], s=size[side], c=rgba, linewidths=edge, edgecolors="white",
            zorder=zorder, rasterized=len(p) > 500,
        )  # fmt: skip
    ax.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    ax.set_axis_off()
    return ax


def draw_ball(ax: Axes) -> None:
    """A softly lit ball with meridians and parallels every 30 degrees."""
    side = np.linspace(-1, 1, 240)
    x, y = np.meshgrid(side, side)
    depth = np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    light = (0.5 + 0.5 * (-0.35 * x + 0.5 * y + 0.79 * depth))[..., None] ** 1.5
    shade = light * np.array(to_rgba("#fbfcfd")) + (1 - light) * np.array(to_rgba("#b9c4d0"))
    image = ax.imshow(shade, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear", zorder=0)
    rim = Circle((0, 0), 1, facecolor="none", edgecolor=GREY, linewidth=0.9, zorder=3)
    ax.add_patch(rim)
    image.set_clip_path(rim)
    angle = np.linspace(0, 2 * np.pi, 241)
    lines = [
        np.stack([np.cos(a) * np.cos(angle), np.sin(a) * np.cos(angle), np.sin(angle)], axis=1)
        for a in np.deg2rad(np.arange(0, 180, 30))
    ] + [
        np.stack([np.cos(h) * np.cos(angle), np.cos(h) * np.sin(angle), np.full_like(angle, np.sin(h))], axis=1)
        for h in np.deg2rad(np.arange(-60, 90, 30))
    ]
    for line in map(view, lines):
        for front, alpha, zorder in ((line[:, 2] >= 0, 0.3, 1.5), (line[:, 2] < 0, 0.12, 1)):
            xy = np.where(front[:, None], line[:, :2], np.nan)
            ax.plot(*xy.T, color=GREY, linewidth=0.6, alpha=alpha, zorder=zorder)
