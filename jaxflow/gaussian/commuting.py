"""A, V_h, B_h and Σ₀ symmetric and commuting: in their common basis U every eigenvalue goes its own way,

ℓ_i' = 2a_iℓ_i + 2c_iℓ_i²,   μ_i' = (a_i + v_i + c_iℓ_i) μ_i,   c_i = Σ_h c_hv_{hi}b_{hi},   v_i = Σ_h c_hv_{hi},

so that ℓ_i is the scalar Riccati solution and μ_i(t) = μ_i(0) e^{v_it} √(ℓ_i(t)/ℓ_i(0)).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.gaussian.closed import scalar_blowup_time, scalar_variance
from jaxflow.gaussian.parts import check_fits, parts_of
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction


class Spectrum(NamedTuple):
    """The common orthonormal basis U (d, d) and what each of its directions sees: a, v, c, ℓ₀, (d,) each."""

    U: Float[Array, "d d"]
    a: Float[Array, " d"]
    v: Float[Array, " d"]
    c: Float[Array, " d"]
    l0: Float[Array, " d"]


def common_spectrum(layer: Layer, start: Gaussian, *, direction: Direction | None = None) -> Spectrum | None:
    """The Spectrum, or None where the matrices are not symmetric or do not commute (to 1e-12). Host only."""
    check_fits(layer, start)
    parts = parts_of(layer, direction)
    Sigma = np.asarray(start.covariance)
    matrices = [Sigma, np.asarray(parts.A), *np.asarray(parts.cV), *np.asarray(parts.B)]
    scaled = [X / max(float(np.abs(X).max(initial=0.0)), np.finfo(X.dtype).tiny) for X in matrices]
    tolerance = 1e-12 if Sigma.dtype == np.float64 else 1e-5
    # A combination in general position has the common eigenvectors, and one for each common eigenvalue.
    mixing = np.random.default_rng(0).normal(size=len(scaled))
    U = np.linalg.eigh(sum(c * (X + X.T) / 2 for c, X in zip(mixing, scaled)))[1]
    rotated = [U.T @ X @ U for X in scaled]
    if any(np.abs(Y - np.diag(np.diag(Y))).max() > tolerance for Y in rotated):
        return None
    basis = jnp.asarray(U)
    diagonal = jnp.einsum("ik,hij,jk->hk", basis, jnp.concatenate([parts.A[None], parts.cV, parts.B]), basis)
    h = parts.B.shape[0]
    v, beta = diagonal[1 : h + 1], diagonal[h + 1 :]
    # The largest ones are Σ₀'s own; the others are zero exactly, not to rounding.
    l0 = jnp.einsum("ik,ij,jk->k", basis, start.covariance, basis)
    order = jnp.argsort(-l0)
    l0 = l0.at[order[start.rank :]].set(0.0)
    return Spectrum(basis, diagonal[0], v.sum(0), (v * beta).sum(0), l0)


def commuting(layer: Layer, start: Gaussian, t: Real, *, direction: Direction | None = None) -> Gaussian:
    """Mean and covariance at time t for symmetric commuting A, V_h, B_h, Σ₀ and b = 0.

    Differentiable in t. Valid before `gaussian.blowup_time`.

    Raises:
        InputError: the matrices do not commute, or there is a bias (the mean is then no elementary function).
    """
    spectrum = common_spectrum(layer, start, direction=direction)
    if spectrum is None:
        raise InputError(
            "are not symmetric and commuting",
            where="layer.A, layer.V, layer.B, start.covariance",
            fix="use gaussian.riccati if every V_h is a multiple of the identity, else jf.solve",
        )
    if layer.b is not None and bool(jnp.any(layer.b != 0)):
        raise InputError(
            "leaves the mean without a closed form", where="layer.b", got=layer.b, fix="use jf.solve for the mean"
        )
    U, a, v, c, l0 = spectrum
    kept = jnp.argsort(-l0)[: start.rank]
    l = scalar_variance(a, c, l0, t)
    # √(ℓ(t)/ℓ(0)) from ℓ at start 1 and c scaled, so that it also holds where ℓ(0) = 0.
    gain = jnp.sqrt(scalar_variance(a, c * l0, 1.0, t))
    mean = U @ (jnp.exp(v * t) * gain * (U.T @ start.mean))
    return Gaussian(mean, U[:, kept] * jnp.sqrt(l[kept])[None])


def commuting_blowup_times(spectrum: Spectrum) -> Float[Array, " d"]:
    """The blow-up time of each eigenvalue; inf where there is none."""
    return scalar_blowup_time(spectrum.a, spectrum.c, spectrum.l0)
