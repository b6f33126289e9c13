"""What becomes of a Gaussian under V = vI, B = bI? The simulated phases over (v, b), and their analytic boundary."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from jaxflow.viz.style import GREY, INK, STYLE, axes_or_new, new_figure

PHASES = ("decays", "settles", "grows", "blows_up", "failed")
DECAYS, SETTLES, GROWS, FAILED = "#cfe3f2", "#bfe0c5", "#ecdf9f", "#23282e"
WORDS = {
    "decays": r"decays: $\Sigma\to 0$",
    "settles": r"settles: $\Sigma\to\Sigma_\infty$",
    "grows": r"grows: $\Sigma\to\infty$",
    "failed": "solver failed",
}
# From soon (dark) to late (pale).
SOON: Colormap = LinearSegmentedColormap.from_list("soon", ["#5a1240", "#aa3377", "#ee6677", "#f9c6c0"])


def plot_phase(
    v: np.ndarray,
    b: np.ndarray,
    verdict: np.ndarray,
    blowup_time: np.ndarray,
    *,
    threshold: float,
    mean_diverges: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Simulated verdicts by colour, blow-up by its time; the curve vb = `threshold`; hatched where the mean diverges.

    Args:
        verdict: the place of each point in PHASES, (b, v). blowup_time: where it is "blows_up".
        threshold: blow-up is expected beyond it.
        mean_diverges: where to hatch, (b, v).
    """
    ax = axes_or_new(ax, height=6.0, width=7.5)
    colors = ListedColormap([DECAYS, SETTLES, GROWS, "white", FAILED])
    ax.pcolormesh(v, b, verdict, cmap=colors, vmin=-0.5, vmax=4.5, rasterized=True)
    blown = verdict == PHASES.index("blows_up")
    if blown.any():
        times = np.where(blown, blowup_time, np.nan)
        norm = LogNorm(float(np.nanmin(times)), max(float(np.nanmax(times)), 1.01 * float(np.nanmin(times))))
        mesh = ax.pcolormesh(v, b, times, cmap=SOON, norm=norm, rasterized=True)
        bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.9, pad=0.02, aspect=28)
        bar.set_label("blow-up time $t^*$")
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        bar.ax.yaxis.set_major_formatter("{x:g}")
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    if mean_diverges is not None and mean_diverges.any() and not mean_diverges.all():
        with mpl.rc_context({**STYLE, "hatch.color": GREY, "hatch.linewidth": 0.5}):
            ax.contourf(v, b, mean_diverges.astype(float), levels=[0.5, 1.5], colors="none", hatches=["///"])
    plot_boundary(v, b, threshold=threshold, ax=ax)
    ax.axhline(0, color=INK, linewidth=0.5, alpha=0.4)
    ax.axvline(0, color=INK, linewidth=0.5, alpha=0.4)
    ax.set(xlim=(v[0], v[-1]), ylim=(b[0], b[-1]), xlabel="$v$, with $V = vI$", ylabel="$b$, with $B = bI$")
    ax.set_aspect("equal")
    return ax


def plot_boundary(v: np.ndarray, b: np.ndarray, *, threshold: float, ax: Axes | None = None) -> Axes:
    """The two branches of vb = threshold; for threshold 0 the axes."""
    ax = axes_or_new(ax)
    if threshold <= 0:
        for x, y in (([0, 0, v[-1]], [b[-1], 0, 0]), ([0, 0, v[0]], [b[0], 0, 0])):
            ax.plot(x, y, color=INK, linewidth=1.8)
        return ax
    for end, far in ((v[-1], b[-1]), (v[0], b[0])):
        if end * far > threshold:
            x = np.geomspace(threshold / far, end, 200) if end > 0 else -np.geomspace(-threshold / far, -end, 200)
            ax.plot(x, threshold / x, color=INK, linewidth=1.8)
    return ax


def phase(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The diagram, with its colours named beside it."""
    figure = new_figure(6.2, width=8.2)
    ax = figure.add_subplot()
    verdict, threshold = arrays["verdict"], float(arrays["threshold"])
    bounded = verdict != PHASES.index("blows_up")
    diverges = bounded & ~arrays["expected_mean"].astype(bool)
    plot_phase(
        arrays["v"], arrays["b"], verdict, arrays["blowup_time"], threshold=threshold, mean_diverges=diverges, ax=ax
    )
    handles: list[Any] = [
        Patch(facecolor=color, label=WORDS[name])
        for name, color in zip(("decays", "settles", "grows", "failed"), (DECAYS, SETTLES, GROWS, FAILED))
        if np.any(verdict == PHASES.index(name))
    ]
    if diverges.any():
        handles.append(Patch(facecolor="white", edgecolor=GREY, hatch="///", linewidth=0, label="mean diverges"))
    handles.append(Line2D([], [], color=INK, label=f"analytic: $vb = {threshold:.3g}$"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=10.5)
    wrong = summary["disagree"] + summary["disagree_in_band"]
    ax.set_title(f"{verdict.size} simulations, {wrong} against the analytic verdict")
    return figure
