"""How do tokens move on the circle S¹? Their angle against time, wrapped around at 2π."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from jaxflow.viz.style import WHEEL, axes_or_new, time_axis

TURN = 2 * np.pi
SHOWN = 400


def plot_circle(ts: Float[np.ndarray, " t"], points: Float[np.ndarray, "t n 2"], *, ax: Axes | None = None) -> Axes:
    """One thin line per token (at most 400 of them), coloured by its angle at t = 0."""
    ax = axes_or_new(ax, height=5.0, width=9.0)
    shown = points[:, np.unique(np.linspace(0, points.shape[1] - 1, SHOWN).astype(int))]
    angle = np.unwrap(np.arctan2(shown[..., 1], shown[..., 0]), axis=0)
    lines, colors = [], []
    for token in angle.T:
        # A line that winds around is drawn once per turn it touches, and cut by the frame.
        for turn in range(int(token.min() // TURN), int(token.max() // TURN) + 1):
            lines.append(np.column_stack([ts, token - TURN * turn]))
            colors.append(WHEEL((token[0] % TURN) / TURN))
    alpha = float(np.clip(40 / shown.shape[1], 0.25, 0.8))
    ax.add_collection(LineCollection(lines, colors=colors, linewidths=1.0, alpha=alpha, rasterized=len(lines) > 150))
    time_axis(ax, ts)
    ax.set(
        ylim=(0, TURN),
        ylabel="angle of token",
        title="Tokens on the circle, coloured by their angle at $t=0$",
    )
    ax.set_yticks(np.linspace(0, TURN, 5), ["0", r"$\pi/2$", r"$\pi$", r"$3\pi/2$", r"$2\pi$"])
    return ax
