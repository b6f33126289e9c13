"""May these two clouds be compared? What every distance between clouds asks before it starts."""

import numpy as np

from jaxflow._checks import as_float, check_same_dtype, is_concrete
from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.measures.single import check_single_cloud


def check_pair(first: Cloud, second: Cloud) -> None:
    """Raise InputError unless both are single clouds of one dimension and precision, finite, with weights of sum 1.

    The sum matters because distances of transport know no creation of mass. Where values are traced, only shapes and
    dtypes are checked.
    """
    clouds = {"first": first, "second": second}
    for name, cloud in clouds.items():
        try:
            check_single_cloud(cloud)
            as_float(cloud.points, "points")
        except InputError as error:
            raise error.at(name) from None
        _check_weights(cloud, name)
    d = first.points.shape[1]
    if second.points.shape[1] != d:
        raise InputError(
            "lives in another dimension than the first",
            where="second.points",
            got=second.points.shape,
            expected=f"(m, {d})",
        )
    check_same_dtype(clouds)


def _check_weights(cloud: Cloud, name: str) -> None:
    if cloud.log_weights is None or not is_concrete(cloud.log_weights):
        return
    log_w = np.asarray(cloud.log_weights, np.float64)
    # log 0 = −∞ is a token without weight; NaN and +∞ are mistakes.
    if np.isnan(log_w).any() or np.isposinf(log_w).any():
        raise InputError("holds NaN or infinite weights", where=f"{name}.log_weights", fix="give finite log weights")
    total = float(np.exp(log_w).sum())
    if abs(total - 1) > (1e-4 if cloud.log_weights.dtype == np.float32 else 1e-8):
        raise InputError(
            "has another total weight: mass is moved, not made",
            where=f"{name}.log_weights",
            got=f"Σ w = {total:.6g}",
            expected="Σ w = 1",
            fix="jf.Cloud.from_weights(points, weights) divides by the sum",
        )
