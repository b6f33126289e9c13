"""How long do Gaussian tokens stay Gaussian in a trained encoder? Departures by depth beside their null band, the
spectra of the covariances, and where equation (1.1) says that the covariance goes."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxflow.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    NOTE,
    OCHRE,
    PURPLE,
    ROSE,
    TIME,
    axes_or_new,
    new_figure,
    tidy_log,
)

SHOWN = {
    "sliced": "Sliced $W_2$ to the Gaussian, over $\\sqrt{\\mathrm{tr}\\,\\Sigma/d}$",
    "marginals": "Share of coordinates rejected at 5 %",
    "kurtosis": "Mardia kurtosis, over $r(r+2)$",
}
"""The departures that are drawn, and their titles."""


def plot_departure_by_depth(
    measured: Float[np.ndarray, "l p"], null: Float[np.ndarray, "l k"], *, ax: Axes | None = None, color: str = BLUE
) -> Axes:
    """One departure after every block: the mean over sequences and its standard error; grey: 95 % of true Gaussians."""
    ax = axes_or_new(ax)
    depth = np.arange(len(measured))
    low, high = np.quantile(null, [0.025, 0.975], axis=1)
    ax.fill_between(depth, low, high, color=GREY, alpha=0.3, linewidth=0)
    error = measured.std(1, ddof=1) / np.sqrt(measured.shape[1]) if measured.shape[1] > 1 else np.zeros(len(measured))
    ax.errorbar(depth, measured.mean(1), yerr=error, color=color, marker="o", markersize=4.2, linewidth=1.5, capsize=2)
    _depth_axis(ax, len(depth))
    return ax


def plot_spectra(eigenvalues: Float[np.ndarray, "l d"], *, ax: Axes | None = None) -> Axes:
    """The eigenvalues of the covariance after every block over their sum, largest first; colours run with depth."""
    ax = axes_or_new(ax)
    ax.set_yscale("log")
    shares = eigenvalues / eigenvalues.sum(1, keepdims=True)
    rank = np.arange(1, shares.shape[1] + 1)
    for i, row in enumerate(shares):
        color = TIME(i / max(1, len(shares) - 1))
        ax.plot(rank, np.where(row > 0, row, np.nan), color=color, linewidth=1.3)
    ax.set_xscale("log")
    ax.set_xlim(1, rank[-1])
    ax.set_ylim(bottom=1e-6)
    ax.set_xlabel("eigenvalue of $\\Sigma$, from the largest")
    for i, words in ((0, "what enters"), (len(shares) - 1, f"after block {len(shares) - 1}")):
        ax.annotate(
            words, (0.03, 0.14 - 0.09 * (i > 0)), xycoords="axes fraction", fontsize=NOTE,
            color=TIME(i / max(1, len(shares) - 1)),
        )  # fmt: skip
    return ax


def plot_prediction(
    measured: Float[np.ndarray, " l"], predicted: Float[np.ndarray, " b"], *, ax: Axes | None = None
) -> Axes:
    """tr Σ after every block (dots), and what (1.1) makes of the tokens before it (arrows from dot to cross)."""
    ax = axes_or_new(ax)
    ax.set_yscale("log")
    depth = np.arange(len(measured))
    ax.plot(depth, measured, "o", color=BLUE, markersize=5, label="measured")
    for i, value in enumerate(predicted):
        ax.plot([i, i + 1], [measured[i], value], color=ROSE, linewidth=1.0, alpha=0.7)
    ax.plot(depth[1:], predicted, "x", color=ROSE, markersize=6, mew=1.6, label="by (1.1) from the block before")
    tidy_log(ax)
    _depth_axis(ax, len(depth))
    ax.legend(loc="best", fontsize=NOTE - 1)
    return ax


def plot_heads(
    kappa: Float[np.ndarray, "b h"], tilt: Float[np.ndarray, "b h"], *, tokens: int, ax: Axes | None = None
) -> Axes:
    """κ and the tilt θ of every head, with the lines κ = 1 and θ² = ln n below which n tokens follow (1.1)."""
    ax = axes_or_new(ax)
    ax.set_yscale("log")
    for values, color, shift, words in (
        (kappa, BLUE, -0.12, r"strength $\kappa$"),
        (tilt, OCHRE, 0.12, r"tilt $\theta$"),
    ):
        at = np.broadcast_to(np.arange(1, len(values) + 1)[:, None] + shift, values.shape)
        ax.plot(at.ravel(), values.ravel(), "o", color=color, markersize=3.4, alpha=0.75, mew=0, label=words)
    for level, color in ((1.0, BLUE), (float(np.sqrt(np.log(tokens))), OCHRE)):
        ax.axhline(level, color=color, linestyle=(0, (4, 3)), linewidth=1.1)
    ax.legend(loc="best", fontsize=NOTE - 1)
    _depth_axis(ax, len(kappa) + 1, start=1, words="block")
    return ax


def pretrained(arrays: dict[str, np.ndarray], summary: dict[str, Any], config: Any) -> Figure:
    """Three departures above; below the spectra, and where blocks have a B the prediction and the heads."""
    figure = new_figure(7.2, width=12.5)
    axes = figure.subplots(2, 3)
    for ax, (name, title), color in zip(axes[0], SHOWN.items(), (BLUE, GREEN, PURPLE)):
        plot_departure_by_depth(arrays[f"measured_{name}"], arrays[f"null_{name}"], ax=ax, color=color)
        ax.set_title(title)
    plot_spectra(arrays["eigenvalues"], ax=axes[1, 0])
    axes[1, 0].set_title("Spectra of the covariances")
    if "kappa" not in arrays:
        for ax in axes[1, 1:]:
            ax.remove()
        return figure
    plot_prediction(arrays["eigenvalues"].sum(1), arrays["predicted_eigenvalues"].sum(1), ax=axes[1, 1])
    axes[1, 1].set_title(r"tr $\Sigma$")
    plot_heads(arrays["kappa"], arrays["tilt"], tokens=config.measure.tokens, ax=axes[1, 2])
    axes[1, 2].set_title("Heads: (1.1) needs them below the lines")
    axes[0, 0].annotate(
        "95 % of true Gaussians", (0.03, 0.93), xycoords="axes fraction", color=INK, alpha=0.6, fontsize=NOTE
    )
    return figure


def _depth_axis(ax: Axes, count: int, *, start: int = 0, words: str = "after block") -> None:
    ax.set_xlim(start - 0.5, start + max(1, count - 1 - start) + 0.5)
    ax.set_xlabel(words)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
