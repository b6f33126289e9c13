"""Coordinates in which a target is N(·, I): what is missed counts in the target's deviations, however thin it is."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow.measures import Gaussian


class Frame(NamedTuple):
    """W with WΣWᵀ = I on the range of Σ, in units of its largest deviation across it; and which entries of the lower
    triangle of WΣ'Wᵀ can differ from zero for Gaussians of this range, m = d(d+1)/2, row by row."""

    W: Float[Array, "*n d d"]
    moves: Bool[Array, "*n m"]

    def gap(self, end: Gaussian, target: Gaussian) -> Float[Array, " c"]:
        """W(μ − μ*), and the lower triangle of W(Σ − Σ*)Wᵀ where it can move, (d(d+3)/2,)."""
        W = self.W
        E = W @ (end.factor @ end.factor.T - target.factor @ target.factor.T) @ W.T
        triangle = E[np.tril_indices(target.dim)]
        return jnp.concatenate([W @ (end.mean - target.mean), jnp.where(self.moves, triangle, 0)])


def frame_of(target: Gaussian) -> Frame:
    """The frame of one Gaussian."""
    d = target.dim
    Q, s, _ = jnp.linalg.svd(jnp.pad(target.factor, ((0, 0), (0, d - target.rank))))
    inside = s > d * jnp.finfo(s.dtype).eps * s[0]
    return Frame(Q.T / jnp.where(inside, s, s[0])[:, None], inside[np.tril_indices(d)[1]])
