"""V = vI: the covariance in closed form, for any A, any B and any rank.

Σ̇ = AΣ + ΣAᵀ + 2ΣGΣ,   G = Σ_h c_hv_h sym(B_h),   is solved by
Σ(t) = e^{At}L₀ [I − L₀ᵀW(t)L₀]^{-1} L₀ᵀe^{Aᵀt},   W(t) = 2∫₀ᵗ e^{Aᵀs}G e^{As}ds.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Bool, Float

from jaxflow._typing import Real, Scalar
from jaxflow.gaussian.parts import check_fits, parts_of, quadratic_part
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction


@final
class Riccati(eqx.Module):
    """The covariance at one time.

    Attributes:
        factor: L, (d, r), Σ(t) = LLᵀ. Beyond a blow-up: that of the last substep before it, so that it is finite.
        valid: whether Σ(t) exists, that is whether t lies before the blow-up.
    """

    factor: Float[Array, "d r"]
    valid: Bool[Array, ""]

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Σ = L Lᵀ."""
        return self.factor @ self.factor.T


def propagator(A: Float[Array, "d d"], G: Float[Array, "d d"], t: Real) -> tuple[Array, Array]:
    """e^{At} and W(t) = 2∫₀ᵗ e^{Aᵀs}G e^{As}ds, from one matrix exponential of size 2d (Van Loan 1978).

    The block e^{-Aᵀt} in it costs digits once ‖A‖t exceeds about 10.
    """
    d = A.shape[0]
    E = jax.scipy.linalg.expm(jnp.block([[-A.T, 2 * G], [jnp.zeros_like(A), A]]) * t)
    return E[d:, d:], symmetrize(E[d:, d:].T @ E[:d, d:])


