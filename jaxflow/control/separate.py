"""What one control cannot do to several Gaussians, asked before any search.

Σ̇ = KΣ + ΣKᵀ, K = A + VΣB, knows nothing of the mean: equal covariances stay equal, whatever the means and the controls.
Where covariances are equal, so is K, and means that are equal stay equal.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxflow._checks import check_same_dtype, is_concrete
from jaxflow.control.reachability import TOLERANCE, check_reachable
from jaxflow.errors import InputError, UnreachableError
from jaxflow.measures import Gaussian


def check_pairs_reachable(starts: Sequence[Gaussian], targets: Sequence[Gaussian], allow: str) -> None:
    """Refuse pairs that no control carries over, and pairs that no one control carries over together.

    Raises:
        UnreachableError: see `check_reachable`; equal covariances or equal starts whose targets differ.
        InputError: Gaussians of different dimension, rank or precision.
    """
    for i in range(len(starts)):
        if (starts[i].dim, starts[i].rank) != (starts[0].dim, starts[0].rank):
            raise InputError(
                "must have the dimension and rank of the others", where=f"starts[{i}]",
                got=f"d = {starts[i].dim}, rank {starts[i].rank}",
                expected=f"d = {starts[0].dim}, rank {starts[0].rank}",
                fix="steer Gaussians of another rank by a control of their own, or regularise the covariances",
            )  # fmt: skip
        try:
            check_reachable(starts[i], targets[i], allow)
        except UnreachableError as error:
            where = error.where.replace("target", f"targets[{i}]")
            expected = error.expected.replace("the start", f"starts[{i}]")
            raise UnreachableError(error.what, where=where, got=error.got, expected=expected, fix=error.fix) from None
    check_same_dtype({"starts": list(starts), "targets": list(targets)})
    everything: list[Any] = [x for g in (*starts, *targets) for x in (g.mean, g.factor)]
    if not all(is_concrete(x) for x in everything):
        return
    first, last = ([(np.asarray(g.mean), _covariance(g)) for g in gaussians] for gaussians in (starts, targets))
    for j in range(len(first)):
        for i in range(j):
            _check_two(first, last, i, j)


def _check_two(first: list[Any], last: list[Any], i: int, j: int) -> None:
    """Two pairs, of starts with equal covariances."""
    if not _same(first[i][1], first[j][1]):
        return
    names = f"starts {i} and {j} agree, targets {i} and {j} do not"
    if not _same(last[i][1], last[j][1]):
        raise UnreachableError(
            "is unreachable: equal covariances stay equal under every control",
            where=f"targets[{j}].covariance", got=names, expected=f"that of targets[{i}]",
            fix="give the two targets one covariance, or the two pairs a control each",
        )  # fmt: skip
    if _same(first[i][0], first[j][0]) and not _same(last[i][0], last[j][0]):
        raise UnreachableError(
            "is unreachable: no control separates equal Gaussians",
            where=f"targets[{j}].mean", got=names, expected=f"that of targets[{i}]",
            fix="give the two pairs a control each",
        )  # fmt: skip


def _covariance(gaussian: Gaussian) -> np.ndarray:
    L = np.asarray(gaussian.factor)
    return L @ L.T


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.abs(x - y).max() <= TOLERANCE * max(np.abs(x).max(), np.abs(y).max(), 1e-300))
