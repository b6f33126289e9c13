"""How fast does the energy fall, and how far? The two dissipations G² and R, and E itself, against time."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.bands import over, plot_band, plot_positive_band
from jaxflow.viz.style import BLUE, GREEN, HALO, NOTE, ROSE, axes_or_new, label_ends, new_figure, time_axis


def plot_dissipation(
    ts: Float[np.ndarray, " t"],
    slope: Float[np.ndarray, "p t"],
    rate: Float[np.ndarray, "p t"],
    *,
    ax: Axes | None = None,
) -> Axes:
    """G² and the true rate R on a log axis. R is left out where it is negative, and a mark below says so."""
    ax = axes_or_new(ax)
    ends = []
    negative = rate.mean(0) < 0
    # G² is the broader line, so that it shows behind R where the two agree.
    for values, name, color, width in ((slope, "$G^2$", ROSE, 3.6), (rate, "$R$", BLUE, 1.4)):
        plot_positive_band(ts, values, color=color, ax=ax, width=width)
        mean = values.mean(0)
        if np.any(mean > 0):
            ends.append((float(mean[mean > 0][-1]), name, color))
    if negative.any():
        # A rug along the bottom: the energy rises at these times.
        ax.plot(
            ts[negative], np.full(negative.sum(), 0.012), "|", transform=ax.get_xaxis_transform(),
            color=BLUE, markersize=6, alpha=0.7,
        )  # fmt: skip
        ax.annotate(
            "marks: $R<0$, clipped",
            (0.015, 0.035),
            xycoords="axes fraction",
            color=BLUE,
            fontsize=NOTE,
            va="bottom",
            path_effects=HALO,
        )
    time_axis(ax, ts)
    ax.set_title("Dissipation: $G^2$ and the true rate $R$" + over(len(rate)))
    label_ends(ax, ends)
    return ax


def plot_energy(ts: Float[np.ndarray, " t"], energy: Float[np.ndarray, "p t"], *, ax: Axes | None = None) -> Axes:
    """E(t)."""
    ax = axes_or_new(ax)
    plot_band(ts, energy, color=GREEN, ax=ax)
    time_axis(ax, ts)
    ax.set_title("Energy $E$")
    return ax


def dissipation(ts: np.ndarray, arrays: dict[str, np.ndarray]) -> Figure:
    """Dissipation on the left, energy on the right."""
    figure = new_figure(4.4)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1), wspace=0.05)
    left, right = (figure.add_subplot(cell) for cell in grid)
    plot_dissipation(ts, arrays["slope"], arrays["rate"], ax=left)
    plot_energy(ts, arrays["energy"], ax=right)
    return figure
