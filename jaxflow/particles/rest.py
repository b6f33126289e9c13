"""Is a cloud at rest for the energy of given heads? What ω-limits are asked under weights that settle:

|∂E_∞|²(μ) = Σ_i w_i |g_∞(x_i)|²/b̂_∞(x_i) = 0      if ∫|Θ̇| dt < ∞ (arXiv:2605.18870, §4)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.measures import Cloud
from jaxflow.particles.energy import energy_of, upper_gradient
from jaxflow.particles.flow import AttentionFlow, Terms
from jaxflow.weights import AbstractSchedule, Layer, Piecewise, Relaxing
from jaxflow.weights.schedules import Constant, Held


def stationarity(flow: AttentionFlow, state: Cloud, layer: Layer) -> tuple[Scalar, Scalar]:
    """(E, |∂E|²) of a cloud under the tied heads of `layer`: the energy, and the squared upper gradient, which is zero
    exactly at its stationary points.

    Args:
        flow: for its geometry and kernel; the heads of its own weights are not asked.
        state: one cloud, (n, d).
        layer: tied heads.

    Returns:
        E, and |∂E|² in units of E per time.

    Cost: one pass over all pairs, O(h n² d).
    """
    terms = Terms(layer, flow.tilt(state, layer))
    return energy_of(state, terms), upper_gradient(flow, state, terms)


def limit_of(weights: AbstractSchedule) -> Layer | None:
    """The layer that the weights settle at as t → ∞ with ∫‖Ḋ‖dt < ∞, where their kind says so; else None.

    Constant weights are their own limit, piecewise ones end with their last layer, relaxing ones at their mean. Nothing
    is known of functions and samples, and oscillating and random weights have no limit.
    """
    match weights:
        case Constant() | Held():
            return weights.layer
        case Piecewise():
            return weights.piece(-1).layer
        case Relaxing():
            return weights.limit
        case _:
            return None


def head_speed(weights: AbstractSchedule, ts: Float[Array, " t"]) -> Float[Array, " t"]:
    """max_h ‖Ḋ_h(t)‖₂, the speed whose integral decides, inside the pieces of the schedule."""

    def one(t: Array) -> Array:
        return jnp.max(jnp.linalg.norm(weights.drift(t), 2, axis=(-2, -1)))

    return jax.vmap(one)(ts)
