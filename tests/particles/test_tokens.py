"""Where tokens start: the laws they are drawn from, and the clusters they end in."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.special import ive

from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles import (
    count_clusters,
    cross_polytope,
    equiangular,
    equispaced,
    octahedral,
    order_parameter,
    uniform,
    von_mises_fisher,
)

KEY = jax.random.key(2)


@pytest.mark.parametrize(
    "cloud",
    [
        cross_polytope(KEY, n=50, dim=5),
        octahedral(KEY, n=50),
        equispaced(KEY, n=50),
        uniform(KEY, n=50, dim=4),
        von_mises_fisher(KEY, n=50, dim=3, concentration=5.0),
        equiangular(n=3, dim=5, cosine=-0.3),
    ],
)
def test_all_starts_are_unit_vectors_of_equal_weight(cloud):
    np.testing.assert_allclose(np.linalg.norm(cloud.points, axis=1), 1, atol=1e-15)
    assert cloud.log_weights is None


def test_the_cross_polytope_has_its_noise():
    """n = 20000 points near ±e_i: every vertex equally often, spread `noise` in each tangent direction."""
    n, noise = 20_000, 0.05
    x = np.asarray(cross_polytope(KEY, n=n, dim=3, noise=noise).points)
    axis = np.abs(x).argmax(1)
    sign = np.sign(x[np.arange(n), axis])
    counts = np.bincount(axis * 2 + (sign > 0), minlength=6)
    assert np.abs(counts - n / 6).max() < 4.5 * np.sqrt(n * 5 / 36)
    tangent = np.stack([np.delete(row, k) for row, k in zip(x, axis)])
    assert abs(tangent.std() / noise - 1) < 0.02
    exact = np.asarray(cross_polytope(KEY, n=20, dim=3, noise=0.0).points)
    np.testing.assert_array_equal(np.sort(np.abs(exact), axis=1), np.tile([0.0, 0.0, 1.0], (20, 1)))


def test_equispaced_tokens_sit_at_five_angles():
    x = np.asarray(equispaced(KEY, n=1000, noise=0.0).points)
    angles = np.arctan2(x[:, 1], x[:, 0])
    np.testing.assert_allclose(np.cos(angles - 2 * np.pi * (np.arange(1000) % 5) / 5), 1, atol=1e-14)
    noisy = np.asarray(equispaced(KEY, n=20_000, noise=0.05).points)
    turned = np.arctan2(noisy[::5, 1], noisy[::5, 0])
    assert abs(turned.std() / 0.05 - 1) < 4.5 / np.sqrt(2 * 4000)
    assert len(np.unique(np.round(np.asarray(equispaced(KEY, n=9, noise=0.0, centres=3).points), 9), axis=0)) == 3


@pytest.mark.parametrize(("d", "kappa"), [(2, 3.0), (3, 2.0), (5, 8.0), (3, 0.0)])
def test_von_mises_fisher_has_its_mean_resultant_length(d, kappa):
    """E⟨x, e₁⟩ = I_{d/2}(κ)/I_{d/2−1}(κ) = r, E⟨x, e₁⟩² = 1 − (d−1) r/κ; around the axis it is uniform."""
    n = 20_000
    x = np.asarray(von_mises_fisher(KEY, n=n, dim=d, concentration=kappa).points)
    r = ive(d / 2, kappa) / ive(d / 2 - 1, kappa) if kappa else 0.0
    square = 1 - (d - 1) * r / kappa if kappa else 1 / d
    assert abs(x[:, 0].mean() - r) < 4.5 * np.sqrt((square - r**2) / n)
    assert abs((x[:, 0] ** 2).mean() - square) < 4.5 * (x[:, 0] ** 2).std() / np.sqrt(n)
    assert np.abs(x[:, 1:].mean(0)).max() < 4.5 * np.sqrt((1 - square) / (d - 1) / n)


@pytest.mark.parametrize(("n", "dim", "rho"), [(4, 4, 0.3), (3, 5, -0.4), (2, 2, -0.9)])
def test_equiangular_tokens_have_their_gram_matrix(n, dim, rho):
    x = equiangular(n=n, dim=dim, cosine=rho).points
    np.testing.assert_allclose(x @ x.T, (1 - rho) * np.eye(n) + rho, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: equiangular(n=4, dim=3, cosine=0.1), "n ≤ dim"),
        (lambda: equiangular(n=3, dim=3, cosine=-0.5), r"-0\.5 < cosine < 1"),
        (lambda: uniform(KEY, n=0, dim=3), "n: is too small"),
        (lambda: uniform(KEY, n=3, dim=1), "dim: is too small"),
        (lambda: octahedral(KEY, n=3, noise=-0.1), "noise: is too small"),
    ],
)
def test_refusals(make, part):
    with pytest.raises(InputError, match=part):
        make()


def test_the_order_of_equiangular_tokens():
    """|x̄|² = (1 + (n−1)ρ)/n; for weights w on orthonormal tokens it is Σw²; balanced tokens have none."""
    for rho in (0.3, 0.9):
        np.testing.assert_allclose(order_parameter(equiangular(n=4, dim=4, cosine=rho)) ** 2, (1 + 3 * rho) / 4)
    w = jnp.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(order_parameter(Cloud.from_weights(jnp.eye(3), w)) ** 2, jnp.sum(w**2))
    poles = jnp.array([[0.0, 1.0], [0.0, -1.0]])
    assert order_parameter(Cloud(poles)) == 0
    assert np.isfinite(jax.grad(lambda x: order_parameter(Cloud(x)))(poles)).all()


def test_clusters_are_counted_by_chains():
    centres = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    x = np.repeat(centres, 20, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(60, 3))
    assert count_clusters(x) == 3
    assert count_clusters(x, radius=2.0) == 1
    assert count_clusters(x, radius=1e-9) == 60
    chain = np.stack([np.linspace(0, 1, 12), np.zeros(12)], 1)
    assert count_clusters(chain, radius=0.1) == 1
    assert count_clusters(chain, radius=0.09) == 12
    assert count_clusters(np.zeros((5, 3))) == 1
    assert count_clusters(oracles.unit_rows(1, 3)) == 1


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_clusters_are_the_components_of_all_pairs_within_the_radius(d):
    rng = np.random.default_rng(d)
    for _ in range(50):
        x = rng.choice([0.1, 0.3, 1.0]) * rng.normal(size=(rng.integers(1, 120), d))
        near = np.linalg.norm(x[:, None] - x[None], axis=-1) <= 0.1
        assert count_clusters(x) == connected_components(near, directed=False)[0]
