"""Which Gaussian has the mean and covariance of a cloud, and how strong is attention for it?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.measures import Cloud, Gaussian


def gaussian_of(cloud: Cloud) -> Gaussian:
    """N(mean, covariance) of the cloud itself: Σ = RᵀR with √w (x − μ) = QR, never squared, for any rank. n ≥ d."""
    centred = cloud.points - cloud.mean[None]
    R = jnp.linalg.qr(jnp.sqrt(cloud.weights)[:, None] * centred, mode="r")
    return Gaussian(cloud.mean, R.T)


def kappa(factor: Float[Array, "d r"], B: Float[Array, "h d d"] | None) -> Scalar:
    """κ_eff = max_h ‖LᵀB_hL‖₂ = ‖Σ^½B_hΣ^½‖₂; zero without heads."""
    if B is None:
        return jnp.zeros((), factor.dtype)
    return jnp.max(jnp.linalg.svd(factor.T @ B @ factor, compute_uv=False))
