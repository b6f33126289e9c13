"""Do lists of numbers form the vectors and matrices they must be?"""

from collections.abc import Sequence

import numpy as np

from jaxflow.errors import InputError
from jaxflow.experiments.schema.base import Heads, Matrix, Vector

# Symmetry and signs of eigenvalues are judged up to rounding, relative to the largest entry.
ROUNDING = 1e-10


def matrix(rows: Matrix, where: str) -> np.ndarray:
    """The rows as an array; they must have one length, and there must be some."""
    lengths = [len(row) for row in rows]
    if not rows or min(lengths) == 0 or min(lengths) != max(lengths):
        raise InputError(
            "the rows do not form a matrix",
            where=where,
            got=f"rows of lengths {lengths}",
            expected="rows of one positive length",
        )
    return np.asarray(rows, dtype=np.float64)


def square(rows: Matrix, where: str, d: int, source: str) -> np.ndarray:
    """The rows as a d×d array; `source` says where d comes from."""
    found = matrix(rows, where)
    if found.shape != (d, d):
        raise InputError(
            "wrong shape",
            where=where,
            got=_times(found.shape),
            expected=f"{d}×{d}, the dimension of {source}",
        )
    return found


def vector(values: Vector, where: str, d: int, source: str) -> None:
    """Refuse a vector that has not d entries."""
    if len(values) != d:
        raise InputError("wrong length", where=where, got=len(values), expected=f"{d}, the dimension of {source}")


def heads(matrices: Heads, where: str, d: int, source: str) -> list[np.ndarray]:
    """The heads as d×d arrays; there must be at least one."""
    if not matrices:
        raise InputError("there is no head", where=where, expected=f"at least one {d}×{d} matrix")
    names = head_names(where, len(matrices))
    return [square(rows, name, d, source) for rows, name in zip(matrices, names)]


def head_names(where: str, count: int) -> list[str]:
    """How each head is called in a message: a single one has no number in the file."""
    return [where] if count == 1 else [f"{where}[{index}]" for index in range(count)]


def symmetric(array: np.ndarray, where: str, fix: str) -> None:
    """Refuse a matrix that differs from its transpose by more than rounding."""
    gap = np.abs(array - array.T)
    if gap.max() > ROUNDING * max(1.0, float(np.abs(array).max())):
        i, j = np.unravel_index(gap.argmax(), gap.shape)
        raise InputError(
            "the matrix is not symmetric",
            where=where,
            got=f"entry [{i}][{j}] = {array[i, j]} and [{j}][{i}] = {array[j, i]}",
            expected="a symmetric matrix",
            fix=fix,
        )


def positive_semidefinite(array: np.ndarray, where: str) -> None:
    """Refuse a symmetric matrix with a negative eigenvalue."""
    smallest = float(np.linalg.eigvalsh(array)[0])
    if smallest < -ROUNDING * max(1.0, float(np.abs(array).max())):
        raise InputError(
            "a covariance must be positive semidefinite",
            where=where,
            got=f"smallest eigenvalue {smallest:.6g}",
            expected="no negative eigenvalue",
            fix="correct the matrix, or give `factor` L, which stands for L Lᵀ",
        )


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(length) for length in shape)


def same_dimension(start: int, target: int) -> None:
    """Refuse a target in another dimension than the start."""
    if start != target:
        raise InputError(
            "start and target differ in dimension",
            where="target",
            got=target,
            expected=f"{start}, the dimension of the start",
        )
