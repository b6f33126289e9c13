"""How far is a cloud of n tokens from a density, and how far would n independent tokens of it be?

    d(μ_n, ρ)² = |S|/K Σ_{0<k≤K} (ĉ_k − c_k)²,      ĉ_k = Σ_j w_j Y_k(x_j)

over the K functions of degrees 1..D. For independent tokens of ρ, because Σ_m Y_lm² = (2l+1)/|S| (on S¹ 2/|S|),

    n E d² = 1 − |S|/K Σ c_k²

exactly: 1/n in all, but for what is known of where tokens are. Along a flow the deviation ĉ − c moves, to first order
in n^{-1/2}, by the derivative of the flow with respect to the density's coefficients, and starts with the covariance
`fluctuations(density)/n`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.meanfield.density import Density, check_degree, coefficients
from jaxflow.meanfield.waves import area, size, waves
from jaxflow.measures import Cloud


def cloud_distance(cloud: Cloud, density: Density, *, degree: int) -> Scalar:
    """d(μ_n, ρ) over degrees 1..`degree`: n^{-1/2} for n independent tokens of the uniform density. Cost O(n K).

    Raises:
        InputError: tokens off the sphere, or a degree below 1.
    """
    check_degree(degree)
    gap = (coefficients(cloud, degree) - density.at_degree(degree).coefficients)[1:]
    return jnp.sqrt(area(density.dim) * jnp.mean(gap**2))


def sampling_distance(density: Density, *, n: int, degree: int) -> Scalar:
    """(E d²)^{1/2} of n independent tokens of this density, exactly."""
    check_degree(degree)
    c = density.at_degree(degree).coefficients[1:]
    return jnp.sqrt((1 - area(density.dim) * jnp.mean(c**2)) / n)


def fluctuations(density: Density, *, degree: int) -> Float[Array, "K K"]:
    """Cov(Y_k(x), Y_l(x)) of x ~ ρ up to this degree: n times the covariance of ĉ for n independent tokens."""
    W = waves(density.dim, max(degree, density.degree), degree + -(-density.degree // 2))
    rho = W.values(density.at_degree(W.degree).coefficients)
    K = size(density.dim, degree)
    Y = jax.vmap(W.values)(jnp.eye(K, size(density.dim, W.degree), dtype=rho.dtype))
    mean = density.at_degree(degree).coefficients
    return (Y * (jnp.asarray(W.weights, rho.dtype) * rho)[None]) @ Y.T - jnp.outer(mean, mean)
