"""Which linear map carried the Gaussian here? Σ_t = G Σ₀ Gᵀ, Ġ = KG, G(0) = I."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_shape
from jaxflow.measures import Gaussian


def propagator(start: Gaussian, now: Gaussian) -> Float[Array, "d d"]:
    """G on the range of Σ₀, zero on its complement: L_t L₀⁺, since L̇ = KL moves every column of the factor by G.

    At full rank it is G itself; at any rank Σ_t = GΣ₀Gᵀ, and G moves deviations of tokens from their mean. As an
    observable: `jf.solve(flow, start, t1=1.0, observe=lambda t, state: jf.gaussian.propagator(start, state))`.

    Args:
        start: the Gaussian that the run began with.
        now: a state of the same run (another factor of the same covariance would give another map).

    Cost O(d² r).

    Source: arXiv:2606.07600, (1.1).
    """
    check_shape(now.factor, start.factor.shape, "now.factor")
    return now.factor @ jnp.linalg.pinv(start.factor)
