"""A Gaussian measure N(μ, Σ) as mean and factor, Σ = L Lᵀ."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_same_dtype, check_shape, check_symmetric, is_concrete
from jaxflow.errors import InputError
from jaxflow.linalg import factor_of


@final
class Gaussian(eqx.Module):
    """N(mean, factor @ factor.T). The factor's number of columns is the rank; semidefinite and rank-deficient
    covariances are therefore exact, and no flow can make them indefinite.

    Attributes:
        mean: μ, (d,).
        factor: L, (d, r) with 1 ≤ r ≤ d and full column rank.
    """

    mean: Float[Array, "*t d"]
    factor: Float[Array, "*t d r"]

    def __init__(self, mean: Float[Array, "*t d"], factor: Float[Array, "*t d r"]) -> None:
        self.mean = as_float(mean, "mean")
        self.factor = as_float(factor, "factor", self.mean.dtype)
        if self.mean.ndim < 1:
            raise InputError("must be a vector", where="mean", got=self.mean.shape, expected="(d,)")
        check_shape(self.factor, (*self.mean.shape, "r"), "factor")
        check_same_dtype({"mean": self.mean, "factor": self.factor})
        d, r = self.factor.shape[-2:]
        if not 1 <= r <= d:
            raise InputError("has an impossible rank", where="factor", got=f"{r} columns", expected=f"1 to {d}")

    @classmethod
    def from_covariance(
        cls, mean: Float[Array, " d"], covariance: Float[Array, "d d"], *, rank: int | None = None
    ) -> "Gaussian":
        """N(mean, covariance) for a symmetric positive semidefinite matrix.

        The rank is the number of eigenvalues above d·ε·(largest), unless given. Under `jit` the values cannot be
        looked at: the rank is then d unless given. Full rank is factored by Cholesky and differentiable; a lower
        rank by eigenvectors, not differentiable where eigenvalues meet (differentiate in `factor` instead).

        Raises:
            InputError: not square, not symmetric, or indefinite (the smallest eigenvalue is reported).
        """
        mean = as_float(mean, "mean")
        covariance = as_float(covariance, "covariance", mean.dtype)
        d = mean.shape[0]
        check_shape(covariance, (d, d), "covariance")
        check_symmetric(covariance, "covariance", "symmetrise it as (X + Xᵀ)/2 if the difference is rounding")
        if is_concrete(covariance):
            found = _rank_of(np.asarray(covariance))
            if rank is not None and found < rank:
                raise InputError("has too low a rank", where="covariance", got=found, expected=f"rank {rank}")
            rank = found if rank is None else rank
        return cls(mean, factor_of(covariance, d if rank is None else rank))

    @classmethod
    def from_samples(cls, samples: Float[Array, "n d"]) -> "Gaussian":
        """The Gaussian with the samples' own mean and covariance (dividing by n): what a cloud of exactly these
        tokens has."""
        x = as_float(samples, "samples")
        check_shape(x, ("n", "d"), "samples")
        centred = x - x.mean(0, keepdims=True)
        return cls.from_covariance(x.mean(0), centred.T @ centred / x.shape[0])

    @property
    def dim(self) -> int:
        """d."""
        return self.mean.shape[-1]

    @property
    def rank(self) -> int:
        """r, the rank of the covariance."""
        return self.factor.shape[-1]

    @property
    def covariance(self) -> Float[Array, "*t d d"]:
        """Σ = L Lᵀ."""
        return jnp.einsum("...ir,...jr->...ij", self.factor, self.factor)


def _rank_of(covariance: np.ndarray) -> int:
    s = np.linalg.eigvalsh(covariance.astype(np.float64))
    tolerance = len(s) * float(jnp.finfo(covariance.dtype).eps) * max(s[-1], 0.0)
    if s[0] < -tolerance or s[-1] <= 0:
        raise InputError(
            "is not positive semidefinite" if s[0] < -tolerance else "is zero",
            where="covariance",
            got=f"eigenvalues from {s[0]:.6g} to {s[-1]:.6g}",
            expected="no eigenvalue below zero and at least one above",
            fix="check signs and units of the matrix; a covariance is a mean of squares",
        )
    return int((s > tolerance).sum())
