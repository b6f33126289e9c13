"""How fast do neighbouring clouds part? Their distance over that at the start, and its rate, against the bound."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from jaxflow.viz.style import GREY, INK, NOTE, TIME, axes_or_new, label_ends, new_figure, tidy_log, time_axis

ROOM = 30.0
"""The bound is followed up to so many times the largest growth."""


def colors_of(sizes: Float[np.ndarray, " k"]) -> dict[float, str]:
    """One colour per size of the first distance, dark for small."""
    each = np.unique(sizes)
    return {float(size): to_hex(TIME(x)) for size, x in zip(each, np.linspace(0.0, 0.92, len(each)))}


def plot_parting(
    ts: Float[np.ndarray, " t"],
    w2: Float[np.ndarray, "k t"],
    sizes: Float[np.ndarray, " k"],
    *,
    bound: float,
    ax: Axes | None = None,
) -> Axes:
    """W₂(t)/W₂(0) of every neighbour on a log axis, below e^{Lt}."""
    ax = axes_or_new(ax)
    ax.set_yscale("log")
    ratio = w2 / w2[:, :1]
    for size, color in colors_of(sizes).items():
        for row in ratio[sizes == size]:
            ax.plot(ts, row, color=color, linewidth=1.3, alpha=0.85)
        ax.plot([], [], color=color, label=f"{size:g}")
    low, high = float(ratio[ratio > 0].min()), float(ratio.max())
    # Only as far as the picture goes: beyond, e^{Lt} may be no number.
    elapsed = np.linspace(0.0, min(ts[-1] - ts[0], np.log(ROOM * high) / bound), 100)
    ax.plot(ts[0] + elapsed, np.exp(bound * elapsed), color=INK, linewidth=1.5, linestyle=(0, (4, 3)))
    ax.set_ylim(max(low, 1e-8 * high) / 1.3, 1.1 * max(high, float(np.exp(bound * elapsed[-1]))))
    time_axis(ax, ts)
    tidy_log(ax)
    ax.set_title(r"$W_2(\mu_t,\nu_t)\,/\,W_2(\mu_0,\nu_0)$, and $e^{Lt}$ (dashed)")
    ax.legend(title="size of the first step", loc="best", fontsize=NOTE, title_fontsize=NOTE)
    return ax


def plot_rates(
    ts: Float[np.ndarray, " t"],
    rates: Float[np.ndarray, "k s"],
    sizes: Float[np.ndarray, " k"],
    *,
    bound: float,
    sharp: Float[np.ndarray, " t"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """d/dt log W₂ between saved times, the largest rate of any small displacement of the cloud, and L."""
    ax = axes_or_new(ax)
    middle = (ts[1:] + ts[:-1]) / 2
    for size, color in colors_of(sizes).items():
        ax.plot(middle, rates[sizes == size].T, color=color, linewidth=1.3, alpha=0.85)
    ends = [(bound, f"$L={bound:.3g}$", INK)]
    ax.axhline(bound, color=INK, linewidth=1.5, linestyle=(0, (4, 3)))
    if sharp is not None:
        ax.plot(ts, sharp, color=GREY, linewidth=2.4)
        ends.append((float(sharp[-1]), "sharp for small\ndisplacements", GREY))
    shown = rates[np.isfinite(rates)]
    low = min([0.0, *shown.tolist()])
    ax.set_ylim(low - 0.08 * (bound - low), bound * 1.06)
    time_axis(ax, ts)
    ax.set_title(r"Rate $\frac{d}{dt}\log W_2$")
    label_ends(ax, ends)
    return ax


def stability(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """The distances on the left, their rates on the right."""
    figure = new_figure(4.6, width=12.0)
    left, right = figure.subplots(1, 2)
    ts, sizes, bound = arrays["ts"], arrays["size"], summary["bound"]
    plot_parting(ts, arrays["w2"], sizes, bound=bound, ax=left)
    plot_rates(ts, arrays["rates"], sizes, bound=bound, sharp=arrays.get("sharp"), ax=right)
    return figure
