"""What does the number of heads change? Dissipation, energy and both balances of the same run with each number."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from jaxflow.viz.balance import balance
from jaxflow.viz.bands import over, plot_band, plot_positive_band
from jaxflow.viz.powers import draw_power, label_powers
from jaxflow.viz.snapshots import snapshots
from jaxflow.viz.style import (
    BLUE,
    HALO,
    INK,
    NOTE,
    ROSE,
    TIME,
    axes_or_new,
    label_ends,
    new_figure,
    tidy_log,
    time_axis,
)


def colors_of(heads: Int[np.ndarray, " k"]) -> list[str]:
    """One colour per number of heads, dark for few."""
    return [to_hex(TIME(x)) for x in np.linspace(0.0, 0.92, len(heads))]


def plot_by_heads(
    ts: Float[np.ndarray, " t"],
    heads: Int[np.ndarray, " k"],
    values: Float[np.ndarray, "k p t"],
    *,
    log: bool = False,
    label: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One band per number of heads; on a log axis where the mean is positive."""
    ax = axes_or_new(ax)
    ends = []
    for each, x, color in zip(heads, values, colors_of(heads)):
        (plot_positive_band if log else plot_band)(ts, x, color=color, ax=ax)
        mean = x.mean(0)
        shown = mean[mean > 0] if log else mean
        if shown.size:
            ends.append((float(shown[-1]), f"$H={each}$", color))
    time_axis(ax, ts)
    if label:
        label_ends(ax, ends)
    return ax


def plot_exponent(
    heads: Int[np.ndarray, " k"],
    means: Float[np.ndarray, "k p"],
    *,
    exponent: float | None,
    error: float | None,
    name: str,
    color: str,
    ax: Axes | None = None,
) -> Axes:
    """Time means against H on log axes: every path a dot, their mean, and the fitted power through it."""
    ax = axes_or_new(ax)
    ax.set(xscale="log", yscale="log")
    center = means.mean(1)
    for each, x in zip(heads, means):
        ax.plot(np.full(x.size, each), np.where(x > 0, x, np.nan), "o", color=color, markersize=4, alpha=0.3, mew=0)
    ax.plot(heads, np.where(center > 0, center, np.nan), "o", color=color, markersize=8, mec="white")
    text = name
    if exponent is not None:
        draw_power(ax, heads.astype(float), center, exponent, color=color)
        spread = "" if error is None else rf" \pm {error:.3f}"
        text += rf" $\propto H^{{\,p}}$, $p = {exponent:.3f}{spread}$"
    label_powers(ax, heads.astype(float))
    ax.set_xlabel("number of heads $H$")
    ax.plot([], [], color=color, label=text)
    return ax


def dissipation(arrays: dict[str, np.ndarray], summary: dict[str, Any]) -> Figure:
    """G² and R on log axes with the same scale, and the energy with the floor of infinitely many heads."""
    ts, heads = arrays["ts"], arrays["heads"]
    figure = new_figure(4.4, width=13.0)
    left, middle, right = figure.subplots(1, 3)
    plot_by_heads(ts, heads, arrays["slope"], log=True, label=False, ax=left)
    plot_by_heads(ts, heads, arrays["rate"], log=True, label=False, ax=middle)
    bottom = min(ax.get_ylim()[0] for ax in (left, middle))
    top = max(ax.get_ylim()[1] for ax in (left, middle))
    for ax, name in ((left, "$G^2$"), (middle, "True rate $R$")):
        ax.set_ylim(bottom, top)
        ax.set_title(name)
    plot_by_heads(ts, heads, arrays["energy"], log=True, ax=right)
    floor = summary.get("energy_floor")
    if floor is not None:
        right.axhline(floor, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        right.annotate(
            f"dashed: uniform measure\nunder infinitely many heads, {floor:.4f}", (0.98, 0.97),
            xycoords="axes fraction", color=INK, fontsize=NOTE, ha="right", va="top", path_effects=HALO,
        )  # fmt: skip
    tidy_log(right)
    right.set_title("Energy $E$" + over(arrays["energy"].shape[1]))
    return figure


def exponent(arrays: dict[str, np.ndarray], summary: dict[str, Any], *, late: np.ndarray) -> Figure:
    """The time means of G² and R against H, with their fitted powers."""
    figure = new_figure(4.8, width=7.0)
    ax = figure.add_subplot()
    for name, symbol, color in (("slope", "$G^2$", ROSE), ("rate", "$R$", BLUE)):
        plot_exponent(
            arrays["heads"],
            arrays[name][..., late].mean(-1),
            exponent=summary[f"{name}_exponent"],
            error=summary[f"{name}_exponent_std"],
            name=symbol,
            color=color,
            ax=ax,
        )
    ax.legend(loc="best", handlelength=1.2)
    ax.set_title(rf"Mean over $t \geq {arrays['ts'][late][0]:.3g}$" + over(arrays["slope"].shape[1]))
    return figure


def balances(arrays: dict[str, np.ndarray]) -> Figure:
    """The residual of the published balance, with G², beside that of the true one, with R; then both over H."""
    ts, heads = arrays["ts"], arrays["heads"]
    figure = new_figure(4.4, width=13.0)
    left, middle, right = figure.subplots(1, 3)
    published, true = arrays["slope_residual"], arrays["residual"]
    for ax, values, title in ((left, published, "Published, with $G^2$"), (middle, true, "True, with $R$")):
        ax.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
        plot_by_heads(ts, heads, values, label=ax is middle, ax=ax)
        ax.set_title(title)
    low = min(ax.get_ylim()[0] for ax in (left, middle))
    high = max(ax.get_ylim()[1] for ax in (left, middle))
    left.set_ylim(low, high)
    middle.set_ylim(low, high)
    left.set_ylabel(r"$E(t)-E(0)-\int\!\partial_tE+\int\!\cdot\,-M$")
    for values, name, color in ((published, "with $G^2$", ROSE), (true, "with $R$", BLUE)):
        size = np.sqrt(np.mean(values[..., -1] ** 2, axis=1))
        right.plot(heads, np.maximum(size, np.finfo(float).tiny), "o-", color=color, label=name, linewidth=1.4)
    right.set(xscale="log", yscale="log", xlim=(heads[0] / 1.5, heads[-1] * 1.5), xlabel="number of heads $H$")
    right.set_xticks(heads, [str(h) for h in heads])
    right.xaxis.set_minor_formatter(NullFormatter())
    right.set_title(f"Residual at $t={ts[-1]:g}$, root mean square", color=INK)
    right.legend(loc="best")
    tidy_log(right)
    return figure


def sweep(arrays: dict[str, np.ndarray], summary: dict[str, Any], *, geometry: str) -> dict[str, Figure]:
    """All figures of a sweep over the number of heads: arrays have the numbers of heads as their first axis."""
    ts = arrays["ts"]
    drawn = {f"snapshots_h{h}": snapshots(ts, x, geometry=geometry) for h, x in zip(arrays["heads"], arrays["points"])}
    if "energy" not in arrays:
        return drawn
    late = ts >= summary["burn_in"] * ts[-1]
    drawn |= {
        "dissipation": dissipation(arrays, summary),
        "exponent": exponent(arrays, summary, late=late),
        "balances": balances(arrays),
    }
    per_run = ("energy", "rate_integral", "dt_energy_integral", "martingale", "residual", "slope_residual")
    for i, h in enumerate(arrays["heads"]):
        drawn[f"balance_h{h}"] = balance(ts, {name: arrays[name][i] for name in per_run})
    return drawn
