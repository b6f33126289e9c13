"""Are tokens where they ought to be?"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError
from jaxflow.geometry.base import AbstractGeometry


def check_on(geometry: AbstractGeometry, points: Array, where: str) -> None:
    """Refuse tokens off the sphere by more than rounding (they would be moved silently)."""
    if not is_concrete(points):
        return
    # Known tokens that meet a jit: nothing of this question is traced.
    with jax.ensure_compile_time_eval():
        gap = float(jnp.max(geometry.violation(points)))
    if gap > (1e-4 if points.dtype == jnp.float32 else 1e-8):
        raise InputError(
            "are not on the sphere",
            where=where,
            got=f"a norm off 1 by {gap:.2e}",
            expected="unit vectors",
            fix="divide by the norms (jf.Sphere().retract), or take geometry=jf.Euclidean()",
        )
