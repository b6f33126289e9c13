"""How do the mean and covariance of a Gaussian evolve? Ellipses, eigenvalues, blow-up, and κ_eff."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.ellipses import evenly, name_ellipse, plot_ellipse, plot_ellipses
from jaxflow.viz.layout import picture_and_panels, shape_of
from jaxflow.viz.line import plot_line_band
from jaxflow.viz.plane import path_plane
from jaxflow.viz.style import BLUE, GREY, INK, NOTE, ROSE, TIME, axes_or_new, tidy_log, time_axis

# Before a blow-up the ellipses outgrow any picture: it ends when they are this many times as wide as first.
OUTGROWN = 8.0


def plot_moments(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t d"],
    covariance: Float[np.ndarray, "t d d"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Ellipses along time and the path of the mean; for d = 1 bands against time."""
    ax = axes_or_new(ax, height=6.0, width=6.5)
    if mean.shape[1] == 1:
        plot_line_band(ts, mean, covariance, ax=ax)
        return ax
    plane = path_plane(mean, covariance)
    centres, spreads = plane.points(mean), plane.covariances(covariance)
    shown = evenly(ts, 14)
    plot_ellipses(ts[shown], centres[shown], spreads[shown], ax=ax)
    plot_ellipse(centres[0], spreads[0], color=TIME(0.0), ax=ax)
    if len(ts) > 1:
        plot_ellipse(centres[-1], spreads[-1], color=TIME(1.0), ax=ax)
    ax.plot(*centres.T, color=INK, linewidth=1.1, alpha=0.8, zorder=3)
    ax.plot(*centres[0], "o", color=TIME(0.0), markersize=5, zorder=3.5)
    ax.plot(*centres[-1], "o", color=TIME(1.0), markersize=5, zorder=3.6)
    # Names on opposite sides stay apart where the ellipses lie in each other.
    sinks = _lies_lower(centres[[0, -1]], spreads[[0, -1]])
    name_ellipse(ax, centres[0], spreads[0], text=f"$t = {ts[0]:.3g}$", color=TIME(0.0), up=sinks)
    if len(ts) > 1:
        name_ellipse(ax, centres[-1], spreads[-1], text=f"$t = {ts[-1]:.3g}$", color=TIME(1.0), up=not sinks)
    # Room for the names above and below: equal scales respect the data limits alone, not the margins.
    low, high = ax.dataLim.intervaly
    ax.update_datalim([(centres[0, 0], low - 0.09 * (high - low)), (centres[0, 0], high + 0.09 * (high - low))])
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xlabel=plane.labels[0], ylabel=plane.labels[1])
    return ax


def _lies_lower(centres: np.ndarray, spreads: np.ndarray) -> bool:
    """Whether the second of two ellipses has both its highest and its lowest point below those of the first."""
    reach = 2 * np.sqrt(np.maximum(spreads[:, 1, 1], 0))
    return bool(np.all(np.diff(np.stack([centres[:, 1] - reach, centres[:, 1] + reach])) < 0))


def plot_eigenvalues(
    ts: Float[np.ndarray, " t"],
    eigenvalues: Float[np.ndarray, "t r"],
    *,
    blowup_time: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The eigenvalues of Σ on a log axis, and the time at which they run off to infinity."""
    ax = axes_or_new(ax, height=3.5)
    positive = np.where(eigenvalues > 0, eigenvalues, np.nan)
    if np.any(eigenvalues > 0):
        ax.set_yscale("log")
    for i, values in enumerate(positive.T):
        # The largest dark, the smallest light.
        ax.plot(ts, values, color=BLUE, alpha=0.4 + 0.6 * (i + 1) / positive.shape[1], linewidth=1.6)
    tidy_log(ax)
    _time_to_blowup(ax, ts, blowup_time)
    if blowup_time is not None:
        ax.annotate(
            f"$t^* = {blowup_time:.4g}$", (blowup_time, 1), xycoords=("data", "axes fraction"), xytext=(0, 5),
            textcoords="offset points", ha="right", va="bottom", color=INK, fontsize=NOTE,
        )  # fmt: skip
    ax.set_title(r"Eigenvalues of $\Sigma$")
    return ax


def plot_kappa(
    ts: Float[np.ndarray, " t"],
    kappa: Float[np.ndarray, " t"],
    *,
    blowup_time: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """κ_eff = ‖Σ^{½}BΣ^{½}‖: finitely many tokens follow the Gaussian while it is below about 1."""
    ax = axes_or_new(ax, height=3.5)
    positive = kappa[kappa > 0]
    logarithmic = positive.size == kappa.size and positive.max() > 20 * positive.min()
    if logarithmic:
        ax.set_yscale("log")
    ax.plot(ts, kappa, color=ROSE)
    ax.axhline(1, color=GREY, linestyle=(0, (4, 3)), linewidth=1.1)
    tidy_log(ax)
    if not logarithmic:
        ax.set_ylim(bottom=0, top=max(1.25, ax.get_ylim()[1]))
    _time_to_blowup(ax, ts, blowup_time)
    ax.set_title(r"$\kappa_{\mathrm{eff}}$: closure holds below about 1")
    return ax


def _time_to_blowup(ax: Axes, ts: np.ndarray, time: float | None) -> None:
    """The time axis; with a blow-up it ends there, at a dashed line."""
    time_axis(ax, ts)
    if time is not None:
        ax.set_xlim(ts[0], ts[0] + 1.06 * (time - ts[0]) if time > ts[0] else ts[0] + 1)
        ax.axvline(time, color=INK, linestyle=(0, (4, 3)), linewidth=1.1)


def moments(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The figure of a `moments` run; what comes after a blow-up is left out."""
    valid = arrays["valid"].astype(bool)
    ts, mean, covariance, eigenvalues, kappa = (
        arrays[name][valid] for name in ("ts", "mean", "covariance", "eigenvalues", "kappa")
    )
    blowup = summary.get("blowup_time")
    fits = _fits(mean, covariance) if blowup is not None else np.ones(len(ts), bool)
    figure, left, top, bottom = picture_and_panels(shape_of(mean[fits], covariance[fits], deviations=2.1))
    plot_moments(ts[fits], mean[fits], covariance[fits], ax=left)
    until = "" if fits.all() else f" up to $t = {ts[fits][-1]:.3g}$, growing beyond"
    left.set_title("Mean and covariance" + until)
    plot_eigenvalues(ts, eigenvalues, blowup_time=blowup, ax=top)
    plot_kappa(ts, kappa, blowup_time=blowup, ax=bottom)
    return figure


def _fits(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Times until the ellipse has outgrown the picture; always the first."""
    width = np.sqrt(np.maximum(np.trace(covariance, axis1=1, axis2=2), 0)) + np.linalg.norm(mean - mean[0], axis=1)
    return np.cumsum(width > OUTGROWN * max(width[0], np.finfo(float).tiny)) == 0
