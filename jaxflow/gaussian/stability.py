"""Does an equilibrium attract? The spectra of the two linearisations, of the covariance and of the mean."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxflow.errors import InputError
from jaxflow.gaussian.parts import Parts, has_scalar_values, parts_of, quadratic_part, slope
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

LARGEST = 64
"""Largest d for which the linearisation is formed as a dense matrix, of size d(d+1)/2."""


def velocity(parts: Parts, Sigma: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Σ̇ = KΣ + ΣKᵀ, K = A + Σ_h c_hV_hΣB_h."""
    K = slope(parts, Sigma)
    return K @ Sigma + Sigma @ K.T


@lru_cache(maxsize=16)
def symmetric_basis(d: int) -> np.ndarray:
    """An orthonormal basis of the symmetric matrices, (d(d+1)/2, d, d)."""
    i, j = np.triu_indices(d)
    E = np.zeros((len(i), d, d))
    k = np.arange(len(i))
    E[k, i, j] += np.where(i == j, 1.0, np.sqrt(0.5))
    E[k, j, i] = E[k, i, j]
    return E


def linearisation(parts: Parts, Sigma: Float[Array, "d d"]) -> Float[Array, "m m"]:
    """X ↦ d/ds velocity(Σ + sX) on the symmetric matrices, in the basis above, m = d(d+1)/2. Cost O(d⁵).

    Raises:
        InputError: d > 64.
    """
    d = Sigma.shape[0]
    if d > LARGEST:
        raise InputError(
            "is too large for a dense linearisation", where="layer", got=f"d = {d}", expected=f"d ≤ {LARGEST}",
            fix="layers with V_h = v_hI have closed forms at any d; otherwise follow jf.solve",
        )  # fmt: skip
    basis = jnp.asarray(symmetric_basis(d), Sigma.dtype)
    columns = jax.lax.map(lambda X: jax.jvp(lambda S: velocity(parts, S), (Sigma,), (X,))[1], basis)
    return jnp.einsum("aij,bij->ba", columns, basis)


def covariance_spectrum(
    layer: Layer, covariance: Float[Array, "d d"], *, direction: Direction | None = None
) -> Complex[np.ndarray, " m"]:
    """Eigenvalues of the linearisation of Σ̇ at an equilibrium, by decreasing real part, (d(d+1)/2,). Host only.

    The covariance attracts its neighbourhood when all real parts are negative. For V_h = v_hI they are λ_i + λ_j,
    i ≤ j, with λ the eigenvalues of A + 2ΣG, at any d; otherwise d ≤ 64.
    """
    parts = parts_of(layer, direction)
    if has_scalar_values(parts):
        closed_loop = np.linalg.eigvals(np.asarray(parts.A + 2 * covariance @ quadratic_part(parts)))
        i, j = np.triu_indices(len(closed_loop))
        return _sorted(closed_loop[i] + closed_loop[j])
    return _sorted(np.linalg.eigvals(np.asarray(linearisation(parts, covariance))))


def mean_matrix(
    layer: Layer, covariance: Float[Array, "d d"], *, direction: Direction | None = None
) -> Float[Array, "d d"]:
    """K + Σ_h c_hV_h = A + Σ_h c_hV_h + Σ_h c_hV_hΣB_h: at this covariance μ̇ = (that) μ + b."""
    parts = parts_of(layer, direction)
    return slope(parts, covariance) + parts.cV.sum(0)


def mean_spectrum(
    layer: Layer, covariance: Float[Array, "d d"], *, direction: Direction | None = None
) -> Complex[np.ndarray, " d"]:
    """Eigenvalues of `mean_matrix`, by decreasing real part. The mean converges when all real parts are negative.

    At a positive definite equilibrium K is similar to a skew matrix; for V = vI all real parts are then v itself: only
    V < 0 < B has a stable covariance and a stable mean, with V > 0 > B the mean diverges. Host only.
    """
    return _sorted(np.linalg.eigvals(np.asarray(mean_matrix(layer, covariance, direction=direction))))


def _sorted(values: np.ndarray) -> np.ndarray:
    values = values.astype(complex)
    return values[np.argsort(-np.real(values), kind="stable")]
