"""V = vI: the equilibrium that attracts, from the algebraic Bernoulli equation

A S + S Aᵀ + 2 S G S = 0   with   A + 2SG stable,      G = Σ_h c_hv_h sym(B_h) < 0 on the growing directions of A.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError
from jaxflow.gaussian.parts import check_fits, parts_of, quadratic_part
from jaxflow.linalg import matrix_sign, solve_stable_lyapunov, symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

NEAR_AXIS = 1e-9
"""An eigenvalue of A counts as lying on the imaginary axis when |Re λ| is below this times ‖A‖."""


def bernoulli(layer: Layer, *, direction: Direction | None = None) -> Float[Array, "d d"]:
    """The covariance S that attracts every start of full rank, for V_h = v_hI and A without imaginary eigenvalues.

    S lives on the growing invariant subspace of A: with Π its projector (the other invariant subspace as kernel) and
    N = ∫₀^∞ (e^{-As}Π)ᵀ(−2G)(e^{-As}Π)ds, a Lyapunov equation, S = Π(N + (I−Π)ᵀ(I−Π))^{-1}Πᵀ. Its rank is the number of
    eigenvalues of A with positive real part: 0 if A is Hurwitz, d with S = P^{-1}, AᵀP + PA = −2G, if −A is.

    Works under jit and vmap. Differentiable once in A and B, V (through a last Newton–Kleinman step).

    Raises:
        InputError: some V_h is no multiple of the identity; A has an eigenvalue on the imaginary axis; N is not
            positive on the growing subspace (then nothing holds Σ back there). The last two only where values can be
            seen; under jit the result is then not finite or not a covariance.

    Cost O(d³), about a hundred matrix products.

    Source: arXiv:2606.07600, Lyapunov case; the mixed case is derived in tests/README.md.
    """
    parts = parts_of(layer, direction)
    A, G = parts.A, quadratic_part(parts)
    _check_axis(A)
    eye = jnp.eye(A.shape[0], dtype=A.dtype)
    sign = matrix_sign(A)
    Pi = (eye + sign) / 2
    # −A·sign(A) is Hurwitz and equals −A on the growing subspace.
    N = solve_stable_lyapunov(-(A @ sign).T, jax.lax.stop_gradient(Pi.T @ (2 * G) @ Pi))
    Q = eye - Pi
    _check_held_back(Pi, symmetrize(N))
    S = jax.lax.stop_gradient(symmetrize(Pi @ jnp.linalg.inv(symmetrize(N) + Q.T @ Q) @ Pi.T))
    for _ in range(2):
        S = jax.lax.stop_gradient(_newton(A, G, S))
    return _newton(A, G, S)


def _newton(A: Array, G: Array, S: Array) -> Array:
    """Newton–Kleinman: (A + 2SG) X + X (A + 2SG)ᵀ = 2SGS. With S held fixed, its derivative is that of the root."""
    return symmetrize(solve_stable_lyapunov(A + 2 * S @ G, 2 * S @ G @ S))


def growing(A: Float[Array, "d d"]) -> int:
    """How many eigenvalues of A have positive real part: the rank of the equilibrium. Host only."""
    return int((np.linalg.eigvals(np.asarray(A)).real > 0).sum())


def held_covariance(layer: Layer, start: Gaussian, *, direction: Direction | None = None) -> Float[Array, "d d"]:
    """A = 0, V_h = v_hI and G ≤ 0: the limit L₀ P L₀ᵀ, with P the projector on the kernel of L₀ᵀGL₀.

    The directions that attention does not see keep their spread for ever; the others shrink to a point as 1/t. For
    Σ₀ > 0 and a basis N of the kernel of G it is N(NᵀΣ₀^{-1}N)^{-1}Nᵀ. An eigenvalue of L₀ᵀGL₀ counts as zero below
    r·ε times the largest one. Not differentiable (a projector is not).

    Raises:
        InputError: A is not zero; G has a positive eigenvalue (Σ blows up); some V_h is no multiple of the identity.
    """
    check_fits(layer, start)
    parts = parts_of(layer, direction)
    if is_concrete(parts.A) and bool(jnp.any(parts.A != 0)):
        raise InputError(
            "must be zero", where="layer.A", got=f"largest entry {float(jnp.max(jnp.abs(parts.A))):.3g}",
            fix="use gaussian.bernoulli or gaussian.equilibrium",
        )  # fmt: skip
    L = start.factor
    g, U = jnp.linalg.eigh(symmetrize(L.T @ quadratic_part(parts) @ L))
    small = g.shape[0] * jnp.finfo(g.dtype).eps * jnp.max(jnp.abs(g))
    if is_concrete(g) and bool(g[-1] > small):
        raise InputError(
            "has a positive direction on the range of Σ₀", where="layer: Σ_h c_hv_h sym(B_h)",
            got=f"largest eigenvalue of L₀ᵀGL₀ {float(g[-1]):.3g}", expected="none above 0",
            fix="nothing settles here; ask gaussian.blowup_time when it becomes infinite",
        )  # fmt: skip
    P = U * jnp.where(jnp.abs(g) <= small, 1.0, 0.0)[None]
    return L @ P @ P.T @ L.T


def _check_axis(A: Array) -> None:
    if not is_concrete(A):
        return
    values = np.linalg.eigvals(np.asarray(A))
    nearest = float(np.abs(values.real).min())
    if nearest <= NEAR_AXIS * max(float(np.abs(values).max()), np.finfo(float).tiny):
        raise InputError(
            "has an eigenvalue on the imaginary axis",
            where="layer.A",
            got=f"Re λ = {nearest:.1e} for one of {np.array2string(values, precision=4)}",
            expected="|Re λ| > 0 for all: on the axis the limit depends on the start, or does not exist",
            fix="A = 0: gaussian.held_covariance(layer, start); otherwise shift A slightly, or follow jf.solve",
        )


def _check_held_back(Pi: Array, N: Array) -> None:
    if not is_concrete(N):
        return
    rank = int(np.round(np.trace(np.asarray(Pi))))
    if rank == 0:
        return
    U = np.linalg.svd(np.asarray(Pi))[0][:, :rank]
    smallest = float(np.linalg.eigvalsh(U.T @ np.asarray(N) @ U)[0])
    if not smallest > 0:
        raise InputError(
            "does not hold back the growing directions of A",
            where="layer: Σ_h c_hv_h sym(B_h)",
            got=f"smallest eigenvalue of N on them {smallest:.3g}",
            expected="> 0 (V and B of opposite signs)",
            fix="nothing settles here; ask gaussian.classify or gaussian.blowup_time",
        )
