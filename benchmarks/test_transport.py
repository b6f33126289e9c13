"""Exact W₂ between two clouds of 2000 points, and W₂² between 256 pairs of Gaussians in R⁶⁴, beside POT.

POT's exact solver is a network simplex in C++, which `wasserstein_clouds` uses where POT is installed; what it does by
SciPy where POT is not is measured beside it. POT's Bures distance is two matrix square roots by eigenvalues (its own
batches take longer than one pair after the other). Set OPENBLAS_NUM_THREADS=1: threads of LAPACK that
wait for one another made single calls fifty times slower on a busy machine. NPROC=4 gives XLA four threads, of which a
batch of singular values finds two free.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interleave import medians, report
from scipy.spatial.distance import cdist

from jaxflow.measures import Cloud, Gaussian
from jaxflow.transport import wasserstein_clouds, wasserstein_squared
from jaxflow.transport.assignment import assign

ot = pytest.importorskip("ot", reason="needs POT: pip install pot")

POINTS, PAIRS, DIM = 2000, 256, 64


@pytest.mark.benchmark(group="transport: exact W2, n = 2000")
@pytest.mark.parametrize("d", [2, 3, 16])
def test_exact_w2(benchmark, d):
    rng = np.random.default_rng(d)
    x, y = rng.normal(size=(POINTS, d)), rng.normal(size=(POINTS, d)) + 0.5
    clouds, w = (Cloud(jnp.asarray(x)), Cloud(jnp.asarray(y))), np.full(POINTS, 1 / POINTS)

    def pot():
        return ot.emd2(w, w, cdist(x, y, "sqeuclidean"), numItermax=10**7) ** 0.5

    def by_scipy():
        cost = cdist(x, y, "sqeuclidean")
        return cost[np.arange(POINTS), assign(cost)].mean() ** 0.5

    for call in (lambda: wasserstein_clouds(*clouds), by_scipy):
        np.testing.assert_allclose(call(), pot(), rtol=1e-12)
    contestants = {"wasserstein_clouds": lambda: wasserstein_clouds(*clouds), "POT emd2": pot, "SciPy": by_scipy}
    seconds = report(f"exact W2, {POINTS} points in R^{d}", medians(contestants, rounds=9))
    benchmark.extra_info.update(seconds)
    benchmark.pedantic(contestants["wasserstein_clouds"], rounds=1)


@pytest.mark.benchmark(group="transport: exact W2, unequal weights")
def test_exact_w2_of_unequal_weights(benchmark):
    rng = np.random.default_rng(0)
    x, y, w, v = rng.normal(size=(1500, 3)), rng.normal(size=(1200, 3)) + 0.5, rng.random(1500), rng.random(1200)
    clouds = [Cloud.from_weights(jnp.asarray(p), jnp.asarray(weights)) for p, weights in ((x, w), (y, v))]

    def pot():
        return ot.emd2(w / w.sum(), v / v.sum(), cdist(x, y, "sqeuclidean"), numItermax=10**7) ** 0.5

    np.testing.assert_allclose(wasserstein_clouds(*clouds), pot(), rtol=1e-12)
    contestants = {"wasserstein_clouds": lambda: wasserstein_clouds(*clouds), "POT emd2": pot}
    seconds = report("exact W2, 1500 and 1200 points in R^3, unequal weights", medians(contestants, rounds=9))
    benchmark.extra_info.update(seconds)
    benchmark.pedantic(contestants["wasserstein_clouds"], rounds=1)


@pytest.mark.benchmark(group="transport: Gaussian W2, d = 64")
def test_gaussian_w2(benchmark):
    rng = np.random.default_rng(0)
    L, mean = rng.normal(size=(2, PAIRS, DIM, DIM)) / 8, rng.normal(size=(2, PAIRS, DIM))
    covariance = np.einsum("asij,askj->asik", L, L)
    first, second = (Gaussian(jnp.asarray(m), jnp.asarray(factor)) for m, factor in zip(mean, L))
    compiled = jax.jit(jax.vmap(wasserstein_squared))

    def jaxflow():
        return compiled(first, second).block_until_ready()

    def one_by_one():
        pairs = zip(*mean, *covariance)
        return [ot.gaussian.bures_wasserstein_distance(m, n, S, T) ** 2 for m, n, S, T in pairs]

    contestants = {"wasserstein_squared, vmapped": jaxflow, "POT, one by one": one_by_one}
    for call in contestants.values():
        np.testing.assert_allclose(call(), jaxflow(), rtol=1e-10)
    seconds = report(f"W2 of {PAIRS} pairs of Gaussians, d = {DIM}", medians(contestants, rounds=15))
    benchmark.extra_info.update(seconds)
    benchmark.pedantic(jaxflow, rounds=1)
