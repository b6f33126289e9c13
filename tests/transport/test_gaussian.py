"""W₂ between Gaussians against the formula with square roots of matrices, and where it is hard."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from jaxflow.measures import Gaussian
from jaxflow.transport import wasserstein_gaussian, wasserstein_squared


def _pair(d=3, r=3, seed=0):
    rng = np.random.default_rng(seed)
    return [Gaussian(jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)))) for _ in range(2)]


def test_agrees_with_the_trace_formula():
    first, second = _pair()
    S0, S1 = np.asarray(first.covariance), np.asarray(second.covariance)
    root = scipy.linalg.sqrtm(S1).real
    cross = scipy.linalg.sqrtm(root @ S0 @ root).real
    exact = np.sum((first.mean - second.mean) ** 2) + np.trace(S0 + S1 - 2 * cross)
    assert abs(wasserstein_squared(first, second) - exact) < 1e-12
    assert abs(wasserstein_gaussian(first, second) - np.sqrt(exact)) < 1e-12


def test_ranks_may_differ_and_a_dirac_is_the_limit():
    full, _ = _pair()
    thin = Gaussian(full.mean, 1e-160 * jnp.ones((3, 1)))
    assert abs(wasserstein_squared(full, thin) - jnp.trace(full.covariance)) < 1e-12


def test_vanishes_to_rounding_and_has_a_gradient_at_coincidence():
    first, _ = _pair()
    turned = Gaussian(first.mean, first.factor @ jnp.asarray(np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))[0]))
    assert wasserstein_gaussian(first, turned) < 1e-14
    gradient = jax.grad(wasserstein_gaussian)(first, first)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


def test_a_small_shift_is_measured_to_relative_precision():
    first, _ = _pair()
    shifted = Gaussian(first.mean + 1e-9, first.factor)
    assert abs(wasserstein_gaussian(first, shifted) / (1e-9 * np.sqrt(3)) - 1) < 1e-5


def test_symmetry_and_triangle_inequality():
    a, b = _pair(seed=1)
    c, _ = _pair(seed=2)
    d = wasserstein_gaussian
    assert abs(d(a, b) - d(b, a)) < 1e-13
    assert d(a, c) <= d(a, b) + d(b, c) + 1e-13
