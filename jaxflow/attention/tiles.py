"""Sums over all pairs of queries and tokens, a tile of both at a time:

    P_ij = w_j e^{⟨q_i, x_j⟩} / m_i,      m_i = Σ_j w_j e^{⟨q_i, x_j⟩},      Σ_j P_ij Y_j

and their derivatives, with S_ij = ⟨q_i, x_j⟩ + log w_j:

    d log m_i = Σ_j P_ij dS_ij,      d(Σ_j P_ij Y_j) = Σ_j P_ij (dS_ij Y_j + dY_j) − d log m_i Σ_j P_ij Y_j

Queries of all heads stand side by side, since they share their keys. A tile makes four matrix products at most and one
exponential per pair; the shift that keeps it in range and log w are columns of the first product.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.attention.exponential import LARGEST, LOG2_E, exp2


class Side(NamedTuple):
    """The queries, as rows, or the tokens, as columns; all of them in tiles, or one tile.

    Attributes:
        factor: what the logits are products of.
        place: the number of each token, if a query must not see later ones.
        more: other rows or columns that a sum needs.
    """

    factor: Array
    place: Array | None
    more: tuple[Array, ...] = ()


UNSEEN = -1e30
"""The logit of a token without weight: finite, so that differences of such are no NaN."""

KEYS = 512
"""Tokens in a tile; more do not make its products faster."""

MOMENTS = 24
"""Columns (1 + d)² up to which derivatives are averages of products, and not of pairs by pairs."""


def tile_pairs(pairs: int) -> int:
    """Pairs in a tile: on a CPU a sixteenth of all, within what makes work for its cores and fits their caches;
    elsewhere enough to fill the device."""
    return min(max(pairs // 16, 2**18), 2**20) if jax.default_backend() == "cpu" else 2**24


def averages(
    q: Float[Array, "h n d"],
    x: Float[Array, "m d"],
    log_w: Float[Array, " m"],
    *,
    second: bool = False,
    causal: bool = False,
    block: int | None = None,
) -> tuple[Float[Array, "h n"], Float[Array, "h n c"]]:
    """log m_i and Σ_j P_ij x_j for every query, followed by Σ_j P_ij x_ja x_jb for a ≤ b if `second`; over j ≤ i only
    if `causal`. NaN where all tokens seen have weight 0.

    Memory is linear in n and m, and so is that of derivatives of any order, which compute the pairs again.

    Args:
        block: rows and keys of a tile; None: chosen here.
    """
    shift, total, means = _averages(q, x, log_w, second, causal, block)
    return shift + jnp.log(total), means


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _averages(
    q: Array, x: Array, log_w: Array, second: bool, causal: bool, block: int | None
) -> tuple[Float[Array, "h n"], Float[Array, "h n"], Float[Array, "h n c"]]:
    """c_i, Z_i = Σ_j e^{S_ij − c_i} and the averages. Derivatives meet the same c again, so that their P_ij add up to 1
    to rounding, as they would not to e^{S_ij − log m_i} with a large log m_i."""
    shift = _shift(q, x, log_w, causal, _tile(q, x, block))
    Y = _averaged(x, second)
    S = sums(q, x, log_w, shift, jnp.concatenate([jnp.ones_like(Y[:, :1]), Y], 1), causal=causal, block=block)
    return shift, S[..., 0], S[..., 1:] / S[..., :1]


def _averaged(x: Float[Array, "m d"], second: bool) -> Float[Array, "m c"]:
    """x, and x_a x_b for a ≤ b if `second`."""
    a, b = np.triu_indices(x.shape[1])
    return jnp.concatenate([x, x[:, a] * x[:, b]], 1) if second else x


@_averages.defjvp
def _(
    second: bool, causal: bool, block: int | None, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    (q, x, log_w), (dq, dx, dlog_w), d = primals, tangents, primals[1].shape[1]
    if second or (1 + d) ** 2 > MOMENTS:
        shift, total, means = _averages(q, x, log_w, second, causal, block)
        shift = jax.lax.stop_gradient(shift)
        Y, dY = jax.jvp(lambda x: _averaged(x, second), (x,), (dx,))
        both = (q, x, log_w, Y), (dq, dx, dlog_w, dY)
        dlog_m, dmeans = differential(*both, shift, total, means, causal=causal, block=block)
    else:
        shift, total, found = _averages(q, x, log_w, True, causal, block)
        shift, means, moments = jax.lax.stop_gradient(shift), found[..., :d], found[..., d:]
        known = shift, total, means, moments
        dlog_m, dmeans = _by_moments(primals, tangents, *known, causal=causal, block=block)
    return (shift, total, means), (jnp.zeros_like(shift), total * dlog_m, dmeans)


def differential(
    primals: tuple[Array, ...],
    tangents: tuple[Array, ...],
    shift: Float[Array, "h n"],
    total: Float[Array, "h n"],
    means: Float[Array, "h n c"],
    *,
    causal: bool,
    block: int | None = None,
) -> tuple[Float[Array, "h n"], Float[Array, "h n c"]]:
    """d log m and the differential of the averages, where c, Z and the averages are known."""
    (q, x, log_w, Y), (dq, dx, dlog_w, dY) = primals, tangents
    tile = _tile(q, x, block)

    def add(sums: Array, rows: Side, keys: Side) -> Array:
        (dq, q1), (x, dx1, Y1, dY1) = rows.more, keys.more
        E = exp2(_logits(rows, keys))
        dS = dq @ x + q1 @ dx1
        # Keys are columns in every product: then their own derivatives are products of the fast kind as well.
        return sums + (E * dS) @ Y1.T + E @ dY1.T

    start = jnp.zeros((tile[0], 1 + Y.shape[1]), q.dtype)
    one, zero = jnp.ones_like(Y[:, :1]), jnp.zeros_like(Y[:, :1])
    rows = _rows(q, shift, causal, tile, dq, _with_one(q))
    dx1 = jnp.concatenate([dx, dlog_w[:, None]], 1)
    Y1, dY1 = jnp.concatenate([one, Y], 1), jnp.concatenate([zero, dY], 1)
    keys = _keys(x, log_w, causal, tile, x, dx1, Y1, dY1)
    S = _for_queries(_fold(add, start, rows, keys), q) / total[..., None]
    return S[..., 0], S[..., 1:] - S[..., :1] * means


def _by_moments(
    primals: tuple[Array, ...],
    tangents: tuple[Array, ...],
    shift: Array,
    total: Array,
    means: Array,
    moments: Array,
    *,
    causal: bool,
    block: int | None,
) -> tuple[Float[Array, "h n"], Float[Array, "h n d"]]:
    """`differential` of the averages of x in few dimensions: dS_ij = ⟨dq_i, x_j⟩ + ⟨q_i, dx_j⟩ + dlog w_j, and so

        Σ_j P_ij dS_ij = dq_i · Σ_j P_ij x_j + q_i · Σ_j P_ij dx_j + Σ_j P_ij dlog w_j
        Σ_j P_ij (dS_ij x_j + dx_j)
            = dq_i · Σ_j P_ij x_j x_jᵀ + q_i · Σ_j P_ij dx_j x_jᵀ + Σ_j P_ij (x_j dlog w_j + dx_j)

    with the moments known: one product a tile, of (1 + d)² columns, and none of single pairs but E."""
    (q, x, log_w), (dq, dx, dlog_w) = primals, tangents
    (h, n, d), of = q.shape, np.zeros((x.shape[1],) * 2, int)
    a, b = np.triu_indices(d)
    of[a, b] = of[b, a] = np.arange(len(a))
    x1 = _with_one(x)
    columns = [_outer(x1, dx), _outer(x1, dlog_w[:, None]) + jnp.pad(dx, ((0, 0), (0, 1)))]
    Y = jnp.concatenate(columns, 1)
    U = sums(q, x, log_w, shift, Y, causal=causal, block=block, pulled_back=True) / total[..., None]
    of_dx, rest = U[..., : (1 + d) * d].reshape(h, n, 1 + d, d), U[..., (1 + d) * d :]
    second = jnp.concatenate([moments[..., of], means[..., None, :]], -2)
    S = jnp.einsum("hnd,hncd->hnc", dq, second) + jnp.einsum("hnd,hncd->hnc", q, of_dx) + rest
    return S[..., d], S[..., :d] - S[..., d:] * means


def sums(
    q: Float[Array, "h n d"],
    x: Float[Array, "m d"],
    log_w: Float[Array, " m"],
    shift: Float[Array, "h n"],
    Y: Float[Array, "m c"],
    *,
    causal: bool = False,
    block: int | None = None,
    pulled_back: bool = False,
) -> Float[Array, "h n c"]:
    """Σ_j e^{S_ij − c_i} Y_j, Y of any sign, for c_i with which no exponent exceeds `LARGEST`.

    Args:
        pulled_back: make Σ_i U_ic e^{S_ij − c_i}, what reverse mode makes of this, the fast one of the two.
    """
    tile = _tile(q, x, block)
    rows, keys = _rows(q, shift, causal, tile), _keys(x, log_w, causal, tile, Y)

    def add(sums: Array, rows: Side, keys: Side) -> Array:
        return sums + exp2(_logits(rows, keys)) @ keys.more[0].T

    def add_turned(sums: Array, rows: Side, keys: Side) -> Array:
        # Reverse mode meets the cotangent of these sums, turned as they are, in a product with E: Uᵀ E is twice as fast
        # if Uᵀ lies there as rows.
        return sums + (exp2(_logits(rows, keys)) @ keys.more[0].T).T

    if pulled_back:
        turned = _fold(add_turned, jnp.zeros((Y.shape[1], tile[0]), q.dtype), rows, keys)
        return _for_queries(jnp.swapaxes(turned, 1, 2), q)
    return _for_queries(_fold(add, jnp.zeros((tile[0], Y.shape[1]), q.dtype), rows, keys), q)


def _with_one(q: Float[Array, "*n d"]) -> Float[Array, "*n d+1"]:
    return jnp.concatenate([q, jnp.ones_like(q[..., :1])], -1)


def _outer(a: Float[Array, "m a"], b: Float[Array, "m b"]) -> Float[Array, "m ab"]:
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def _shift(q: Array, x: Array, log_w: Array, causal: bool, tile: tuple[int, int]) -> Float[Array, "h n"]:
    """c_i for e^{S_ij − c_i}: max log w where no logit can leave the range, else max_j S_ij."""
    h, n, _ = q.shape
    largest = jnp.sqrt(jnp.max(jnp.sum(q * q, -1)) * jnp.max(jnp.sum(x * x, -1)))
    heaviest = jnp.broadcast_to(jnp.max(log_w), (h, n))

    def search(_: tuple[Array, Array]) -> tuple[Array, Array]:
        def raise_(top: Array, rows: Side, keys: Side) -> Array:
            return jnp.maximum(top, jnp.max(_logits(rows, keys), axis=1, keepdims=True))

        start = jnp.full((tile[0], 1), UNSEEN, q.dtype)
        rows = _rows(q, jnp.zeros_like(heaviest), causal, tile)
        top = _for_queries(_fold(raise_, start, rows, _keys(x, log_w, causal, tile)), q)[..., 0]
        return jnp.asarray(False), jnp.where(top <= UNSEEN, jnp.nan, top / LOG2_E)

    # A loop of one turn or none, and not a branch: under vmap both sides of a branch are computed. NaN is "too large".
    # The heaviest token may be one that causal queries do not see.
    too_large = ~(largest <= LARGEST[np.dtype(q.dtype)]) | causal | ~jnp.isfinite(heaviest[0, 0])
    return jax.lax.while_loop(lambda now: now[0], search, (too_large, heaviest))[1]


def _rows(q: Array, shift: Array, causal: bool, tile: tuple[int, int], *more: Array) -> Side:
    """The rows log₂ e (q, −c), 1."""
    Q = _with_one(jnp.concatenate([LOG2_E * q, -LOG2_E * shift[..., None]], -1))
    i = jnp.broadcast_to(jnp.arange(q.shape[1])[None, :, None], (*q.shape[:2], 1))
    return Side(_cut(Q, tile[0]), _cut(i, tile[0]) if causal else None, tuple(_cut(y, tile[0]) for y in more))


def _keys(x: Array, log_w: Array, causal: bool, tile: tuple[int, int], *more: Array) -> Side:
    """The columns x, 1, log₂ w."""
    seen = jnp.concatenate([x, jnp.ones_like(x[:, :1])], 1)
    weight = _cut(LOG2_E * jnp.maximum(log_w, UNSEEN)[:, None], tile[1], fill=UNSEEN, keys=True)
    X = jnp.concatenate([_cut(seen, tile[1], keys=True), weight], 1)
    j = jnp.arange(x.shape[0])[:, None]
    columns = tuple(_cut(y, tile[1], keys=True) for y in more)
    return Side(X, _cut(j, tile[1], keys=True) if causal else None, columns)


def _logits(rows: Side, keys: Side) -> Float[Array, "r k"]:
    """log₂ e (S_ij − c_i)."""
    # log w and c need all digits, where a device would round the factors of a product.
    S = jnp.matmul(rows.factor, keys.factor, precision="highest")
    if rows.place is None or keys.place is None:
        return S
    return jnp.where(keys.place <= rows.place, S, UNSEEN)


def _fold(add: Callable[[Array, Side, Side], Array], start: Array, rows: Side, keys: Side) -> Array:
    """For every tile of rows `add`, from `start` on, over the tiles of keys: (tiles, *start.shape)."""
    if len(rows.factor) == len(keys.factor) == 1:
        rows, keys = jax.tree.map(lambda tiles: tiles[0], (rows, keys))
        return add(start, rows, keys)[None]
    again = jax.checkpoint(add)

    def over_keys(rows: Side) -> Array:
        return jax.lax.scan(lambda sums, keys: (again(sums, rows, keys), None), start, keys)[0]

    return jax.lax.map(over_keys, rows)


def _for_queries(sums: Float[Array, "tiles r c"], q: Float[Array, "h n d"]) -> Float[Array, "h n c"]:
    h, n, _ = q.shape
    return sums.reshape(-1, sums.shape[-1])[: h * n].reshape(h, n, -1)


def _cut(y: Array, size: int, *, fill: float = 0, keys: bool = False) -> Array:
    """(rows, c) or (h, n, c) in tiles of `size` rows, the last filled up; the tiles transposed if they are of keys."""
    y = y.reshape(-1, y.shape[-1])
    count = -(-len(y) // size)
    tiles = jnp.pad(y, ((0, count * size - len(y)), (0, 0)), constant_values=fill).reshape(count, size, -1)
    return jnp.swapaxes(tiles, 1, 2) if keys else tiles


def _tile(q: Array, x: Array, block: int | None) -> tuple[int, int]:
    """Rows and keys of a tile: equal shares, so that little is filled up."""
    r, m = q.shape[0] * q.shape[1], x.shape[0]
    if block is not None:
        return min(r, block), min(m, block)
    most = tile_pairs(r * m)
    K = _share(m, max(KEYS, most // r))
    return _share(r, max(1, most // K)), K


def _share(n: int, most: int) -> int:
    return -(-n // -(-n // most))