def riccati(
    layer: Layer, start: Gaussian, t: Real, *, direction: Direction | None = None, substeps: int = 16
) -> Riccati:
    """The covariance at time t under a constant layer whose V_h are multiples of the identity.

    Agrees with the moment flow to rounding, far past the reach of its step sizes, and is differentiable in the layer,
    the start and t. The mean has no such form; `jf.solve` gives it.

    Args:
        layer: V_h = v_hI, in particular one head V = vI; any A and B_h.
        start: any rank; only its factor matters.
        t: ≥ 0, Python number or traced.
        direction: for tied heads.
        substeps: the flow over t is that over t/substeps, composed. One exponential serves all of them; digits are
            kept while ‖A‖t/substeps is below about 10.

    Returns:
        A Riccati, with `valid` false if I − LᵀWL is not positive definite at the end of some substep. An indefinite G
        could blow up and return within one substep; `gaussian.blowup_time` cannot be deceived so.

    Raises:
        InputError: some V_h is no multiple of the identity, or the start does not fit.

    Cost: one matrix exponential of size 2d, and O(d²r) a substep.

    Source: the Riccati equation (1.1) of arXiv:2606.07600 with V = vI.
    """
    check_fits(layer, start)
    parts = parts_of(layer, direction)
    E, W = propagator(parts.A, quadratic_part(parts), t / substeps)

    def substep(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        L, valid = carry
        M = jnp.eye(L.shape[1], dtype=L.dtype) - L.T @ W @ L
        valid = valid & (jnp.linalg.eigvalsh(jax.lax.stop_gradient(M))[0] > 0)
        # Both branches stay finite, so that a derivative never meets the factor of an indefinite matrix.
        C = jnp.linalg.cholesky(jnp.where(valid, M, jnp.eye(L.shape[1], dtype=L.dtype)))
        new = E @ jax.scipy.linalg.solve_triangular(C, L.T, lower=True).T
        return (jnp.where(valid, new, L), valid), None

    (L, valid), _ = jax.lax.scan(substep, (start.factor, jnp.asarray(True)), length=substeps)
    return Riccati(L, valid)


def riccati_blowup_time(
    layer: Layer, start: Gaussian, *, direction: Direction | None = None, horizon: float = 100.0
) -> Scalar:
    """The first t with det(I − L₀ᵀW(t)L₀) = 0, where Σ becomes infinite; inf if there is none up to `horizon`.

    The march towards it takes steps that provably do not pass a zero. With a = ‖A‖, g = ‖G‖ and σ = λmax(Σ):
    λmax(LᵀW(s)L) ≤ 2s λmax⁺(LᵀGL) + 2.44 σ g a s² for 2as ≤ 0.2, and Σ is finite while that stays below 1. Close to
    the zero a fixed-point iteration, contracting by as, finishes it to rounding.

    Differentiable once in everything, by the implicit function theorem. Works under jit and vmap.

    Args:
        layer, direction: as for `riccati`.
        start: any rank.
        horizon: how far to look.

    Returns:
        t*, relative error about 1e-12.

    Raises:
        InputError: as for `riccati`.

    Cost: a matrix exponential a step; about 10 ‖A‖·horizon + 40 steps.
    """
    check_fits(layer, start)
    parts = parts_of(layer, direction)
    A, G, L0 = parts.A, quadratic_part(parts), start.factor
    fixed = tuple(jax.lax.stop_gradient(x) for x in (A, G, L0))
    found = _march(*fixed, horizon=horizon)
    t = jnp.where(jnp.isfinite(found), found, 0.0)

    def top(t: Array, A: Array, G: Array, L0: Array) -> Array:
        # Restarting at t/2 twice would keep more digits; a derivative does not need them.
        return jnp.linalg.eigvalsh(L0.T @ propagator(A, G, t)[1] @ L0)[-1]

    slope = jax.grad(top)(t, *fixed)
    value = top(t, A, G, L0)
    # Zero in value; its derivative is that of the root.
    correction = (jax.lax.stop_gradient(value) - value) / jnp.where(slope > 0, slope, 1.0)
    return jnp.where(jnp.isfinite(found), t + correction, jnp.inf)


def _march(A: Array, G: Array, L0: Array, *, horizon: float) -> Array:
    """The first blow-up time in (0, horizon], else inf."""
    tiny = jnp.finfo(A.dtype).tiny
    a, g = (jnp.maximum(jnp.linalg.norm(X, ord=2), tiny) for X in (A, G))

    def near(L: Array) -> tuple[Array, Array, Array]:
        """The blow-up time were A zero; the longest safe step; whether the former is as good as exact."""
        sigma = jnp.linalg.norm(L, ord=2) ** 2
        first = 1 / jnp.maximum(jnp.linalg.eigvalsh(2 * L.T @ G @ L)[-1], tiny)
        safe = jnp.minimum(jnp.minimum(0.5 * first, jnp.sqrt(0.2 / (sigma * g * a))), 0.1 / a)
        close = (a * first < 1e-3) & (sigma * g * a * first**2 < 1e-3)
        return first, jnp.minimum(safe, horizon), close

    def going(carry: tuple[Array, Array]) -> Array:
        t, L = carry
        return (t < horizon) & ~near(L)[2]

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        t, L = carry
        h = near(L)[1]
        E, W = propagator(A, G, h)
        C = jnp.linalg.cholesky(jnp.eye(L.shape[1], dtype=L.dtype) - L.T @ W @ L)
        return t + h, E @ jax.scipy.linalg.solve_triangular(C, L.T, lower=True).T

    t, L = jax.lax.while_loop(going, step, (jnp.zeros((), A.dtype), L0))
    first, _, close = near(L)

    def refine(s: Array, _: None) -> tuple[Array, None]:
        return s / jnp.linalg.eigvalsh(L.T @ propagator(A, G, s)[1] @ L)[-1], None

    s = jax.lax.scan(refine, jnp.where(close, first, 0.1 / a), length=6)[0]
    return jnp.where(close & (t + s <= horizon), t + s, jnp.inf)
