"""How Gaussian are the tokens after each block? Departures of several clouds, beside those of true Gaussians.

Of clouds of n tokens each, `repeats` of them independent, every layer is compared with the Gaussian of its own mean and
covariance. The null band comes from `nulls` true Gaussian clouds of the same mean, covariance and n, through the same
measurement, fitted moments included: with k nulls, a number above all of them has p = 1/(k + 1).
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey, Scalar
from jaxflow.measures import sample
from jaxflow.pretrained.departures import DIRECTIONS, NAMES, PAIRS, Departures, departures, fit


@final
class LayerReport(eqx.Module):
    """The tokens after one block.

    Attributes:
        measured: of every cloud, (p,) each.
        null: of true Gaussian clouds, (k,) each.
        mean, covariance: of all tokens together, (d,) and (d, d).
        eigenvalues: of that covariance, descending, (d,).
        effective_rank: exp(−Σ q ln q), q = λ/Σλ: how many directions carry the variance.
    """

    measured: Departures
    null: Departures
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    eigenvalues: Float[Array, " d"]
    effective_rank: Scalar


def measure_layer(
    x: Float[Array, "p n d"], key: PRNGKey, *, nulls: int = 32, directions: int = DIRECTIONS, pairs: int = PAIRS
) -> LayerReport:
    """The report of the hidden states of p independent sequences after one block.

    Args:
        x: p clouds of n > d tokens.
        key: of the Gaussian samples.
        nulls: k true Gaussian clouds for the null band; 19 are the least for a test at 5 %.
        directions, pairs: see `departures`.

    Cost: (p + k) times that of `departures`, one cloud at a time.

    Source of the effective rank: Roy, Vetterli, EUSIPCO (2007).
    """
    p, n, d = x.shape
    mean = jnp.mean(x, axis=(0, 1))
    centred = (x - mean[None, None]).reshape(-1, d)
    covariance = centred.T @ centred / (p * n)
    fitted = fit(mean, covariance)
    keys = jax.random.split(key, p + nulls)

    def one(x: Array, key: PRNGKey) -> Departures:
        return departures(x, key, directions=directions, pairs=pairs)

    def null(key: PRNGKey) -> Departures:
        first, second = jax.random.split(key)
        return one(sample(fitted.gaussian, first, n=n).points, second)

    q = fitted.eigenvalues / jnp.sum(fitted.eigenvalues)
    return LayerReport(
        jax.lax.map(lambda pair: one(*pair), (x, keys[:p])),
        jax.lax.map(null, keys[p:]),
        mean,
        covariance,
        fitted.eigenvalues[::-1],
        jnp.exp(-jnp.sum(jax.scipy.special.xlogy(q, q))),
    )


def p_values(report: LayerReport) -> Departures:
    """Of every cloud and number: the share of nulls, the cloud counted among them, that are at least as far out, (p,).

    Two-sided for `kurtosis`, one-sided for the others. Uniform on {1/(k+1), …, 1} for a true Gaussian.
    """

    def one(name: str) -> Float[Array, " p"]:
        found, null = getattr(report.measured, name), getattr(report.null, name)
        above = (1 + jnp.sum(null[None] >= found[:, None], axis=1)) / (1 + null.shape[0])
        below = (1 + jnp.sum(null[None] <= found[:, None], axis=1)) / (1 + null.shape[0])
        return jnp.minimum(2 * jnp.minimum(above, below), 1.0) if name == "kurtosis" else above

    return Departures(*(one(name) for name in NAMES))
