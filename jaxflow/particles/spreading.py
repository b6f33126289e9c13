"""How fast can small displacements ξ of a cloud grow? With the covariant derivative ∇_ξ v of the velocities,

    d/dt ½ Σ_i w_i |ξ_i|² = Σ_i w_i ⟨ξ_i, ∇_ξ v_i⟩ ≤ λ Σ_i w_i |ξ_i|²

and the largest eigenvalue λ of its symmetric part is attained. Σ_i w_i|ξ_i|² is W₂² of near clouds, to second order.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.errors import InputError
from jaxflow.linalg import symmetrize
from jaxflow.measures import Cloud
from jaxflow.particles.flow import AttentionFlow
from jaxflow.weights import Layer


def spreading_rate(flow: AttentionFlow, state: Cloud, layer: Layer) -> Scalar:
    """λ, the largest growth rate of W₂ between this cloud and its infinitesimal neighbours, per unit of time.

    Args:
        flow: for its law, direction, geometry and kernel; a smooth law.
        state: one cloud, (n, d).
        layer: what moves it.

    Returns:
        λ, never above `lipschitz_bound`; negative where all displacements shrink.

    Raises:
        InputError: the law "hardmax", which is not smooth.

    Cost: the derivative of the velocities, n d products, and an eigenvalue of an (nd, nd) matrix: small clouds only.
    """
    if flow.law == "hardmax":
        raise InputError("has no derivative", where="flow.law", got="hardmax", expected="a smooth law")
    x, w = state.points, state.weights
    n, d = x.shape

    def velocity(x: Array) -> Array:
        return flow.field(0.0, Cloud(x, state.log_weights), layer)[0]

    def tangent(u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return flow.geometry.project(x, u)

    def derivative(u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        # In the coordinates √w ξ the length of a displacement is the Euclidean one.
        root = jnp.sqrt(w)[:, None]
        return root * tangent(jax.jvp(velocity, (x,), (tangent(u) / root,))[1])

    each = jnp.eye(n * d, dtype=x.dtype).reshape(n * d, n, d)
    J = symmetrize(jax.vmap(derivative)(each).reshape(n * d, n * d))
    # Directions off the space come with the eigenvalue 0, and are sent below all others.
    off = jnp.eye(n * d, dtype=x.dtype) - jax.vmap(tangent)(each).reshape(n * d, n * d)
    return jnp.linalg.eigvalsh(J - (1 + 2 * jnp.linalg.norm(J)) * symmetrize(off))[-1]
