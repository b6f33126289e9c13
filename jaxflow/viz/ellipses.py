"""How does a Gaussian look in the plane? The ellipse {x : (x−μ)ᵀΣ⁻¹(x−μ) = s²} of s standard deviations."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from jaxflow.viz.style import HALO, NOTE, TIME, axes_or_new


def ellipse(
    mean: Float[np.ndarray, "2"],
    covariance: Float[np.ndarray, "2 2"],
    *,
    deviations: float = 1.0,
    n: int = 181,
) -> Float[np.ndarray, "n 2"]:
    """The closed curve μ + s U √Λ (cos φ, sin φ), Σ = U Λ Uᵀ, in n points; a segment where Σ has rank one."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, n)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    # Rounding can leave a zero eigenvalue slightly negative.
    return mean + deviations * (vectors @ (np.sqrt(np.maximum(eigenvalues, 0))[:, None] * circle)).T


def plot_ellipse(
    mean: Float[np.ndarray, "2"],
    covariance: Float[np.ndarray, "2 2"],
    *,
    color: Any,
    ax: Axes | None = None,
    fill: float = 0.16,
    **line: Any,
) -> Axes:
    """Ellipses of one and two standard deviations, filled with opacity `fill` (0: outlines alone)."""
    ax = axes_or_new(ax)
    for deviations in (2.0, 1.0):
        x, y = ellipse(mean, covariance, deviations=deviations).T
        if fill:
            ax.fill(x, y, facecolor=color, alpha=fill, linewidth=0, zorder=line.get("zorder", 2) - 0.5)
        ax.plot(x, y, **{"color": color, "linewidth": 1.4, "zorder": 2} | line)
    return ax


def plot_ellipses(
    ts: Float[np.ndarray, " t"],
    mean: Float[np.ndarray, "t 2"],
    covariance: Float[np.ndarray, "t 2 2"],
    *,
    ax: Axes | None = None,
    deviations: float = 2.0,
    span: tuple[float, float] | None = None,
) -> Axes:
    """Thin outlines of Gaussians at the times `ts`, coloured along `span` (absent: first to last time)."""
    ax = axes_or_new(ax)
    curves = [ellipse(m, S, deviations=deviations) for m, S in zip(mean, covariance)]
    low, high = span or (ts[0], ts[-1])
    lines = LineCollection(curves, cmap=TIME, array=ts, linewidths=0.9, alpha=0.9, zorder=1.9)
    lines.set_clim(low, high if high > low else low + 1)
    ax.add_collection(lines)
    ax.autoscale_view()
    return ax


def name_ellipse(ax: Axes, mean: np.ndarray, covariance: np.ndarray, *, text: str, color: Any, up: bool) -> None:
    """A word at the highest or lowest point of the ellipse of two deviations."""
    side = 1 if up else -1
    # The extreme point in x₂ lies at μ ± 2 Σ e₂ / √Σ₂₂.
    x, y = mean + side * 2 * covariance[:, 1] / np.sqrt(max(covariance[1, 1], np.finfo(float).tiny))
    ax.annotate(
        text, (x, y), xytext=(0, 7 * side), textcoords="offset points", color=color, fontsize=NOTE + 1.5,
        ha="center", va="bottom" if up else "top", zorder=5, path_effects=HALO,
    )  # fmt: skip


def evenly(ts: Float[np.ndarray, " t"], count: int) -> np.ndarray:
    """Indices of at most `count` saved times, spread evenly over time, first and last among them."""
    wanted = np.linspace(ts[0], ts[-1], count)
    return np.unique(np.abs(ts[None, :] - wanted[:, None]).argmin(axis=1))
