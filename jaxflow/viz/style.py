"""How do all figures look? Colours, line widths, sizes, and figures that keep this style when saved.

The palette is Paul Tol's "bright" scheme, which stays distinct under every common colour blindness.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

BLUE, ROSE, GREEN, PURPLE, OCHRE, CYAN = "#4477aa", "#ee6677", "#228833", "#aa3377", "#b8a125", "#44a8cc"
PALETTE = (BLUE, ROSE, GREEN, PURPLE, OCHRE, CYAN)
INK, GREY, FAINT = "#23282e", "#757c86", "#d5d9de"

DOTS_PER_INCH = 160
WIDTH = 10.0
NOTE = 11.0

STYLE: Any = {
    "figure.facecolor": "white",
    "figure.dpi": DOTS_PER_INCH,
    "font.size": 11.5,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "axes.titlesize": 12.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.linewidth": 0.9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "mathtext.fontset": "dejavusans",
    "axes.prop_cycle": cycler(color=PALETTE),
}


class StyledFigure(Figure):
    """A figure that is drawn in `STYLE` wherever it is saved: matplotlib makes ticks only while drawing."""

    def draw(self, renderer: Any) -> None:
        with mpl.rc_context(STYLE):
            super().draw(renderer)


def new_figure(height: float, *, width: float = WIDTH) -> StyledFigure:
    """An empty figure of this size in inches, independent of pyplot."""
    with mpl.rc_context(STYLE):
        return StyledFigure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def axes_or_new(ax: Axes | None, *, height: float = 5.0, width: float = 7.0) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    with mpl.rc_context(STYLE):
        return new_figure(height, width=width).add_subplot()


# Plasma without its glaring yellow end: perceptually uniform, and dark enough for thin lines on white.
TIME: Colormap = ListedColormap(mpl.colormaps["plasma"](np.linspace(0.04, 0.74, 256)), name="time")
# Once around the palette and back: for angles.
WHEEL: Colormap = LinearSegmentedColormap.from_list("wheel", [BLUE, CYAN, GREEN, OCHRE, ROSE, PURPLE, BLUE])


# Keeps words legible where they lie on points and lines.
HALO = [withStroke(linewidth=3, foreground="white", alpha=0.85)]


def time_axis(ax: Axes, ts: np.ndarray) -> None:
    """The horizontal axis is time, from the first saved time to the last."""
    ax.set_xlim(ts[0], ts[-1] if ts[-1] > ts[0] else ts[0] + 1)
    ax.set_xlabel("time $t$")
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def tidy_log(ax: Axes) -> None:
    """Plain numbers on a log axis that spans about a decade, where powers of ten would be too few."""
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log" and high < 50 * low and low > 1e-4 and high < 1e5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def label_ends(ax: Axes, entries: Sequence[tuple[float, str, str]]) -> None:
    """Write (height, text, colour) right of the axes, at the ends of their curves but never on each other.

    Call it when the axes have their scale and data: heights are in data coordinates.
    """
    low, high = ax.get_ylim()
    x = ax.get_xlim()[1]
    to_fraction = ax.transScale + ax.transLimits
    heights = [float(to_fraction.transform((x, min(max(y, low), high)))[1]) for y, _, _ in entries]
    inches = ax.get_position().height * ax.get_figure(root=True).get_figheight()  # pyright: ignore[reportOptionalMemberAccess]
    for (_, text, color), height in zip(entries, spread(heights, gap=0.23 / inches)):
        ax.annotate(
            text, (1, height), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
            color=color, fontsize=NOTE + 0.5, va="center", ha="left", annotation_clip=False,
        )  # fmt: skip


def spread(heights: Sequence[float], *, gap: float, low: float = 0.03, high: float = 1.0) -> list[float]:
    """The nearest heights in the same order (least squares) `gap` apart or more, in [low, high]."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    # Labels that touch form a block (sum of wanted bottom positions, number), which sits at their mean.
    blocks: list[list[float]] = []
    for rank, i in enumerate(order):
        blocks.append([heights[i] - gap * rank, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, number = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += number
    bases = [total / number for total, number in blocks for _ in range(int(number))]
    placed = [0.0] * len(heights)
    for rank, (i, base) in enumerate(zip(order, bases)):
        placed[i] = max(min(base, high - gap * (len(heights) - 1)), low) + gap * rank
    return placed
