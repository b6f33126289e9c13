"""The same sums for tied heads, where E_hij = e^{⟨x_i, D_h x_j⟩} = E_hji: a pair of tokens is exponentiated once.

    m_hi = Σ_j E_hij w_j,      m_hi a_hi = Σ_j E_hij w_j x_j,      J_h = Σ_ij w_i w_j E_hij (|x_i|²|x_j|² + ⟨x_i,x_j⟩²)

Tokens are cut into tiles, and E into blocks E_IJ, of which only I ≤ J are computed: E_IJ serves the tokens of I by
E_IJ Y_J and those of J by E_IJᵀ Z_I, where Y and Z have columns w (1, x). A block on the diagonal counts half on either
side. J needs six more columns in three dimensions, x_a x_b for a ≤ b; half of them are in Y, the others in Z.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.exponential import LOG2_E, bounded_exp2

WIDTH = 8
"""Tiles are multiples of this many tokens where there are several: a loop over them fills the registers of a CPU."""


def tile_pairs(pairs: int) -> int:
    """Pairs in a block of all its heads: on a CPU what the cache of a core holds (1 MB in float64), and of many pairs
    what makes work for several cores."""
    return min(max(pairs // 128, 2**17), 2**20) if jax.default_backend() == "cpu" else 2**22


def largest_logit(D: Float[Array, "h d d"], x: Float[Array, "n d"]) -> Float[Array, ""]:
    """A bound on |⟨x_i, D_h x_j⟩| over all heads and pairs: max |D_h x_i| max |x_j|."""
    q = jnp.einsum("hij,nj->hni", D, x)
    return jnp.sqrt(jnp.max(jnp.sum(q * q, -1)) * jnp.max(jnp.sum(x * x, -1)))


def symmetric_sums(
    D: Float[Array, "h d d"],
    x: Float[Array, "n d"],
    log_w: Float[Array, " n"],
    *,
    quartic: bool,
    tile: int | None = None,
) -> tuple[Float[Array, "h n"], Float[Array, "h n d"], Float[Array, " h"] | None]:
    """log m, a, and J if `quartic`, for symmetric D and logits no larger than half of `exponential.LARGEST`: a weight
    that is 0 may meet e^{LARGEST/2} and the heaviest token e^{−LARGEST/2}, and must still not count."""
    (h, d, _), n = D.shape, x.shape[0]
    T = tile or _tile(n, h)
    tiles = -(-n // T)
    groups = -(-h // max(1, 2 * tile_pairs(h * n**2) // T**2))
    g = -(-h // groups)

    # Shifted so that the heaviest token has weight 1: a light one may then be forgotten only where it does not count.
    top = jnp.max(log_w)
    xs, ws = (
        jnp.pad(y, ((0, tiles * T - n), (0, 0))).reshape(tiles, T, -1) for y in (x, jnp.exp(log_w - top)[:, None])
    )
    in_Y, in_Z = _products(d) if quartic else (np.zeros((2, 0), int),) * 2
    Y, Z = (ws * jnp.concatenate([jnp.ones_like(ws), xs, xs[..., a] * xs[..., b]], -1) for a, b in (in_Y, in_Z))
    I, J = np.triu_indices(tiles)

    def group(D: Array) -> tuple[Array, Array]:
        q = jnp.einsum("hij,bnj->bhni", LOG2_E * D, xs)

        def block(sums: tuple[Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            (of_I, of_J), (I, J) = sums, at
            # Both products read E in this shape; in another one XLA would compute it once more for that one.
            E = bounded_exp2((q[I].reshape(g * T, d) @ xs[J].T).reshape(g, T, T))
            share = jnp.where(I == J, 0.5, 1.0).astype(x.dtype)
            to_I = E @ jnp.broadcast_to(share * Y[J], (g, *Y.shape[1:]))
            to_J = jnp.broadcast_to(share * Z[I].T, (g, Z.shape[2], T)) @ E
            return (_add(of_I, I, to_I), _add(of_J, J, to_J)), None

        zero = jnp.zeros((tiles, g, T, Y.shape[2]), x.dtype), jnp.zeros((tiles, g, Z.shape[2], T), x.dtype)
        of_I, of_J = jax.lax.scan(block, zero, (jnp.asarray(I), jnp.asarray(J)))[0]
        return of_I, jnp.swapaxes(of_J, 2, 3)

    def join(x: Array) -> Array:
        return jnp.swapaxes(x, 1, 2).reshape(groups * g, tiles * T, -1)[:h, :n]

    heads = jnp.pad(D, ((0, groups * g - h), (0, 0), (0, 0))).reshape(groups, g, d, d)
    of_I, of_J = (join(s) for s in jax.lax.map(group, heads))
    S = of_I[..., : d + 1] + of_J[..., : d + 1]
    log_m, mean = top + jnp.log(S[..., 0]), S[..., 1:] / S[..., :1]
    if not quartic:
        return log_m, mean, None
    # |x|²|y|² + ⟨x,y⟩² = Σ_{a≤b} φ_ab(x) y_a y_b
    a, b = np.concatenate([in_Y, in_Z], 1)
    phi = np.where(a == b, 1, 2)[None] * x[:, a] * x[:, b] + (a == b)[None] * jnp.sum(x * x, -1, keepdims=True)
    seen = jnp.concatenate([of_I[..., d + 1 :], of_J[..., d + 1 :]], -1)
    return log_m, mean, 2 * jnp.exp(top) * jnp.einsum("n,nc,hnc->h", jnp.exp(log_w), phi, seen)


def _products(d: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs a ≤ b whose x_a x_b are columns of Y and of Z. The squares must stay together; Y has a multiple of four
    columns, which a product takes at once."""
    a, b = np.triu_indices(d)
    order = np.argsort(a != b, kind="stable")
    pairs = np.stack([a, b])[:, order]
    first = min(len(a), -(-(1 + 2 * d) // 4) * 4 - 1 - d)
    return pairs[:, :first], pairs[:, first:]


def _add(sums: Array, i: Array, part: Array) -> Array:
    """sums[i] += part, without the check of i that `.at` makes."""
    return jax.lax.dynamic_update_index_in_dim(sums, sums[i] + part, i, 0)


def _tile(n: int, h: int) -> int:
    """Tokens in a tile, if h heads are to make a block of the right size; a fifth of all where that is less, so that
    symmetry saves 40 %; all, if a tile would hold half of them. Equal shares, so that little is filled up."""
    most = max(5 * WIDTH, min(math.sqrt(tile_pairs(h * n**2) / h), n / 5))
    if n < 2 * most:
        return n
    return -(-n // (round(n / most) * WIDTH)) * WIDTH
