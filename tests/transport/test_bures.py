"""W₂ between Gaussians: the closed formula, a metric, and gradients that exist at coincidence."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.linalg import sqrtm

from jaxflow.measures import Gaussian
from jaxflow.transport import wasserstein_gaussian, wasserstein_squared


def gaussian(rank, seed):
    return Gaussian(jnp.asarray(oracles.general(4, seed=seed)), jnp.asarray(oracles.general(4, rank, seed=seed + 50)))


def test_w2_of_gaussians_against_the_closed_formula():
    a, b = gaussian(4, 1), gaussian(4, 2)
    root = sqrtm(np.asarray(b.covariance))
    cross = np.trace(sqrtm(root @ a.covariance @ root)).real
    expected = np.sum((a.mean - b.mean) ** 2) + np.trace(a.covariance + b.covariance) - 2 * cross
    np.testing.assert_allclose(wasserstein_squared(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(wasserstein_gaussian(a, b) ** 2, expected, rtol=1e-12)


def test_w2_of_commuting_gaussians_is_the_distance_of_their_roots():
    """Σ_i = diag(s_i²): W₂² = |μ₀−μ₁|² + Σ(s₀−s₁)²; a zero in one of them is a lower rank."""
    s0, s1 = np.array([1.0, 2.0, 0.5]), np.array([3.0, 1.5, 0.0])
    a = Gaussian(jnp.asarray([1.0, 0, 0]), jnp.diag(jnp.asarray(s0)))
    b = Gaussian(jnp.asarray([0.0, 2, 0]), jnp.diag(jnp.asarray(s1))[:, :2])
    np.testing.assert_allclose(wasserstein_squared(a, b), 5 + np.sum((s0 - s1) ** 2), rtol=1e-14)


@pytest.mark.parametrize(("r0", "r1"), [(4, 4), (2, 3), (1, 4)])
def test_w2_is_a_metric(r0, r1):
    a, b, c = gaussian(r0, 1), gaussian(r1, 2), gaussian(2, 3)
    ab, bc, ac = (float(wasserstein_gaussian(*p)) for p in ((a, b), (b, c), (a, c)))
    assert ab > 0
    np.testing.assert_allclose(wasserstein_gaussian(b, a), ab, rtol=1e-12)
    assert ac <= ab + bc


def test_w2_vanishes_to_rounding_at_coincidence_with_finite_gradients():
    a = gaussian(3, 4)
    b = Gaussian(a.mean, a.factor @ oracles.rotation(3))
    assert float(wasserstein_gaussian(a, b)) < 1e-14
    assert float(wasserstein_squared(a, a)) < 1e-28
    for f in (wasserstein_gaussian, wasserstein_squared):
        gradient = jax.grad(lambda L, f=f: f(Gaussian(a.mean, L), a))(a.factor)
        assert bool(jnp.isfinite(gradient).all())
    np.testing.assert_allclose(jax.grad(lambda L: wasserstein_squared(Gaussian(a.mean, L), a))(a.factor), 0, atol=1e-14)


def test_gradient_of_w2_against_differences():
    a, b = gaussian(4, 5), gaussian(2, 6)
    E, e = jnp.asarray(oracles.general(4, 4, seed=7)), jnp.asarray(oracles.general(4, seed=8))

    def f(t):
        return wasserstein_squared(Gaussian(a.mean + t * e, a.factor + t * E), b)

    np.testing.assert_allclose(jax.grad(f)(0.0), oracles.derivative(f, 0.0), rtol=1e-9)
