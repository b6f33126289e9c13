"""Attention in a density, at the points of a grid:

    m_h(x) = ∫ e^{⟨B_h x, y⟩} ρ(y) dy,      a_h(x) = m_h(x)^{-1} ∫ e^{⟨B_h x, y⟩} y ρ(y) dy

e^{⟨q, y⟩} is, up to a tail, a polynomial of degree M in y, and m_h and m_h a_h are such polynomials in x. So what ρ has
above degree M does not count; pairs are formed only among the points of a grid of degree M, which integrates the
product exactly; and the answer is carried to the finer grid of the flow by its coefficients:

    F_h(x_g) = Σ_g' w_g' ρ(x_g') e^{⟨B_h x_g, x_g'⟩} (1, x_g')   →   coefficients up to M   →   the grid of the flow
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention import Tilted
from jaxflow.attention.harmonic import least_degree
from jaxflow.attention.tiles import sums
from jaxflow.errors import InputError
from jaxflow.meanfield.density import Density
from jaxflow.meanfield.waves import waves

LARGEST = {2: 400, 3: 80}
"""By dimension, the degree beyond which a grid has too many pairs of points."""


def tail_degree(norm: float, *, dim: int, tolerance: float, eps: float) -> int:
    """M: the smallest (even) degree beyond which e^{⟨Bx, y⟩}, ‖B‖ ≤ norm, has a tail below tolerance · e^{−2 norm}, so
    that log m_h is right to the tolerance wherever the density lies; or below rounding.

    Raises:
        InputError: it is above 80 on S², 400 on S¹.
    """
    goal = max(eps, tolerance * math.exp(-2 * norm))
    degree = least_degree(norm, goal, dim, LARGEST[dim])
    if degree > LARGEST[dim]:
        raise InputError(
            f"needs a grid of a degree above {LARGEST[dim]}",
            where="weights",
            got=f"heads of norm {norm:.3g}",
            fix="take smaller heads, or follow a cloud of tokens with particles.AttentionFlow",
        )
    return degree


def tilt(
    B: Float[Array, "h d d"], density: Density, *, degree: int, grid: int, tolerance: float, quartic: bool = False
) -> Tilted:
    """log m_h and a_h on the grid of this degree; with `quartic` also ∫∫ρρ e^{⟨B_h x, y⟩}(1 + ⟨x,y⟩²).

    Where the rounding error of the sums, which is that of the largest m_h, exceeds the tolerance relative to m_h(x),
    the answer is NaN: heads of a norm above about 12 and a density that lies on one side of the sphere.

    Args:
        degree: M, of `tail_degree`.

    Cost: h g² pairs, g = 2(M + 1)² points on S² and 2M + 2 on S¹.
    """
    c, d = density.coefficients, density.dim
    coarse = waves(d, degree, degree)
    y = jnp.asarray(coarse.points, c.dtype)
    rho = jnp.asarray(coarse.weights, c.dtype) * coarse.values(density.at_degree(degree).coefficients)
    pairs = np.stack(np.triu_indices(d))
    yy = y[:, pairs[0]] * y[:, pairs[1]]
    seen = [jnp.ones_like(y[:, :1]), y, *([yy] if quartic else [])]
    Y = rho[:, None] * jnp.concatenate(seen, 1)

    q = jnp.einsum("hij,gj->hgi", B, y)
    top = jax.lax.stop_gradient(jnp.sqrt(jnp.max(jnp.sum(q * q, -1), axis=1)))
    F = sums(q, y, jnp.zeros_like(rho), jnp.broadcast_to(top[:, None], q.shape[:2]), Y)
    quartics = None
    if quartic:
        twice = np.where(pairs[0] == pairs[1], 1.0, 2.0).astype(c.dtype)
        second = jnp.einsum("hgp,p,gp->hg", F[..., d + 1 :], twice, yy)
        quartics = jnp.exp(top) * jnp.einsum("g,hg->h", rho, F[..., 0] + second)

    fine = waves(d, degree, grid)
    carried = jax.vmap(jax.vmap(lambda F: fine.values(coarse.analyse(F))))(jnp.moveaxis(F[..., : d + 1], 2, 1))
    m, mean = carried[:, 0], jnp.moveaxis(carried[:, 1:], 1, 2)
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(F[..., 0]), axis=1))
    rounding = (4 + top + degree) * float(jnp.finfo(c.dtype).eps) * size
    m = jnp.where(m > rounding[:, None] / tolerance, m, jnp.nan)
    return Tilted(jnp.log(m) + top[:, None], mean / m[..., None], None, quartics)
