"""What is asked of pairs of clouds before a search, and what no control can do to them.

A control acts on every cloud by the same rule, which depends on the cloud as a measure alone. Hence equal measures stay
equal. Without b the rule is odd, −μ moves as the mirror image of μ, and so mirror images stay mirror images: among them
every cloud that is its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError, UnreachableError
from jaxflow.geometry import AbstractGeometry
from jaxflow.geometry.check import check_on
from jaxflow.measures import Cloud
from jaxflow.transport.pairs import check_pair


def check_pairs(start: Any, target: Any, geometry: AbstractGeometry) -> tuple[tuple[Cloud, ...], tuple[Cloud, ...]]:
    """The clouds as two tuples of one length, each pair comparable and all on the space.

    Raises:
        InputError: different numbers of starts and targets, or none; clouds of different dimension or precision; NaN;
            tokens off the sphere.
    """
    for name, given in (("start", start), ("target", target)):
        several = isinstance(given, Sequence) and all(isinstance(cloud, Cloud) for cloud in given)
        if not several and not isinstance(given, Cloud):
            raise InputError("must be a Cloud or a sequence of Clouds", where=name, got=type(given).__name__)
    starts, targets = ((clouds,) if isinstance(clouds, Cloud) else tuple(clouds) for clouds in (start, target))
    if len(starts) != len(targets) or not starts:
        raise InputError(
            "must have one target for every start",
            where="start, target",
            got=f"{len(starts)} starts and {len(targets)} targets",
            expected="as many of one as of the other, at least one",
        )
    for p in range(len(starts)):
        names = {"first": _name("start", p, starts), "second": _name("target", p, targets)}
        _compare(starts[p], targets[p], names)
        if p:
            _compare(starts[0], starts[p], {"first": "start[0]", "second": names["first"]})
        for cloud, name in ((starts[p], names["first"]), (targets[p], names["second"])):
            check_on(geometry, cloud.points, f"{name}.points")
    return starts, targets


def _name(name: str, p: int, clouds: tuple[Cloud, ...]) -> str:
    return name if len(clouds) == 1 else f"{name}[{p}]"


def _compare(first: Cloud, second: Cloud, names: dict[str, str]) -> None:
    """`check_pair`, with errors in the names of the caller."""
    try:
        check_pair(first, second)
    except InputError as error:
        where = error.where
        for old, new in names.items():
            where = where.replace(old, new)
        raise InputError(error.what, where=where, got=error.got, expected=error.expected, fix=error.fix) from None


def check_tokens_reachable(starts: Sequence[Cloud], targets: Sequence[Cloud], allow: str) -> None:
    """Raise UnreachableError where equal starts have different targets, or, without b, mirror images have targets that
    are none. On concrete clouds; equality is exact, up to the order of the tokens and points written twice."""
    if not all(is_concrete(x) for cloud in (*starts, *targets) for x in (cloud.points, cloud.log_w)):
        return
    before, after = ([_measure(cloud) for cloud in clouds] for clouds in (starts, targets))
    mirrored = [[_measure(cloud, sign=-1.0) for cloud in clouds] for clouds in (starts, targets)]
    for p in range(len(starts)):
        for q in range(p):
            if _equal(before[p], before[q]) and not _equal(after[p], after[q]):
                raise UnreachableError(
                    "is unreachable: one control cannot separate equal measures",
                    where=f"target[{p}]",
                    got=f"start[{q}] = start[{p}] as measures, and target[{q}] ≠ target[{p}]",
                    expected="equal targets for equal starts",
                    fix="give the starts different tokens, or steer them one at a time",
                )
        if "b" in allow:
            continue
        for q in range(p + 1):
            if _equal(before[p], mirrored[0][q]) and not _equal(after[p], mirrored[1][q]):
                raise UnreachableError(
                    "is unreachable: without b mirror images stay mirror images, x ↦ −x",
                    where=f"target[{p}]",
                    got=f"start[{p}] = −start[{q}], and target[{p}] ≠ −target[{q}]",
                    fix="allow the bias b",
                )


def _measure(cloud: Cloud, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Its distinct points in lexical order, and their weights."""
    # Adding 0 makes −0 and 0 one.
    points, index = np.unique(sign * np.asarray(cloud.points) + 0.0, axis=0, return_inverse=True)
    return points, np.bincount(index.reshape(-1), np.exp(np.asarray(cloud.log_w)), minlength=len(points))


def _equal(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> bool:
    (x, w), (y, v) = first, second
    return x.shape == y.shape and np.array_equal(x, y) and np.allclose(w, v, rtol=1e-6, atol=0)
