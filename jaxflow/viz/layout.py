"""Where do a picture and the two small panels that explain it go? Beside it, or below if it is wide."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxflow.viz.plane import path_plane
from jaxflow.viz.style import new_figure

WIDE = 1.5


def shape_of(mean: np.ndarray, covariance: np.ndarray, *, deviations: float) -> float:
    """Width over height of the picture of Gaussians along a path; against time (d = 1) it is square."""
    if mean.shape[1] == 1:
        return 1.0
    plane = path_plane(mean, covariance)
    centres, spreads = plane.points(mean), plane.covariances(covariance)
    reach = deviations * np.sqrt(np.maximum(np.diagonal(spreads, axis1=1, axis2=2), 0))
    width, height = np.max(centres + reach, axis=0) - np.min(centres - reach, axis=0)
    return float(width / height) if height > 0 else np.inf


def picture_and_panels(shape: float) -> tuple[Figure, Axes, Axes, Axes]:
    """A new figure, with axes for a picture of this shape and for two small panels."""
    if shape > WIDE:
        tall = float(np.clip(9.0 / shape, 3.0, 5.2))
        figure = new_figure(tall + 3.5)
        grid = figure.add_gridspec(2, 2, height_ratios=(tall, 2.5), wspace=0.06, hspace=0.06)
        cells = grid[0, :], grid[1, 0], grid[1, 1]
    else:
        figure = new_figure(6.0)
        grid = figure.add_gridspec(2, 2, width_ratios=(1.9, 1), wspace=0.06, hspace=0.08)
        cells = grid[:, 0], grid[0, 1], grid[1, 1]
    picture, first, second = (figure.add_subplot(cell) for cell in cells)
    return figure, picture, first, second
