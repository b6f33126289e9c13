"""Does the balance E(t)−E(0) = ∫∂ₜE − ∫R + M close? Its terms, and the residual with R and with G²."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.bands import over, plot_band
from jaxflow.viz.style import BLUE, GREEN, INK, OCHRE, ROSE, axes_or_new, label_ends, new_figure, time_axis


def plot_balance(
    ts: Float[np.ndarray, " t"],
    energy: Float[np.ndarray, "p t"],
    rate_integral: Float[np.ndarray, "p t"],
    dt_energy_integral: Float[np.ndarray, "p t"],
    martingale: Float[np.ndarray, "p t"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """The change of energy and the terms it is made of; the martingale only where there is noise."""
    ax = axes_or_new(ax)
    terms = [
        (energy - energy[:, :1], "$E(t)-E(0)$", INK),
        (-rate_integral, r"$-\int\! R$", BLUE),
        (dt_energy_integral, r"$\int\! \partial_t E$", GREEN),
    ]
    if np.any(martingale != 0):
        terms.append((martingale, "$M$", OCHRE))
    ends = []
    ax.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
    for values, name, color in terms:
        plot_band(ts, values, color=color, ax=ax)
        ends.append((float(values[:, -1].mean()), name, color))
    time_axis(ax, ts)
    ax.set_title("Terms of the balance" + over(len(energy)) + (" ± std" if len(energy) > 1 else ""))
    label_ends(ax, ends)
    return ax


def plot_residual(
    ts: Float[np.ndarray, " t"],
    residual: Float[np.ndarray, "p t"],
    *,
    color: str = BLUE,
    ax: Axes | None = None,
) -> Axes:
    """What is left when all terms are brought to one side: zero if the balance closes."""
    ax = axes_or_new(ax, height=3.5)
    ax.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
    plot_band(ts, residual, color=color, ax=ax)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3), useMathText=True)
    time_axis(ax, ts)
    return ax


def balance(ts: np.ndarray, arrays: dict[str, np.ndarray]) -> Figure:
    """The terms on the left; the residuals, each on its own scale, on the right."""
    figure = new_figure(5.2)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.45, 1), wspace=0.06, hspace=0.08)
    left, top, bottom = (figure.add_subplot(cell) for cell in (grid[:, 0], grid[0, 1], grid[1, 1]))
    names = ("energy", "rate_integral", "dt_energy_integral", "martingale")
    plot_balance(ts, *(arrays[name] for name in names), ax=left)
    plot_residual(ts, arrays["residual"], color=BLUE, ax=top)
    plot_residual(ts, arrays["slope_residual"], color=ROSE, ax=bottom)
    # On the right, clear of the power of ten that matplotlib writes above the axis.
    top.set_title("Residual with $R$", loc="right", color=BLUE)
    bottom.set_title("Residual with $G^2$", loc="right", color=ROSE)
    top.set_xlabel("")
    return figure
