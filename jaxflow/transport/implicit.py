"""A minimum on a manifold as a differentiable function of everything the objective depends on:

    ∇f(y; p) = 0   ⇒   H dy = −∂_p ∇f dp

(the implicit function theorem), so that derivatives need neither the iterations nor their number.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.geometry import AbstractGeometry
from jaxflow.transport.minimise import Found, code_of, ended, minimise


def minimum(
    f: Callable[[Array], Scalar],
    geometry: AbstractGeometry,
    start: Float[Array, "n d"],
    scale: Float[Array, "n 1"],
    *,
    tolerance: Scalar,
    max_iterations: int,
) -> tuple[Float[Array, "n d"], Found]:
    """The minimum over n points that descent from `start` leads to, and how it was found.

    Args:
        f: smooth near the manifold; only its values on it count.
        scale: of moves: in multiples of it the Hessian of f is near the identity.
        tolerance: of the norm of the gradient, likewise.

    Derivatives of the points are right where the minimum is strict; the rest of what was found has none.
    """
    fixed = jax.lax.stop_gradient(scale)

    def move(y: Array, z: Array) -> Array:
        return geometry.retract(y + geometry.project(y, fixed * z))

    def gradient(z: Array) -> Array:
        # In the variables y/scale, and with |y| held by a term of its own, which leaves the matrix symmetric.
        def extended(z: Array) -> Scalar:
            y = fixed * z
            away = y - geometry.retract(y)
            return f(geometry.retract(y)) + jnp.sum((away / fixed) ** 2) / 2

        return jax.grad(extended)(z)

    def solve(_: Any, z: Array) -> tuple[Array, tuple[Array, ...]]:
        found = minimise(f, move, fixed * z, tolerance=tolerance, max_iterations=max_iterations)
        # Floats, because the tangents of integers have a type of their own that custom_root does not know.
        steps, code = (jnp.asarray(count, z.dtype) for count in (found.iterations, code_of(found.status)))
        return found.x / fixed, (found.value, found.optimality, steps, code)

    def tangent_solve(g: Callable[[Array], Array], b: Array) -> Array:
        def conjugate(g: Callable[[Array], Array], b: Array) -> Array:
            return jax.scipy.sparse.linalg.cg(g, b, tol=1e-12, maxiter=500)[0]

        return jax.lax.custom_linear_solve(g, b, conjugate, symmetric=True)

    begin = jax.lax.stop_gradient(start / fixed)
    z, how = jax.lax.custom_root(gradient, begin, solve, tangent_solve, has_aux=True)
    value, optimality, steps, code = jax.lax.stop_gradient(how)
    y = fixed * z
    return y, Found(y, value, optimality, steps.astype(int), ended(code))
