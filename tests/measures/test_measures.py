"""Clouds and Gaussians: moments, ranks, nodes that integrate polynomials exactly, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.measures import Cloud, Gaussian, gauss_hermite, sample


def test_moments_of_a_weighted_cloud():
    x, w = oracles.general(5, 3), oracles.weights(5)
    cloud = Cloud.from_weights(jnp.asarray(x), jnp.asarray(7 * w))
    mean = sum(w[j] * x[j] for j in range(5))
    np.testing.assert_allclose(cloud.weights, w, rtol=1e-15)
    np.testing.assert_allclose(cloud.mean, mean, atol=1e-15)
    covariance = sum(w[j] * np.outer(x[j] - mean, x[j] - mean) for j in range(5))
    np.testing.assert_allclose(cloud.covariance, covariance, atol=1e-15)


def test_equal_weights_are_one_over_n():
    cloud = Cloud(jnp.asarray(oracles.general(5, 3)))
    np.testing.assert_allclose(cloud.weights, 0.2, rtol=1e-15)
    np.testing.assert_allclose(cloud.covariance, np.cov(cloud.points.T, bias=True), atol=1e-15)


def test_a_cloud_refuses_weights_that_are_none():
    with pytest.raises(InputError, match=r"(?s)weights: must be positive.*leave such points out"):
        Cloud.from_weights(jnp.ones((2, 2)), jnp.asarray([1.0, 0.0]))
    with pytest.raises(InputError, match="mixes precisions"):
        Cloud(jnp.ones((2, 2)), jnp.zeros(2, jnp.float32))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_gaussian_from_its_covariance_finds_the_rank(rank):
    L = oracles.general(3, rank, seed=rank)
    g = Gaussian.from_covariance(jnp.zeros(3), jnp.asarray(L @ L.T))
    assert g.rank == rank
    assert g.dim == 3
    np.testing.assert_allclose(g.covariance, L @ L.T, atol=1e-14)


def test_a_gaussian_from_samples_has_their_moments():
    x = jnp.asarray(oracles.general(9, 3))
    g, cloud = Gaussian.from_samples(x), Cloud(x)
    np.testing.assert_allclose(g.mean, cloud.mean, atol=1e-15)
    np.testing.assert_allclose(g.covariance, cloud.covariance, atol=1e-14)


@pytest.mark.parametrize(
    ("covariance", "part"),
    [
        (np.diag([1.0, -0.5]), r"(?s)not positive semidefinite.*from -0\.5 to 1"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.zeros((2, 2)), "is zero"),
    ],
)
def test_a_gaussian_refuses_what_is_no_covariance(covariance, part):
    with pytest.raises(InputError, match=part):
        Gaussian.from_covariance(jnp.zeros(2), jnp.asarray(covariance))


def test_a_gaussian_refuses_impossible_ranks():
    with pytest.raises(InputError, match="has an impossible rank"):
        Gaussian(jnp.zeros(2), jnp.ones((2, 3)))
    with pytest.raises(InputError, match="has too low a rank"):
        Gaussian.from_covariance(jnp.zeros(2), jnp.diag(jnp.asarray([1.0, 0.0])), rank=2)


@pytest.mark.parametrize("rank", [2, 3])
def test_samples_have_the_gaussians_moments(rank):
    n, L, mean = 40_000, oracles.general(3, rank), np.array([1.0, -2.0, 0.5])
    cloud = sample(Gaussian(jnp.asarray(mean), jnp.asarray(L)), jax.random.key(1), n=n)
    Sigma = L @ L.T
    assert (np.abs(cloud.mean - mean) < 4 * np.sqrt(np.diag(Sigma) / n)).all()
    spread = np.sqrt((np.outer(np.diag(Sigma), np.diag(Sigma)) + Sigma**2) / n)
    assert (np.abs(cloud.covariance - Sigma) < 4 * spread).all()


def test_gauss_hermite_integrates_polynomials_exactly():
    # Five nodes: exact to degree 9 in each coordinate. E z⁸ = 105, E z₁⁴z₂² = 3; odd moments vanish.
    cloud = gauss_hermite(Gaussian(jnp.zeros(2), jnp.eye(2)), nodes=5)
    w, (z1, z2) = cloud.weights, cloud.points.T
    assert cloud.points.shape == (25, 2)
    for power, value in [
        (z1**8, 105),
        (z2**8, 105),
        (z1**4 * z2**2, 3),
        (z1**9, 0),
        (z1**3 * z2, 0),
        (1 + 0 * z1, 1),
    ]:
        np.testing.assert_allclose(jnp.sum(w * power), value, atol=1e-11)


def test_gauss_hermite_of_a_degenerate_gaussian_stays_in_its_range():
    L, mean = oracles.general(3, 2), np.array([1.0, -2.0, 0.5])
    cloud = gauss_hermite(Gaussian(jnp.asarray(mean), jnp.asarray(L)), nodes=4)
    np.testing.assert_allclose(cloud.mean, mean, atol=1e-14)
    np.testing.assert_allclose(cloud.covariance, L @ L.T, atol=1e-13)
    assert np.linalg.matrix_rank(np.asarray(cloud.points) - mean) == 2


@pytest.mark.parametrize("nodes", [0, 1001])
def test_gauss_hermite_refuses_unusable_numbers_of_nodes(nodes):
    with pytest.raises(InputError, match=r"(?s)nodes: gives an unusable number.*1 to 1000000"):
        gauss_hermite(Gaussian(jnp.zeros(2), jnp.eye(2)), nodes=nodes)
