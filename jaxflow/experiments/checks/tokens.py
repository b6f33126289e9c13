"""Can these tokens be made? Every kind has a dimension, and some have more to ask for."""

from pathlib import Path

import numpy as np

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.gaussian import check_gaussian
from jaxflow.experiments.data import explicit_points
from jaxflow.experiments.schema import kind_of
from jaxflow.experiments.schema.flow import Flow
from jaxflow.experiments.schema.gaussian import Gaussian
from jaxflow.experiments.schema.tokens import Equiangular, Equispaced, Explicit, Octahedral, Tokens, VonMisesFisher

# Points that were printed with three digits still count as unit vectors; the run normalises them.
UNIT_TOLERANCE = 1e-3


def check_tokens(tokens: Tokens, flow: Flow, *, folder: Path, precision: str) -> int:
    """Check `[tokens]`, and return the dimension."""
    implied = _implied_dimension(tokens, folder=folder, precision=precision)
    if implied is not None and tokens.dim not in (None, implied):
        raise InputError(
            "the dimension does not agree",
            where="tokens.dim",
            got=tokens.dim,
            expected=f"{implied}, as {kind_of(tokens)} tokens have here",
            fix="remove tokens.dim",
        )
    d = implied or tokens.dim
    assert d is not None  # a kind that implies no dimension requires the key
    if isinstance(tokens, Equiangular):
        _check_equiangular(tokens)
    if isinstance(tokens, VonMisesFisher) and tokens.centre is not None:
        shapes.vector(tokens.centre, "tokens.centre", d, "tokens.dim")
        if not any(tokens.centre):
            raise InputError("zero has no direction", where="tokens.centre", got=tokens.centre, expected="a direction")
    if flow.geometry == "sphere":
        _check_sphere(tokens, d, folder=folder, precision=precision)
    if flow.normalization in ("pre", "peri") and isinstance(tokens, Explicit):
        _check_directions(tokens, flow, folder=folder, precision=precision)
    return d


def _implied_dimension(tokens: Tokens, *, folder: Path, precision: str) -> int | None:
    match tokens:
        case Octahedral():
            return 3
        case Equispaced():
            return 2
        case Gaussian():
            return check_gaussian(tokens, "tokens", folder=folder, precision=precision)
        case Explicit():
            return _check_explicit(tokens, folder=folder, precision=precision)
    return None


def _check_explicit(tokens: Explicit, *, folder: Path, precision: str) -> int:
    if not isinstance(tokens.points, str):
        shapes.matrix(tokens.points, "tokens.points")
    n, d = explicit_points(tokens, folder=folder, precision=precision).shape
    if tokens.weights is not None:
        if len(tokens.weights) != n:
            raise InputError(
                "wrong length",
                where="tokens.weights",
                got=len(tokens.weights),
                expected=f"{n}, one per point",
            )
        if min(tokens.weights) <= 0:
            raise InputError(
                "weights must be positive", where="tokens.weights", got=min(tokens.weights), expected="> 0"
            )
    return d


def _check_equiangular(tokens: Equiangular) -> None:
    lowest = -1.0 / (tokens.n - 1) if tokens.n > 1 else -1.0
    if not lowest <= tokens.cosine <= 1:
        raise InputError(
            f"{tokens.n} unit vectors cannot have this cosine pairwise",
            where="tokens.cosine",
            got=tokens.cosine,
            expected=f"between {lowest:.6g} and 1",
        )
    needed = tokens.n - 1 if tokens.cosine == lowest else tokens.n
    if tokens.cosine < 1 and tokens.dim < needed:
        raise InputError(
            f"{tokens.n} equiangular tokens need more dimensions",
            where="tokens.dim",
            got=tokens.dim,
            expected=f"at least {needed}",
        )


def _check_sphere(tokens: Tokens, d: int, *, folder: Path, precision: str) -> None:
    if d < 2:
        raise InputError(
            "the sphere needs at least two dimensions",
            where="tokens.dim",
            got=d,
            expected="at least 2",
            fix='set flow.geometry = "euclidean"',
        )
    if isinstance(tokens, Gaussian):
        raise InputError(
            "Gaussian tokens do not lie on the sphere",
            where="flow.geometry",
            got="sphere",
            expected="euclidean for this kind of tokens",
            fix='set flow.geometry = "euclidean", or use uniform or vmf tokens',
        )
    if isinstance(tokens, Explicit):
        norms = np.linalg.norm(explicit_points(tokens, folder=folder, precision=precision), axis=1)
        worst = int(np.abs(norms - 1).argmax())
        if abs(norms[worst] - 1) > UNIT_TOLERANCE:
            raise InputError(
                "a point does not lie on the unit sphere",
                where=f"tokens.points[{worst}]",
                got=f"length {norms[worst]:.6g}",
                expected="length 1",
                fix='divide the points by their lengths, or set flow.geometry = "euclidean"',
            )


def _check_directions(tokens: Explicit, flow: Flow, *, folder: Path, precision: str) -> None:
    points = explicit_points(tokens, folder=folder, precision=precision)
    at_zero = np.flatnonzero(~np.any(points, axis=1))
    if at_zero.size:
        raise InputError(
            "a token at 0 has no direction to normalise",
            where=f"tokens.points[{at_zero[0]}]",
            got="zeros",
            expected="a point away from 0",
            fix=f'move it, or do without flow.normalization = "{flow.normalization}"',
        )
