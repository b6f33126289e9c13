"""How far is a cloud from the Gaussian with its own mean m and covariance Σ? Six numbers, none zero by construction.

sliced      SW₂(X, Y), Y as many Gaussian samples with just this m and Σ, both divided by √(tr Σ/d)
energy      2E|X−Y| − E|X−X'| − E|Y−Y'|, likewise
mmd         ‖E k(·, X) − E k(·, N(m, Σ))‖²_H,  k(x, y) = e^{−|x−y|²/(2s²)}, s² = tr Σ; the Gaussian in closed form
skewness    n⁻² Σ_ij g_ij³,             g_ij = (x_i − m)ᵀ Σ⁺ (x_j − m)       (Mardia's b₁)
kurtosis    n⁻¹ Σ_i g_ii² / (r(r + 2)),  r = rank Σ                            (Mardia's b₂ over that of a Gaussian)
marginals   share of the coordinates that an Anderson–Darling test of normality at 5 % rejects
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey, Scalar
from jaxflow.errors import InputError
from jaxflow.measures import Cloud, Gaussian, sample
from jaxflow.transport import energy_distance, sliced_wasserstein

DIRECTIONS = 120
PAIRS = 256
CRITICAL = 0.752
"""The 5 % point of A²(1 + 0.75/n + 2.25/n²), mean and variance estimated (D'Agostino, Stephens 1986, table 4.7)."""


@final
class Departures(eqx.Module):
    """The six numbers; see the head of this file. All but `kurtosis` are larger the farther from Gaussian; `kurtosis`
    is below its Gaussian value on a sphere, above it with heavy tails."""

    sliced: Float[Array, "*k"]
    energy: Float[Array, "*k"]
    mmd: Float[Array, "*k"]
    skewness: Float[Array, "*k"]
    kurtosis: Float[Array, "*k"]
    marginals: Float[Array, "*k"]


NAMES = ("sliced", "energy", "mmd", "skewness", "kurtosis", "marginals")
"""Of the six numbers."""


@final
class Fitted(eqx.Module):
    """N(m, Σ) with Σ = U diag(λ) Uᵀ; eigenvalues that are rounding errors count as zero."""

    mean: Float[Array, " d"]
    eigenvalues: Float[Array, " d"]
    eigenvectors: Float[Array, "d d"]

    @property
    def gaussian(self) -> Gaussian:
        """For sampling: the factor may have columns of zeros."""
        return Gaussian(self.mean, self.eigenvectors * jnp.sqrt(self.eigenvalues)[None])

    def coordinates(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Uᵀ(x − m): uncorrelated, of variances λ."""
        return (x - self.mean[None]) @ self.eigenvectors


def fit(mean: Float[Array, " d"], covariance: Float[Array, "d d"]) -> Fitted:
    """The eigenvalues below d ε λ_max are put to zero."""
    eigenvalues, U = jnp.linalg.eigh(covariance)
    floor = eigenvalues.shape[0] * jnp.finfo(eigenvalues.dtype).eps * eigenvalues[-1]
    return Fitted(mean, jnp.where(eigenvalues > floor, eigenvalues, 0.0), U)


def departures(x: Float[Array, "n d"], key: PRNGKey, *, directions: int = DIRECTIONS, pairs: int = PAIRS) -> Departures:
    """The six numbers of one cloud of tokens of equal weight.

    Args:
        x: n > d tokens.
        key: draws the Gaussian tokens that `sliced` and `energy` compare with.
        directions: lines of `sliced`.
        pairs: the energy distance is that of the first so many tokens; it costs most.

    Raises:
        InputError: n ≤ d.

    Cost: O(n² d + pairs² d + d³) time, O(n²) memory.

    Source: Mardia, Biometrika 57 (1970); Gretton et al., J. Mach. Learn. Res. 13 (2012) (MMD); for the others see
    `jaxflow.transport`.
    """
    n, d = x.shape
    if n <= d:
        raise InputError("are too few for a covariance", where="tokens", got=n, expected=f"more than d = {d}")
    cloud = Cloud(x)
    fitted = fit(cloud.mean, cloud.covariance)
    scale = jnp.sqrt(jnp.sum(fitted.eigenvalues) / d)
    y = matched_sample(fitted, key, n)
    first, second = ((z - fitted.mean[None]) / scale for z in (x, y))
    skewness, kurtosis = mardia(fitted, x)
    return Departures(
        sliced_wasserstein(Cloud(first), Cloud(second), directions=directions),
        energy_distance(Cloud(first[:pairs]), Cloud(second[:pairs])),
        mmd_to_gaussian(fitted, x),
        skewness,
        kurtosis,
        rejected_marginals(x),
    )


def matched_sample(fitted: Fitted, key: PRNGKey, n: int) -> Float[Array, "n d"]:
    """n > d Gaussian tokens whose own mean and covariance are m and Σ: what remains between them and x is shape.

    With the fluctuating moments of a plain sample, mixtures go unnoticed that are found in this way.
    """
    d = fitted.mean.shape[0]
    z = sample(Gaussian(jnp.zeros_like(fitted.mean), jnp.eye(d, dtype=fitted.mean.dtype)), key, n=n)
    L = jnp.linalg.cholesky(z.covariance)
    white = jax.scipy.linalg.solve_triangular(L, (z.points - z.mean[None]).T, lower=True).T
    return fitted.mean[None] + white @ fitted.gaussian.factor.T


def mardia(fitted: Fitted, x: Float[Array, "n d"]) -> tuple[Scalar, Scalar]:
    """b₁ and b₂/(r(r + 2)) on the range of Σ."""
    kept = fitted.eigenvalues > 0
    z = fitted.coordinates(x) * jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, fitted.eigenvalues, 1.0)), 0.0)[None]
    g = z @ z.T
    r = jnp.sum(kept)
    return jnp.mean(g**3), jnp.mean(jnp.diagonal(g) ** 2) / (r * (r + 2))


def mmd_to_gaussian(fitted: Fitted, x: Float[Array, "n d"]) -> Scalar:
    """MMD² = n⁻² Σ_ij k(x_i, x_j) − 2 n⁻¹ Σ_i E k(x_i, Y) + E k(Y, Y'), Y, Y' ~ N(m, Σ) independent, width s² = tr Σ.

    In the coordinates z of Σ's axes: E k(x, Y) = Π_c (1 + λ_c/s²)^{−½} e^{−z_c²/(2(λ_c + s²))},
    E k(Y, Y') = Π_c (1 + 2λ_c/s²)^{−½}.
    """
    lam, z = fitted.eigenvalues, fitted.coordinates(x)
    s2 = jnp.sum(lam)
    norms = jnp.sum(z**2, axis=1)
    squared = jnp.maximum(norms[:, None] + norms[None] - 2 * z @ z.T, 0.0)
    across = jnp.exp(-(z**2) @ (1 / (2 * (lam + s2))) - jnp.sum(jnp.log1p(lam / s2)) / 2)
    return (
        jnp.mean(jnp.exp(-squared / (2 * s2))) - 2 * jnp.mean(across) + jnp.exp(-jnp.sum(jnp.log1p(2 * lam / s2)) / 2)
    )


def anderson_darling(x: Float[Array, "n d"]) -> Float[Array, " d"]:
    """A²(1 + 0.75/n + 2.25/n²) of every coordinate against the normal law with its own mean and variance.

    A² = −n − n⁻¹ Σ_i (2i − 1)(ln Φ(z_i) + ln Φ(−z_{n+1−i})), z sorted. Zero for a constant coordinate.
    """
    n = x.shape[0]
    spread = jnp.std(x, axis=0, ddof=1)
    z = jnp.sort((x - jnp.mean(x, axis=0, keepdims=True)) / jnp.where(spread > 0, spread, 1.0)[None], axis=0)
    logcdf: Any = jax.scipy.stats.norm.logcdf
    weights = 2 * jnp.arange(1, n + 1) - 1
    A2 = -n - jnp.mean(weights[:, None] * (logcdf(z) + logcdf(-z[::-1])), axis=0)
    return jnp.where(spread > 0, A2 * (1 + 0.75 / n + 2.25 / n**2), 0.0)


def rejected_marginals(x: Float[Array, "n d"]) -> Scalar:
    """The share of coordinates with `anderson_darling` above its 5 % point."""
    return jnp.mean(anderson_darling(x) > CRITICAL, dtype=x.dtype)
