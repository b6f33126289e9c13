"""Where is the mass of a density on S¹ or S², and does its degree resolve it? Densities, spectra, clouds beside it."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from jaxflow.viz.globe import draw_ball, view
from jaxflow.viz.snapshots import moments_shown
from jaxflow.viz.style import (
    BLUE,
    GREY,
    INK,
    NOTE,
    ROSE,
    TIME,
    axes_or_new,
    label_ends,
    new_figure,
    time_axis,
)

SHADES = mpl.colormaps["viridis"]
PIXELS = 241
ANGLES = 721
TURN = 2 * np.pi


def _values(c: np.ndarray, points: np.ndarray) -> np.ndarray:
    """ρ at these points, for each row of coefficients."""
    # JAX takes a moment to load, and only these figures need it.
    import jax.numpy as jnp

    from jaxflow.meanfield import Density

    x = jnp.asarray(points, c.dtype)
    return np.stack([np.asarray(Density(jnp.asarray(row), points.shape[1])(x)) for row in c])


def plot_density_globe(c: Float[np.ndarray, " K"], *, largest: float | None = None, ax: Axes | None = None) -> Axes:
    """A density on S², seen from far away (the near side); colours from 0 to `largest`."""
    ax = axes_or_new(ax, height=5.0, width=5.0)
    draw_ball(ax)
    side = np.linspace(-1, 1, PIXELS)
    right, up = np.meshgrid(side, side)
    inside = right**2 + up**2 <= 1
    depth = np.sqrt(np.maximum(1 - right**2 - up**2, 0))
    seen = np.stack([right, up, depth], axis=-1)
    # The rows of the view are an orthonormal frame: its transpose is its inverse.
    points = (seen @ view(np.eye(3)).T)[inside]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    image = np.full(inside.shape, np.nan)
    image[inside] = _values(c[None], points)[0]
    shown = ax.imshow(
        image, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear", zorder=0.5,
        cmap=SHADES, norm=Normalize(0, largest or float(np.nanmax(image))),
    )  # fmt: skip
    rim = Circle((0, 0), 1, facecolor="none", edgecolor=GREY, linewidth=0.9, zorder=3)
    ax.add_patch(rim)
    shown.set_clip_path(rim)
    ax.set(xlim=(-1.03, 1.03), ylim=(-1.03, 1.03), aspect="equal")
    ax.set_axis_off()
    return ax


def plot_density_circle(ts: Float[np.ndarray, " t"], c: Float[np.ndarray, "t K"], *, ax: Axes | None = None) -> Axes:
    """Densities on S¹ against the angle, one line for each of these times."""
    ax = axes_or_new(ax, height=5.0)
    angle = np.linspace(0, TURN, ANGLES)
    rho = _values(c, np.stack([np.cos(angle), np.sin(angle)], axis=1))
    for i, row in enumerate(rho):
        color = TIME(i / max(len(rho) - 1, 1))
        ax.plot(angle, row, color=color, label=f"$t = {ts[i]:.3g}$")
    ax.axhline(1 / TURN, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), alpha=0.5)
    ax.set(xlim=(0, TURN), ylabel=r"$\rho$")
    ax.set_xlabel("angle")
    _angle_ticks(ax)
    # Above the axes: within them no place is free of curves.
    ax.legend(fontsize=NOTE, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, columnspacing=1.2)
    return ax


def plot_density_strip(ts: Float[np.ndarray, " t"], c: Float[np.ndarray, "t K"], *, ax: Axes | None = None) -> Axes:
    """ρ over time and angle on S¹."""
    ax = axes_or_new(ax, height=5.0)
    angle = np.linspace(0, TURN, 361)
    rho = _values(c, np.stack([np.cos(angle), np.sin(angle)], axis=1))
    ax.pcolormesh(ts, angle, rho.T, cmap=SHADES, vmin=0, shading="gouraud", rasterized=True)
    time_axis(ax, ts)
    ax.set(ylim=(0, TURN), ylabel="angle", title="Density over time")
    _angle_ticks(ax, vertical=True)
    return ax


def _angle_ticks(ax: Axes, *, vertical: bool = False) -> None:
    ticks = np.linspace(0, TURN, 5), ["0", r"$\pi/2$", r"$\pi$", r"$3\pi/2$", r"$2\pi$"]
    (ax.set_yticks if vertical else ax.set_xticks)(*ticks)


def plot_spectrum(ts: Float[np.ndarray, " t"], power: Float[np.ndarray, "t l"], *, ax: Axes | None = None) -> Axes:
    """√Σ_m c_lm² against the degree l, one line for each of these times; flat to the end means: too low a degree."""
    ax = axes_or_new(ax)
    size = np.sqrt(np.maximum(power, 1e-40))
    for i, row in enumerate(size):
        ax.plot(np.arange(len(row)), row, color=TIME(i / max(len(size) - 1, 1)), linewidth=1.5)
    ax.set_yscale("log")
    ax.set(xlim=(0, power.shape[1] - 1), xlabel="degree $l$", title="Spectrum: dark early, light late")
    ax.set_ylim(bottom=max(float(size.min()) / 3, 1e-18))
    return ax


def plot_extremes(
    ts: Float[np.ndarray, " t"],
    least: Float[np.ndarray, " t"],
    largest: Float[np.ndarray, " t"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Smallest and largest ρ. The axis is logarithmic where all are positive."""
    ax = axes_or_new(ax)
    ends = []
    for values, name, color in ((largest, r"max $\rho$", ROSE), (least, r"min $\rho$", BLUE)):
        ax.plot(ts, values, color=color)
        ends.append((float(values[-1]), name, color))
    if least.min() > 0:
        ax.set_yscale("log")
    else:
        ax.axhline(0, color=INK, linewidth=0.6, alpha=0.5)
    time_axis(ax, ts)
    ax.set_title("Smallest and largest density")
    label_ends(ax, ends)
    return ax


