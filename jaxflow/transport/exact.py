"""The exact Wasserstein distance between clouds: W₂² = min over plans π of Σ π_ij d(x_i, y_j)², on the host.

The referee of everything smoother: POT's network simplex where it is installed; else SciPy's assignment where all
weights are equal, and a linear program otherwise.
"""

import numpy as np
from scipy.spatial.distance import cdist

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.transport.assignment import assign
from jaxflow.transport.pairs import check_pair
from jaxflow.transport.program import linear_program
from jaxflow.transport.simplex import installed, network_simplex

LARGEST = 25_000_000
"""Pairs n·m of the network simplex and of an assignment: 5000 points each, up to a minute and 1 GB."""

LARGEST_PROGRAM = 4_000_000
"""Pairs n·m of the linear program: some minutes."""


def wasserstein_clouds(first: Cloud, second: Cloud, *, geometry: AbstractGeometry | None = None) -> float:
    """W₂ of two clouds, exact to rounding. Host only: for measuring, not for differentiating.

    Args:
        first, second: clouds of any sizes and weights, (n, d) and (m, d).
        geometry: None or `Euclidean()`: straight lines. `Sphere()`: angles between unit vectors. The distance π of
            antipodal points is as good as any; only the way between them is not unique.

    Raises:
        InputError: see `check_pair`; traced values; points off the sphere; more than 25 million pairs, or, without POT
            and with unequal weights, four million.

    Cost: with POT 0.5 s for 2000 × 2000, any weights (`pip install 'jaxflow[ot]'`). Without, 0.7 s for equal weights,
    and for others 2 s for 300 × 300, 80 s for 1500 × 1500.
    """
    cost, plan = _solve(first, second, geometry=geometry, where="wasserstein_clouds")
    return float(np.sqrt(_value(cost, plan)))


def optimal_plan(
    first: Cloud, second: Cloud, *, geometry: AbstractGeometry | None, where: str
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """W₂², and a plan that has it: rows i, columns j and masses π_ij > 0 of its entries. Errors name `where`."""
    cost, plan = _solve(first, second, geometry=geometry, where=where)
    value = _value(cost, plan)
    if plan.ndim == 1:
        return value, np.arange(len(plan)), plan, np.full(len(plan), 1 / len(plan))
    rows, columns = np.nonzero(plan > 0)
    return value, rows, columns, plan[rows, columns]


def _value(cost: np.ndarray, plan: np.ndarray) -> float:
    """Σ π_ij c_ij."""
    if plan.ndim == 1:
        return float(cost[np.arange(len(plan)), plan].mean())
    return float(np.vdot(plan, cost))


def _solve(
    first: Cloud, second: Cloud, *, geometry: AbstractGeometry | None, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """The costs d(x_i, y_j)², and a best plan: the masses π (n, m), or the column of every row where all are equal."""
    check_pair(first, second)
    if not all(is_concrete(x) for x in (first.points, second.points)):
        raise InputError(
            "is for the host: an assignment is not traced",
            where=where,
            got="values under jit, vmap or grad",
            fix="use sliced_wasserstein, energy_distance or sinkhorn_divergence there",
        )
    x, y = (np.asarray(cloud.points, np.float64) for cloud in (first, second))
    w, v = (np.exp(np.asarray(cloud.log_w, np.float64)) for cloud in (first, second))
    n, m = len(x), len(y)
    with_pot = installed()
    assigned = n == m and np.ptp(w) <= 1e-12 * w.max() and np.ptp(v) <= 1e-12 * v.max()
    largest = LARGEST if with_pot or assigned else LARGEST_PROGRAM
    if n * m > largest:
        raise InputError(
            "are too many points for an exact distance",
            where="first, second",
            got=f"{n} and {m}",
            expected=f"at most {largest} pairs",
            fix="take subsamples, or sliced_wasserstein" + ("" if with_pot else ", or pip install 'jaxflow[ot]'"),
        )
    cost = _squared_distances(x, y, geometry)
    w, v = w / w.sum(), v / v.sum()
    if not with_pot and assigned:
        return cost, assign(cost)
    return cost, network_simplex(cost, w, v) if with_pot else linear_program(cost, w, v)


def _squared_distances(x: np.ndarray, y: np.ndarray, geometry: AbstractGeometry | None) -> np.ndarray:
    """d(x_i, y_j)², (n, m)."""
    if geometry is None or isinstance(geometry, Euclidean):
        return cdist(x, y, "sqeuclidean")
    if not isinstance(geometry, Sphere):
        raise InputError("is not known here", where="geometry", got=geometry, expected="Euclidean() or Sphere()")
    for name, points in (("first", x), ("second", y)):
        gap = float(np.abs(np.linalg.norm(points, axis=1) - 1).max())
        if gap > 1e-4:
            raise InputError(
                "are not on the sphere",
                where=f"{name}.points",
                got=f"a norm off 1 by {gap:.2e}",
                expected="unit vectors",
                fix="divide by the norms (jf.Sphere().retract), or take geometry=jf.Euclidean()",
            )
    # As Sphere().distance: accurate for near and for antipodal points.
    return (2 * np.arctan2(cdist(x, y), cdist(x, -y))) ** 2
