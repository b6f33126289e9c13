"""Energy, mobility and the three numbers of dissipation, from one tilted cloud.

With c̄_h = c_h/Σc, so that Σ_h c̄_h is the mean over heads (arXiv:2605.18870, §2–3):

    E(μ) = ½ Σ_h c̄_h Σ_i w_i m_h(x_i)                    energy
    g(x) = P_x Σ_h c̄_h m_h(x) D_h a_h(x)                  gradient of its first variation
    b̂(x) = (Σ_h c̄_h m_h(x)^{-1})^{-1}                    effective mobility, the harmonic mean

    slope  G² = Σ_i w_i b̂(x_i)|v_i|²     the published dissipation
    rate   R  = −Σ_i w_i ⟨g(x_i), v_i⟩    the true −dE/dt at frozen weights

For one head, or equal heads, R = G². For different heads the softmax law is not the steepest descent of E, and only
the balance with R closes; under the "steepest" law both do.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.attention import Tilted
from jaxflow.measures import Cloud
from jaxflow.particles.flow import AttentionFlow, Terms
from jaxflow.weights import Layer


def head_average(layer: Layer) -> Float[Array, " h"]:
    """c̄_h = c_h/Σc."""
    assert layer.mass is not None
    return layer.mass / jnp.sum(layer.mass)


def energy(flow: AttentionFlow, state: Cloud, layer: Layer) -> Scalar:
    """E = ½ Σ_h c̄_h Σ_ij w_i w_j e^{⟨D_h x_i, x_j⟩}: one pass over the pairs. Grows like e^{‖D‖}."""
    return energy_of(state, Terms(layer, flow.tilt(state, layer)))


def energy_of(state: Cloud, terms: Terms) -> Scalar:
    """E from a cloud that has been tilted already."""
    _, m = _tilted(terms)
    return 0.5 * jnp.einsum("h,i,hi->", head_average(terms.layer), state.weights, m)


def mobility(terms: Terms) -> Float[Array, " n"]:
    """b̂(x_i), the harmonic mean of m_h(x_i) over heads."""
    _, m = _tilted(terms)
    return 1 / jnp.einsum("h,hi->i", head_average(terms.layer), 1 / m)


def dissipation(
    flow: AttentionFlow, state: Cloud, velocity: Float[Array, "n d"], terms: Terms
) -> tuple[Scalar, Scalar]:
    """(slope G², rate R) of moving the cloud with this velocity."""
    w, g = state.weights, gradient(flow, state, terms)
    slope = jnp.einsum("i,i,ik,ik->", w, mobility(terms), velocity, velocity)
    return slope, -jnp.einsum("i,ik,ik->", w, g, velocity)


def upper_gradient(flow: AttentionFlow, state: Cloud, terms: Terms) -> Scalar:
    """|∂E|² = Σ_i w_i |g(x_i)|²/b̂(x_i), the largest R²/G² of any velocity: Cauchy–Schwarz, R = −Σ w ⟨g, v⟩ ≤ |∂E| G."""
    g = gradient(flow, state, terms)
    return jnp.einsum("i,i,ik,ik->", state.weights, 1 / mobility(terms), g, g)


def gradient(flow: AttentionFlow, state: Cloud, terms: Terms) -> Float[Array, "n d"]:
    """g(x_i), the gradient of the first variation of E; it does not depend on the weights of `state`."""
    tilted, m = _tilted(terms)
    assert terms.layer.B is not None
    u = jnp.einsum("h,hi,hkl,hil->ik", head_average(terms.layer), m, terms.layer.B, tilted.mean)
    return flow.geometry.project(state.points, u)


def _tilted(terms: Terms) -> tuple[Tilted, Float[Array, "h n"]]:
    """The tilted cloud and m_h(x_i)."""
    assert terms.tilted is not None
    return terms.tilted, jnp.exp(terms.tilted.log_m)


def work(state: Cloud, terms: Terms, dD: Float[Array, "h d d"]) -> Scalar:
    """½ Σ_h c̄_h Σ_ij w_i w_j e^{s_hij} ⟨x_i, dD_h x_j⟩: what a change dD of the weights does to E, to first order."""
    tilted, m = _tilted(terms)
    x, c, w = state.points, head_average(terms.layer), state.weights
    return 0.5 * jnp.einsum("h,i,hi,ik,hkl,hil->", c, w, m, x, dD, tilted.mean, optimize="optimal")


def ito(state: Cloud, terms: Terms, noise_var: Float[Array, "*h"]) -> Scalar:
    """½ Σ_h c̄_h Σ_ij w_i w_j e^{s_hij} (σ_h²/4)(|x_i|²|x_j|² + ⟨x_i,x_j⟩²): the second-order term of σ_h dW_sym,h.

    `noise_var` is σ² of all heads, (), or of each, (h,).
    """
    assert terms.tilted is not None
    assert terms.tilted.quartic is not None
    c = head_average(terms.layer)
    return jnp.sum(jnp.broadcast_to(noise_var, c.shape) / 8 * c * terms.tilted.quartic)
