"""Attention on S¹ and S² in nearly linear time: through a grid of the sphere.

The function e^{⟨q, y⟩} of y ∈ S^{d−1} is, up to a tail, a polynomial of degree L. With I the interpolation of such
polynomials from a grid (x_g), so that e^{⟨q, y⟩} ≈ Σ_g I_g(y) e^{⟨q, x_g⟩},

    ρ_g = Σ_j w_j I_g(x_j)                                  tokens → grid
    F_h(x_g) = Σ_g' ρ_g' e^{⟨B_h x_g, x_g'⟩} (1, x_g')        attention among the points of the grid
    m_h(x_i) (1, a_h(x_i)) = Σ_g I_g(x_i) F_h(x_g)          grid → tokens

I_g(x) = Σ_k φ_k(x) A_kg with a basis φ of K = 2L + 1 or (L + 1)² polynomials (`harmonics`); the first line is the
transpose of the last. The tail of e^{r⟨u, y⟩} = Σ_l (2l+1) i_l(r) P_l(⟨u, y⟩) beyond L falls faster than any power
of L once L > r.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import check_positive
from jaxflow.attention.base import AbstractKernel, Tilted
from jaxflow.attention.harmonics import LARGEST_DEGREE, Harmonics, harmonics
from jaxflow.attention.tiles import sums
from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.geometry.check import check_on


def log_missed(r: Float[Array, "*s"], L: int, dim: int, *, raised: int = 0) -> Float[Array, "*s"]:
    """log of a bound on e^{−r} times what interpolation at degree L misses of e^{⟨q, y⟩}, |q| = r, on all of S^{dim−1}:

        S²   Σ_{l>L} (2l+1) i_l(r) (1 + √(k(2L+2))),   k = l − L − 1,   i_l(r) ≤ r^l/(2l+1)!! e^{r²/(4l+6)}
        S¹   Σ_{l>L} 2 I_l(r) (1 + [k > 0]),                            I_l(r) ≤ (r/2)^l/l! e^{r²/(4l+4)}

    Of degree l = L + 1 the grid sees nothing that it could mistake for a degree ≤ L; of L + 1 + k, what lies in the k
    highest of these. On S² that has at most the norm √4π of P_l, and functions of these degrees with this norm are no
    larger than √(Σ (2l'+1)) ≤ √(k(2L+2)); on S¹ each wave is taken for one other. Terms fall at least as fast as q^k,
    q = r/(2L+3) or r/(2L+4); infinite unless q < ½.

    Args:
        raised: by how much factors y, 1 or 2 of them, raise all degrees.
    """
    l = L + 1 - raised
    if dim == 3:
        double_factorial = math.lgamma(2 * l + 2) - l * math.log(2) - math.lgamma(l + 1)
        first = math.log(2 * l + 1) + l * jnp.log(r) - double_factorial + r**2 / (4 * l + 6)
        q = r / (2 * l + 1)
        # √k ≤ k,  Σ q^k = 1/(1−q),  Σ k q^k = q/(1−q)²
        terms = 1 / (1 - q) + math.sqrt(2 * L + 2) * q / (1 - q) ** 2
    else:
        first = math.log(2) + l * jnp.log(r / 2) - math.lgamma(l + 1) + r**2 / (4 * l + 4)
        q = r / (2 * l + 2)
        terms = (1 + q) / (1 - q)
    # With factors y a degree is split in parts, which count one by one.
    return jnp.where(q < 0.5, first + jnp.log((1 + raised) * terms) - r, jnp.inf)


def lebesgue(L: int, dim: int) -> float:
    """A bound on max_x Σ_g |I_g(x)|: how much interpolation can enlarge an error."""
    return 2 + 2 / math.pi * math.log(L + 1) if dim == 2 else 2 * math.sqrt(L + 1)


def truncation(r: Float[Array, "*s"], L: int, dim: int, *, second: bool = False) -> Float[Array, "*s"]:
    """e^{−r} times the error of both interpolations of e^{⟨Bx, y⟩} (1, y), ‖B‖ = r: in x, and in y with what the other
    makes of it; with factors y yᵀ as well if `second`."""
    return (1 + lebesgue(L, dim)) * jnp.exp(log_missed(r, L, dim, raised=2 if second else 1))


@functools.lru_cache(maxsize=256)
def least_degree(norm: float, goal: float, dim: int, largest: int) -> int:
    """The smallest even degree whose truncation is below the goal, or one above the largest."""
    with jax.ensure_compile_time_eval():
        r = jnp.asarray(norm, float)
        degrees = range(4, largest + 1, 2)
        return next((L for L in degrees if float(truncation(r, L, dim, second=True)) <= goal), largest + 1)


@final
class Harmonic(AbstractKernel):
    """O(n K h) time for n tokens and h heads, K = 2L + 1 on S¹ and (L + 1)² on S², and no pairs of tokens.

    Every answer carries `Tilted.error`, a bound on the errors of log m_h(x_i) and a_h(x_i): the tail and the rounding
    errors of the sums over m_h(x_i), which is small where the cloud is far from what the query looks for. In the worst
    case, a cloud at the far end of every query, it is e^{2‖B_h‖} times that of a cloud all around.

    Args:
        norm: the largest ‖B_h‖₂ (largest singular value) that the degree must serve. Larger ones are not an error:
            their bound is larger.
        tolerance: on `Tilted.error`. Default 1e-8 in float64, 1e-3 in float32.
        degree: L, in the place of `norm`; made even on S².
        fallback: the kernel that answers if one token exceeds the tolerance, such as `Chunked()`. None: the tokens
            that do get NaN, so that a solve ends with `nonfinite` and not with a wrong answer.

    Raises:
        InputError: d > 3, tokens off the sphere, causal attention, queries that are not B_h x (use `free` or `tied`),
            a tolerance below the precision, a norm that needs a degree above 80 on S² (40 in float32).

    Off the sphere, where the stages of a step may lie, points stand for x/|x|: another extension of attention than the
    sums have, with the same flow on the sphere and the same order of every method.

    Cost: on S² at ‖B‖ = 9 L is 26 to 34: 729 to 1225 numbers a token, once for all heads, and h (2L²)² pairs on the
    grid. Compile time does not depend on L. Derivatives of all orders, forward and backward, by recomputation.

    Source: sums over a sphere by spherical harmonics on a grid: Driscoll and Healy, Adv. Appl. Math. 15 (1994) 202–250.
    That attention among the points of the grid needs no transform of its own, and the bound, are this library's.
    """

    norm: float | None = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    degree: int | None = eqx.field(static=True)
    fallback: AbstractKernel | None

    def __init__(
        self,
        norm: float | None = None,
        *,
        tolerance: float | None = None,
        degree: int | None = None,
        fallback: AbstractKernel | None = None,
    ) -> None:
        if (norm is None) == (degree is None):
            raise InputError("needs one of norm and degree", where="Harmonic", got=f"norm={norm}, degree={degree}")
        if norm is not None and not 0 <= norm < math.inf:
            raise InputError("must be a number ≥ 0", where="Harmonic.norm", got=norm)
        if degree is not None and degree < 1:
            raise InputError("must be at least 1", where="Harmonic.degree", got=degree)
        if tolerance is not None:
            check_positive(tolerance, "Harmonic.tolerance")
        self.norm = None if norm is None else float(norm)
        self.tolerance, self.degree, self.fallback = tolerance, degree, fallback

    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        raise InputError(
            "interpolates in the points that ask, and must know them and not their queries",
            where="Harmonic",
            got="queries q",
            expected="kernel.free(B, x, log_w) or kernel.tied(D, x, log_w)",
        )

    def free(
        self,
        B: Float[Array, "h d d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        at: Float[Array, "n d"] | None = None,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        if causal:
            raise InputError(
                "cannot leave out the tokens that come later",
                where="Harmonic",
                got="causal attention",
                fix="take Chunked()",
            )
        return self._tilt(B, x, log_w, x if at is None else at, second=second, quartic=False)

    def tied(
        self, D: Float[Array, "h d d"], x: Float[Array, "n d"], log_w: Float[Array, " n"], *, quartic: bool = False
    ) -> Tilted:
        return self._tilt(D, x, log_w, x, second=False, quartic=quartic)

    def degree_for(self, dim: int, dtype: Any) -> int:
        """L for tokens in this dimension and precision: the smallest whose tail, enlarged twice by interpolation, is
        below tolerance · e^{−2 norm}, the worst cloud, or below rounding."""
        if dim not in (2, 3):
            raise InputError(
                "works on S¹ and S²", where="Harmonic", got=f"d = {dim}", expected="d = 2 or 3", fix="take Chunked()"
            )
        eps, largest = float(np.finfo(dtype).eps), LARGEST_DEGREE[dim, np.dtype(dtype).itemsize]
        if self._tolerance(dtype) < 500 * eps:
            raise InputError(
                f"is below what {np.dtype(dtype)} allows",
                where="Harmonic.tolerance",
                got=self.tolerance,
                expected=f"at least {500 * eps:.1g}",
                fix="take float64, or Chunked()",
            )
        if self.degree is not None:
            degree = self.degree
        else:
            assert self.norm is not None
            # Half of the tolerance is left for rounding.
            goal = max(eps, self._tolerance(dtype) / 4 * math.exp(-2 * self.norm))
            degree = least_degree(self.norm, goal, dim, largest)
        degree += degree % 2 if dim == 3 else 0
        if degree > largest:
            raise InputError(
                f"needs a degree above {largest}, where {np.dtype(dtype)} has no digits left",
                where="Harmonic",
                got=f"degree {self.degree}" if self.norm is None else f"norm {self.norm:g}",
                fix="take Chunked()",
            )
        return degree

    def _tolerance(self, dtype: Any) -> float:
        return self.tolerance or (1e-8 if np.dtype(dtype) == np.float64 else 1e-3)

    def _tilt(self, B: Array, x: Array, log_w: Array, at: Array, *, second: bool, quartic: bool) -> Tilted:
        check_on(Sphere(), x, "x")
        check_on(Sphere(), at, "at")
        # The stages of a Runge–Kutta step leave the sphere a little, and polynomials do not know what to do there.
        x, at = Sphere().retract(x), Sphere().retract(at)
        H = harmonics(x.shape[1], self.degree_for(x.shape[1], x.dtype))
        found = _through_grid(H, B, x, log_w, at, second=second, quartic=quartic)
        error = found.error
        assert error is not None
        within = error <= self._tolerance(x.dtype)
        if self.fallback is None:
            unknown = jnp.where(within, 0, jnp.nan)
            return Tilted(
                found.log_m + unknown,
                found.mean + unknown[..., None],
                None if found.second is None else found.second + unknown[..., None, None],
                None if found.quartic is None else found.quartic + jnp.max(unknown, axis=1),
                error,
            )
        fallback = self.fallback

        def directly() -> Tilted:
            exact = (
                fallback.tied(B, x, log_w, quartic=True)
                if quartic
                else fallback.free(B, x, log_w, at=at, second=second)
            )
            return Tilted(exact.log_m, exact.mean, exact.second, exact.quartic, jnp.zeros_like(error))

        return jax.lax.cond(jnp.all(within), lambda: found, directly)


def block_tokens(K: int) -> int:
    """Tokens whose K numbers fit a core's cache on a CPU; enough to fill the device elsewhere."""
    pairs = 2**17 if jax.default_backend() == "cpu" else 2**25
    return max(32, pairs // K // 32 * 32)


def _through_grid(H: Harmonics, B: Array, x: Array, log_w: Array, at: Array, *, second: bool, quartic: bool) -> Tilted:
    (h, d, _), dtype = B.shape, x.dtype
    grid = jnp.asarray(H.points, dtype)
    top = jnp.max(log_w)
    w = jnp.exp(log_w - top)
    total = jnp.sum(w)
    rho = _to_grid(H, x, w / total)

    # What the grid sees: |ρ| for the size of rounding errors, 1, y and, if asked for, y yᵀ.
    pairs = np.stack(np.triu_indices(d))
    yy = grid[:, pairs[0]] * grid[:, pairs[1]]
    columns = [rho[:, None] * jnp.concatenate([jnp.ones_like(grid[:, :1]), grid], 1)]
    if second or quartic:
        columns.append(rho[:, None] * yy)
    columns.append(jnp.abs(jax.lax.stop_gradient(rho))[:, None])
    Y = jnp.concatenate(columns, 1)

    q = jnp.einsum("hij,gj->hgi", B, grid)
    norm = jax.lax.stop_gradient(jnp.sqrt(jnp.max(jnp.sum(q * q, -1), axis=1)))
    F = sums(q, grid, jnp.zeros_like(rho), jnp.broadcast_to(norm[:, None], q.shape[:2]), Y)
    quartics = None
    if quartic:
        # |x| = |y| = 1:  J = Σ_gg' ρ_g ρ_g' e^{⟨Bx_g, x_g'⟩} (1 + ⟨x_g, x_g'⟩²)
        twice = np.where(pairs[0] == pairs[1], 1.0, 2.0).astype(dtype)
        S = jnp.einsum("hgp,p,gp->hg", F[..., d + 1 : -1], twice, yy)
        quartics = jnp.exp(norm + 2 * (top + jnp.log(total))) * jnp.einsum("g,hg->h", rho, F[..., 0] + S)
    kept = F[..., : -1 if second else d + 1]
    C = jax.vmap(H.analyse)(kept)
    size = jnp.max(F[..., -1], axis=1)
    bound = jax.lax.stop_gradient(_bound(H, norm, size, C, second=second))

    rows_of_C = jnp.swapaxes(C, 1, 2).reshape(-1, H.size)

    def read(points: Array) -> tuple[Array, ...]:
        """log m, a, the second moments and the bound of some tokens."""
        found = (rows_of_C @ H.basis(points)).reshape(h, -1, len(points))
        m, rest = found[:, 0], found[:, 1:]
        safe = jnp.where(m > bound[:, None], m, 1)
        error = jnp.where(m > bound[:, None], 2 * bound[:, None] / safe, jnp.inf)
        return jnp.log(safe), rest / safe[:, None], jax.lax.stop_gradient(error)

    log_m, moments, error = _by_tokens(read, at, block_tokens(H.size))
    moments = jnp.moveaxis(moments, 1, 2)
    square = None
    if second:
        place = np.zeros((d, d), int)
        place[tuple(pairs)] = place[tuple(pairs[::-1])] = np.arange(pairs.shape[1])
        square = moments[..., d:][..., place]
    return Tilted(log_m + (norm + top + jnp.log(total))[:, None], moments[..., :d], square, quartics, error)


def _bound(H: Harmonics, norm: Array, size: Array, C: Array, *, second: bool) -> Float[Array, " h"]:
    """On the error of m_h(x) (1, a_h(x)) e^{−‖B_h‖}: truncation in x and in y, and rounding in both sums.

    size: max_g Σ_g' |ρ_g'| e^{⟨B x_g, x_g'⟩ − ‖B‖}, what the terms on the grid add up to without their signs.
    """
    eps, L, d = float(np.finfo(C.dtype).eps), H.degree, H.points.shape[1]
    # A logit of size ‖B‖ is known to ‖B‖ eps, and so is its exponential; a power of x + iy, to as many eps.
    rounding = (4 + norm + L / 2) * eps * (lebesgue(L, d) * size + jnp.max(jnp.sum(jnp.abs(C), axis=1), axis=-1))
    return truncation(norm, L, d, second=second) + rounding


def _to_grid(H: Harmonics, x: Float[Array, "n d"], w: Float[Array, " n"]) -> Float[Array, " g"]:
    """ρ_g = Σ_j w_j I_g(x_j)."""
    n = len(w)
    block = min(n, block_tokens(H.size))
    count = -(-n // block)
    x = jnp.pad(x, ((0, count * block - n), (0, 0))).reshape(count, block, -1)
    w = jnp.pad(w, (0, count * block - n)).reshape(count, block)

    @jax.checkpoint
    def add(M: Array, tokens: tuple[Array, Array]) -> tuple[Array, None]:
        x, w = tokens
        return M + H.basis(x) @ w, None

    M = jax.lax.scan(add, jnp.zeros(H.size, x.dtype), (x, w))[0]
    values = jax.ShapeDtypeStruct((len(H.points), 1), x.dtype)
    (rho,) = jax.linear_transpose(H.analyse, values)(M[:, None])
    return rho[:, 0]


def _by_tokens(read: Callable[[Array], tuple[Array, ...]], x: Float[Array, "n d"], block: int) -> tuple[Array, ...]:
    """read(x) with the tokens cut into blocks; its results have the tokens last."""
    n = x.shape[0]
    block = min(n, block)
    count = -(-n // block)
    blocks = jnp.pad(x, ((0, count * block - n), (0, 0))).reshape(count, block, -1)
    parts = jax.lax.map(jax.checkpoint(read), blocks)

    def join(part: Array) -> Array:
        return jnp.moveaxis(part, 0, -2).reshape(*part.shape[1:-1], count * block)[..., :n]

    return jax.tree.map(join, parts)
