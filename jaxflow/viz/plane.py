"""Which plane shows a path of measures in R^d best? The plane of the figures, and what its axes mean."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Plane(NamedTuple):
    """Coordinates y = axes (x − origin) in a plane of R^d, with orthonormal rows `axes` and their names."""

    origin: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "2 d"]
    labels: tuple[str, str]

    def points(self, x: np.ndarray) -> np.ndarray:
        """Points (..., d) in the plane: (..., 2)."""
        return (x - self.origin) @ self.axes.T

    def covariances(self, covariance: np.ndarray) -> np.ndarray:
        """Covariances (..., d, d) of the projected measures: (..., 2, 2)."""
        return self.axes @ covariance @ self.axes.T


def path_plane(mean: Float[np.ndarray, "t d"], covariance: Float[np.ndarray, "t d d"]) -> Plane:
    """The plane of the mean shift and of the leading principal direction across it, pooled over both ends.

    For d = 2 the coordinates themselves. Without a shift worth seeing, the two leading principal directions.
    """
    d = mean.shape[-1]
    if d == 2:
        return Plane(np.zeros(2), np.eye(2), ("$x_1$", "$x_2$"))
    shift = mean[-1] - mean[0]
    pooled = (covariance[0] + covariance[-1]) / 2
    length = np.linalg.norm(shift)
    if length <= 1e-3 * np.sqrt(np.trace(pooled)) or length == 0:
        first, second = np.linalg.eigh(pooled)[1].T[[-1, -2]]
        labels = ("leading principal direction", "second principal direction")
    else:
        first = shift / length
        across = np.eye(d) - np.outer(first, first)
        # The small multiple of `across` keeps the direction orthogonal where the rest has no spread.
        second = np.linalg.eigh(across @ pooled @ across + 1e-12 * (np.trace(pooled) + 1) * across)[1][:, -1]
        labels = (r"along the mean shift $\mu_1-\mu_0$", r"widest direction across it")
    return Plane((mean[0] + mean[-1]) / 2, _oriented(np.stack([first, second])), labels)


def cloud_plane(points: Float[np.ndarray, "*b d"]) -> Plane:
    """The two leading principal coordinates of all these points; for d = 2 the coordinates themselves."""
    d = points.shape[-1]
    if d == 2:
        return Plane(np.zeros(2), np.eye(2), ("$x_1$", "$x_2$"))
    pooled = points.reshape(-1, d)
    pooled = pooled[np.all(np.isfinite(pooled), axis=1)]
    axes = np.linalg.eigh(np.cov(pooled.T, bias=True))[1].T[[-1, -2]]
    return Plane(pooled.mean(0), _oriented(axes), ("principal coordinate 1", "principal coordinate 2"))


def _oriented(axes: np.ndarray) -> np.ndarray:
    """The same axes, the second with its largest entry positive: pictures do not flip between runs."""
    sign = np.sign(axes[1, np.argmax(np.abs(axes[1]))])
    return axes * np.array([[1.0], [sign if sign != 0 else 1.0]])