def plot_clouds(
    n: Int[np.ndarray, " k"],
    distances: Float[np.ndarray, "k r"],
    sampling: Float[np.ndarray, " k"],
    *,
    exponent: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Distances of clouds to the density over their number of tokens, and those of independent samples."""
    ax = axes_or_new(ax)
    ax.plot(np.repeat(n, distances.shape[1]), distances.reshape(-1), "o", color=BLUE, alpha=0.45, markersize=5)
    ax.plot(n, distances.mean(1), color=BLUE, label="clouds moved by the flow, mean")
    ax.plot(n, sampling, color=INK, linestyle=(0, (4, 3)), linewidth=1.2, label="independent samples of the end, exact")
    ax.set(xscale="log", yscale="log", xlabel="tokens $n$", ylabel="distance to the density")
    power = "" if exponent is None else rf": $\propto n^{{p}}$, $p = {exponent[0]:.3f} \pm {exponent[1]:.3f}$"
    ax.set_title("Clouds against the density" + power)
    ax.legend(fontsize=NOTE)
    return ax


def densities(ts: np.ndarray, c: np.ndarray, *, dim: int, largest: np.ndarray) -> Figure:
    """The figure of a density at several times."""
    shown = moments_shown(ts)
    if dim == 2:
        figure = new_figure(4.6)
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        plot_density_circle(ts[shown], c[shown], ax=left)
        plot_density_strip(ts, c, ax=right)
        return figure
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(0.9 + rows * (10.0 / columns) * 0.98)
    cells = figure.subplots(rows, columns, squeeze=False)
    top = float(largest[shown].max())
    for i, ax in enumerate(cells.flat):
        if i < len(shown):
            plot_density_globe(c[shown[i]], largest=top, ax=ax)
            ax.set_title(f"$t = {ts[shown[i]]:.3g}$", loc="center")
        else:
            ax.remove()
    mapped = ScalarMappable(Normalize(0, top), SHADES)
    bar = figure.colorbar(mapped, ax=figure.axes, orientation="horizontal", fraction=0.04, aspect=50, pad=0.02)
    bar.set_label(r"$\rho$ (uniform: $1/4\pi = 0.0796$)")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def resolution(ts: np.ndarray, arrays: dict[str, np.ndarray]) -> Figure:
    """Extremes on the left, spectra on the right."""
    figure = new_figure(4.2)
    left, right = figure.subplots(1, 2)
    plot_extremes(ts, arrays["least"], arrays["largest"], ax=left)
    shown = moments_shown(ts)
    plot_spectrum(ts[shown], arrays["power"][shown], ax=right)
    return figure


def meanfield(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> dict[str, Figure]:
    """The figures of a run, without those of its energy."""
    ts = arrays["ts"]
    drawn = {
        "densities": densities(ts, arrays["coefficients"], dim=int(arrays["dim"]), largest=arrays["largest"]),
        "resolution": resolution(ts, arrays),
    }
    if "clouds" in arrays:
        figure = new_figure(4.6, width=7.0)
        exponent = summary.get("exponent")
        found = None if exponent is None else (exponent, summary["exponent_std"])
        plot_clouds(arrays["clouds"], arrays["distances"], arrays["sampling"], exponent=found, ax=figure.add_subplot())
        drawn["clouds"] = figure
    return drawn
