"""How far apart are two moving clouds at every saved time? W₂(μ_t, ν_t), exactly."""

import numpy as np
from jaxtyping import Float

from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry
from jaxflow.measures import Cloud
from jaxflow.transport.exact import wasserstein_clouds


def wasserstein_path(
    first: Cloud, second: Cloud, *, geometry: AbstractGeometry | None = None
) -> Float[np.ndarray, " t"]:
    """W₂ between two curves of clouds at equal times. Host only.

    Args:
        first, second: clouds with a leading axis t, as `Solution.states` has them, (t, n, d) and (t, m, d).
        geometry: as for `wasserstein_clouds`, whose raises and cost, once for every time, are these too.

    Returns:
        The distances, (t,), in units of the tokens, radians under `Sphere()`.

    Raises:
        InputError: not the same number of times.
    """
    times = len(first.points)
    if first.points.ndim != 3 or second.points.ndim != 3 or len(second.points) != times:
        raise InputError(
            "must be curves over the same times",
            where="first, second",
            got=f"{first.points.shape} and {second.points.shape}",
            expected="(t, n, d) and (t, m, d)",
        )
    return np.array([wasserstein_clouds(_at(first, k), _at(second, k), geometry=geometry) for k in range(times)])


def _at(curve: Cloud, k: int) -> Cloud:
    return Cloud(curve.points[k], None if curve.log_weights is None else curve.log_weights[k])
