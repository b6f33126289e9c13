"""How aligned a cloud is."""

from jaxflow._typing import Scalar
from jaxflow.linalg import safe_norm
from jaxflow.measures import Cloud


def order_parameter(cloud: Cloud) -> Scalar:
    """r = |Σ_i w_i x_i|, Kuramoto's order parameter: 1 if all tokens of a sphere coincide, 0 if they balance.

    r² = Σ_ij w_i w_j ⟨x_i, x_j⟩, the mean cosine. Differentiable, with derivative 0 at r = 0. Along a run:
    `observe=jf.Observe(lambda t, cloud: jf.particles.order_parameter(cloud))`. Cost O(n d).
    """
    return safe_norm(cloud.mean)
