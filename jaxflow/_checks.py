"""Static questions about arguments, asked before anything is traced.

Shapes and dtypes are always known, so a mistake in them raises. Values are known only outside `jit`
and `vmap`; a check on values is silent for a tracer and for an abstract array.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxflow.errors import InputError


def is_concrete(x: Any) -> bool:
    """Whether the values of x can be looked at (false under jit, vmap and grad)."""
    return not isinstance(x, Tracer | jax.ShapeDtypeStruct)


def as_float(x: Any, where: str, dtype: Any = None) -> Array:
    """x as a floating array. A float32 or float64 array keeps its precision; lists and integers
    take the default one. Refuses text, complex numbers and, where they can be seen, NaN and infinity."""
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise InputError("is not an array of numbers", where=where, got=str(error)) from error
    if not jnp.issubdtype(x.dtype, jnp.floating):
        if not (jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool):
            raise InputError("must be real", where=where, got=x.dtype, expected="float32 or float64")
        x = x.astype(dtype or jnp.result_type(float))
    if is_concrete(x) and not bool(np.isfinite(np.asarray(x)).all()):
        raise InputError(
            "holds values that are not finite",
            where=where,
            got=f"{int((~np.isfinite(np.asarray(x))).sum())} of {x.size} are NaN or infinite",
            fix="look for missing entries in the data or an overflow in what computed it",
        )
    return x


def check_shape(x: Array, shape: tuple[int | str, ...], where: str) -> None:
    """x must have this shape; strings stand for sizes that may be anything."""
    fits = x.ndim == len(shape) and all(isinstance(s, str) or s == m for s, m in zip(shape, x.shape))
    if not fits:
        names = "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        raise InputError("has the wrong shape", where=where, got=x.shape, expected=names)


def check_symmetric(x: Array, where: str, fix: str) -> None:
    """The last two axes of x must form symmetric matrices, to 1e-6 in float32 and 1e-12 in float64."""
    if not is_concrete(x):
        return
    values = np.asarray(x)
    gap = np.abs(values - np.swapaxes(values, -1, -2)).max(initial=0.0)
    tolerance = 1e-6 if values.dtype == np.float32 else 1e-12
    if gap > tolerance * max(1.0, np.abs(values).max(initial=0.0)):
        raise InputError(
            "is not symmetric", where=where, got=f"largest asymmetry {gap:.2e}", expected="X = Xᵀ", fix=fix
        )


def check_same_dtype(parts: Mapping[str, Any]) -> None:
    """All arrays among `parts` must share one floating type: jaxflow promotes nothing silently."""
    found = {
        name: leaf.dtype
        for name, part in parts.items()
        for leaf in jax.tree.leaves(part)
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    if len(set(found.values())) > 1:
        raise InputError(
            "mixes precisions",
            where=", ".join(found),
            got=", ".join(f"{name} {dtype}" for name, dtype in found.items()),
            expected="one floating type throughout",
            fix="convert the float32 side with .astype(jnp.float64), or run everything in float32",
        )


def check_positive(x: Any, where: str, fix: str = "") -> None:
    """x, where it can be seen, must be a finite number above zero."""
    if is_concrete(x) and not (np.isfinite(x) and x > 0):
        raise InputError("must be positive", where=where, got=x, expected="a finite number > 0", fix=fix)
