"""Coordinates in which a Gaussian is N(·, I): a residual of one is then a deviation, however thin it is."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow.measures import Gaussian


def frame_of(target: Gaussian) -> tuple[Float[Array, "d d"], Bool[Array, " m"]]:
    """W with WΣWᵀ = I on the range of Σ, in units of its largest deviation across it; and which entries of the lower
    triangle of WΣ'Wᵀ can differ from zero for Gaussians of this range, m = d(d+1)/2, row by row."""
    d = target.dim
    Q, s, _ = jnp.linalg.svd(jnp.pad(target.factor, ((0, 0), (0, d - target.rank))))
    inside = s > d * jnp.finfo(s.dtype).eps * s[0]
    return Q.T / jnp.where(inside, s, s[0])[:, None], inside[np.tril_indices(d)[1]]
