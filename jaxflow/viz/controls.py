"""What did the controls do, and how did the search for them go? Norms over time, distance over iterations."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from jaxflow.viz.style import (
    BLUE,
    GREEN,
    GREY,
    OCHRE,
    PURPLE,
    ROSE,
    axes_or_new,
    label_ends,
    tidy_log,
    time_axis,
)

DASHES = (0, (4, 3))
COLORS = {"A": BLUE, "B": ROSE, "V": GREEN, "b": PURPLE}


def plot_controls(
    ts: Float[np.ndarray, " t"],
    controls: dict[str, np.ndarray],
    *,
    bounds: dict[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """‖A‖, ‖B‖, ‖V‖ (Frobenius, over all heads) and |b| over time, and their bounds (dashed).

    Controls (t, ...) at the times ts are drawn as lines; (t − 1, ...) are constant between these times: steps.
    """
    ax = axes_or_new(ax, height=3.5)
    ends = []
    bounds = bounds or {}
    for name, values in controls.items():
        norms = np.sqrt(np.sum(values.reshape(len(values), -1) ** 2, axis=1))
        color = COLORS.get(name, GREY)
        if len(values) == len(ts):
            ax.plot(ts, norms, color=color, linewidth=1.8)
        else:
            ax.stairs(norms, ts, baseline=None, color=color, linewidth=1.8)
        if name in bounds:
            ax.axhline(bounds[name], color=color, linestyle=DASHES, linewidth=1.0, alpha=0.8)
        bars = "|" if name == "b" else r"\Vert "
        ends.append((float(norms[-1]), f"${bars}{name}{bars}$", color))
    time_axis(ax, ts)
    ax.set(ylabel="norm", title="Controls, and their bounds (dashed)" if bounds else "Controls")
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    label_ends(ax, ends)
    return ax


def plot_convergence(
    history: Float[np.ndarray, "i 2"],
    *,
    labels: tuple[str, str] = ("objective", "$W_2$"),
    tolerance: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The objective and W₂, or what else the labels say, at each iteration on a log axis; what is not finite and
    positive is a gap."""
    ax = axes_or_new(ax, height=3.5)
    ax.set_yscale("log")
    shown = np.where(np.isfinite(history) & (history > 0), history, np.nan)
    iteration = np.arange(len(history))
    ends = []
    for column, (label, color) in enumerate(zip(labels, (OCHRE, BLUE))):
        values = shown[:, column]
        present = values[np.isfinite(values)]
        if present.size:
            marker = "o" if present.size < 30 else None
            ax.plot(iteration, values, color=color, marker=marker, markersize=3.5)
            ends.append((float(present[-1]), label, color))
    if tolerance is not None:
        ax.axhline(tolerance, color=GREY, linestyle=DASHES, linewidth=1.1)
        ends.append((tolerance, "tolerance", GREY))
    tidy_log(ax)
    ax.set(xlim=(0, max(len(history) - 1, 1)), xlabel="iteration", title="Search")
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    label_ends(ax, ends)
    return ax


def plot_approach(ts: Float[np.ndarray, " t"], distance: Float[np.ndarray, " t"], *, ax: Axes | None = None) -> Axes:
    """The distance W₂ to the target along the path: the picture of a control that needed no search."""
    ax = axes_or_new(ax, height=3.5)
    ax.plot(ts, distance, color=BLUE)
    time_axis(ax, ts)
    ax.set(ylabel="$W_2$", title="Distance to the target")
    ax.set_ylim(bottom=0)
    return ax


def distances(
    mean: Float[np.ndarray, "t d"],
    covariance: Float[np.ndarray, "t d d"],
    target_mean: Float[np.ndarray, " d"],
    target_covariance: Float[np.ndarray, "d d"],
) -> Float[np.ndarray, " t"]:
    """W₂² = |μ−μ₁|² + tr(Σ+Σ₁) − 2‖Σ^{½}Σ₁^{½}‖_*."""
    cross = np.linalg.svd(_root(covariance) @ _root(target_covariance), compute_uv=False).sum(-1)
    spread = np.trace(covariance, axis1=-2, axis2=-1) + np.trace(target_covariance) - 2 * cross
    return np.sqrt(np.maximum(np.sum((mean - target_mean) ** 2, axis=-1) + spread, 0))


def _root(covariance: np.ndarray) -> np.ndarray:
    eigenvalues, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(eigenvalues, 0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
