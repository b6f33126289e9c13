"""Densities: their functions, projections of functions and clouds, samples, and what is refused."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import iv, sph_harm_y

from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.meanfield import Density, coefficients, least
from jaxflow.meanfield.evaluate import evaluate, moments
from jaxflow.meanfield.waves import area, degrees, laplacian, size, waves
from jaxflow.measures import Cloud

N = 5
CENTRE = {2: np.array([0.6, 0.8]), 3: np.array([0.48, -0.6, 0.64])}


def von_mises(dim, concentration=2.0):
    """e^{κ⟨c,x⟩} over its integral, the density of von Mises and Fisher."""
    k = concentration
    mass = 2 * np.pi * iv(0, k) if dim == 2 else 4 * np.pi * np.sinh(k) / k
    return lambda x: jnp.exp(k * (x @ CENTRE[dim])) / mass


def loops(dim, degree, x):
    """The functions one by one, from cosines or SciPy's spherical harmonics: (K, n)."""
    phi = np.arctan2(x[:, 1], x[:, 0])
    if dim == 2:
        pairs = [f(m * phi) / np.sqrt(np.pi) for m in range(1, degree + 1) for f in (np.cos, np.sin)]
        return np.stack([np.full(len(x), 1 / np.sqrt(2 * np.pi)), *pairs])
    theta, rows = np.arccos(x[:, 2]), []
    for l in range(degree + 1):
        for m in range(-l, l + 1):
            Y = sph_harm_y(l, abs(m), theta, phi)
            # SciPy's have the sign (−1)^m of Condon and Shortley.
            sign = (-1) ** m * (1 if m == 0 else np.sqrt(2))
            rows.append(sign * (Y.imag if m < 0 else Y.real))
    return np.stack(rows)


# --- the functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_they_are_the_orthonormal_ones_of_scipy_anywhere_and_on_the_grid(dim):
    x = np.concatenate([oracles.unit_rows(7, dim, seed=1), np.eye(dim), -np.eye(dim)])
    Y = jax.vmap(lambda c: evaluate(c, jnp.asarray(x)))(jnp.eye(size(dim, N)))
    np.testing.assert_allclose(Y, loops(dim, N, x), atol=1e-14)
    W = waves(dim, N, N + 1)
    on_grid = jax.vmap(W.values)(jnp.eye(size(dim, N)))
    np.testing.assert_allclose(on_grid, loops(dim, N, W.points), atol=1e-13)
    np.testing.assert_allclose((on_grid * W.weights[None]) @ on_grid.T, np.eye(size(dim, N)), atol=1e-13)


@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_are_derivatives_along_great_circles_and_know_the_laplacian(dim):
    """d/ds f(cos s x + sin s e) = ⟨∇f, e⟩, and ∫⟨∇f, ∇Y_k⟩ = l(l+d−2) f_k."""
    W, c = waves(dim, N, N + 1), jnp.asarray(oracles.general(size(dim, N), seed=3))
    x, frame = jnp.asarray(W.points), jnp.asarray(W.frame)
    slopes = jax.vmap(lambda e: jax.jvp(lambda s: evaluate(c, Sphere().exp(x, s * e)), (0.0,), (1.0,))[1])(frame)
    np.testing.assert_allclose(W.gradient(c), slopes, atol=1e-12)
    np.testing.assert_allclose(np.einsum("egd,gd->eg", frame, x), 0, atol=1e-15)
    np.testing.assert_allclose(W.against_gradients(W.gradient(c)), laplacian(dim, N) * c, atol=1e-12)


# --- functions, clouds, samples -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_the_error_of_a_smooth_function_falls_like_bessel_functions(dim):
    """Of e^{κ⟨c,x⟩} the coefficients of degree l are of size I_l(κ) (S¹) or i_l(κ) (S²): spectral accuracy."""
    f, x = von_mises(dim), jnp.asarray(oracles.unit_rows(50, dim, seed=2))
    errors = [float(jnp.max(jnp.abs(Density.from_function(f, dim=dim, degree=n)(x) - f(x)))) for n in (6, 10, 14)]
    ratios = [b / a for a, b in pairwise(errors)]
    assert errors[-1] < 1e-10
    # Faster than geometrically.
    assert ratios[0] < 1e-2
    assert ratios[1] < 0.5 * ratios[0]
    density = Density.from_function(f, dim=dim, degree=12)
    r = iv(1, 2) / iv(0, 2) if dim == 2 else 1 / np.tanh(2) - 0.5
    np.testing.assert_allclose(density.mean, r * CENTRE[dim], atol=1e-12)
    np.testing.assert_allclose(density.mass, 1, rtol=1e-15)
    np.testing.assert_allclose(jnp.sum(density.power), jnp.sum(density.coefficients**2), rtol=1e-14)
    low = Density.from_function(f, dim=dim, degree=4)
    np.testing.assert_allclose(density.at_degree(4).coefficients, low.coefficients, atol=1e-13)
    np.testing.assert_allclose(low.at_degree(12)(x), low(x), atol=1e-14)


@pytest.mark.parametrize("dim", [2, 3])
def test_samples_follow_the_density(dim):
    """Their coefficients miss those of the density by normal errors, whose variances are integrals of Y_k²ρ."""
    n, density = 20_000, Density.from_function(von_mises(dim, 4.0), dim=dim, degree=16)
    cloud = density.sample(jax.random.key(1), n=n)
    np.testing.assert_allclose(np.linalg.norm(cloud.points, axis=1), 1, rtol=1e-14)
    W = waves(dim, N, 24)
    Y = jax.vmap(W.values)(jnp.eye(size(dim, N)))
    rho = W.weights * density(jnp.asarray(W.points))
    variance = np.asarray(Y**2 @ rho - (Y @ rho) ** 2)[1:] / n
    z = np.asarray(coefficients(cloud, N) - density.at_degree(N).coefficients)[1:] / np.sqrt(variance)
    assert np.abs(z).max() < 4.5, z
    assert 0.3 < np.mean(z**2) < 1.9


@pytest.mark.parametrize("dim", [2, 3])
def test_a_cloud_is_smoothed_by_brownian_motion(dim):
    cloud = Cloud.from_weights(jnp.asarray(oracles.unit_rows(9, dim, seed=4)), jnp.asarray(oracles.weights(9)))
    raw = loops(dim, 12, np.asarray(cloud.points)) @ np.asarray(cloud.weights)
    np.testing.assert_allclose(coefficients(cloud, 12), raw, atol=1e-14)
    l, h = degrees(dim, 12), 0.5
    smoothed = Density.from_cloud(cloud, degree=12, bandwidth=h)
    np.testing.assert_allclose(smoothed.coefficients, np.exp(-(h**2) * l * (l + dim - 2) / 2) * raw, rtol=1e-12)
    # The default is positive to 1e-3, even for a single point, and Scott's rule for many tokens.
    point = Density.from_cloud(Cloud(jnp.asarray(CENTRE[dim])[None]), degree=12)
    assert -1e-3 < float(least(point) / point(jnp.asarray(CENTRE[dim])[None])[0]) <= 1e-6
    spread = np.sqrt(1 - np.sum(np.asarray(cloud.mean) ** 2)) * np.sum(np.asarray(cloud.weights) ** 2) ** (
        1 / (dim + 3)
    )
    chosen = Density.from_cloud(cloud, degree=12)
    np.testing.assert_allclose(
        chosen.coefficients, np.exp(-(max(spread, 4.5 / 12) ** 2) * l * (l + dim - 2) / 2) * raw, rtol=1e-12
    )


read, sum_up = jax.jit(evaluate), jax.jit(lambda x, w: moments(x, w, N))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([2, 3]))
def test_evaluation_and_moments_are_transposes(seed, dim):
    rng = np.random.default_rng(seed)
    c, x = jnp.asarray(rng.normal(size=size(dim, N))), jnp.asarray(oracles.unit_rows(6, dim, seed=seed))
    w = jnp.asarray(oracles.weights(6, seed=seed))
    np.testing.assert_allclose(w @ read(c, x), c @ sum_up(x, w), rtol=1e-12)


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Density.from_function(lambda x: jnp.ones(len(x)), dim=3, degree=4), ("mass 1", "12.566", "normalize")),
        (lambda: Density.from_function(lambda x: x, dim=3, degree=4), ("wrong shape", "jax.vmap")),
        (lambda: Density.from_function(lambda x: jnp.float64(1.0), dim=2, degree=4), ("wrong shape", r"\(\) from")),
        (
            lambda: Density.from_function(lambda x: jnp.where(x[:, 0] > 0, jnp.nan, 1), dim=2, degree=4),
            ("not finite", "11 of 22"),
        ),
        (lambda: Density.from_function(lambda x: x[:, 0], dim=2, degree=4, normalize=True), ("is negative", "≥ 0")),
        (lambda: Density.from_function(lambda x: 0 * x[:, 0], dim=2, degree=4, normalize=True), ("no mass",)),
        (
            lambda: Density.from_function(lambda x: 1.0 * (x[:, 0] > 0), dim=2, degree=6, normalize=True),
            ("negative values at this degree", "larger degree than 6"),
        ),
        (lambda: Density.from_function(von_mises(2), dim=2, degree=0), ("degree", "positive")),
        (lambda: Density(jnp.zeros(8), 3), ("not those of a degree", r"\(N \+ 1\)²")),
        (lambda: Density(jnp.zeros(16), 4), ("2 for S¹",)),
        (lambda: coefficients(Cloud(jnp.eye(4)), 3), ("S¹ or S²",)),
        (lambda: coefficients(Cloud(2 * jnp.eye(3)), 3), ("not on the sphere",)),
        (
            lambda: Density.from_cloud(Cloud(jnp.eye(3)), degree=9, bandwidth=0.1),
            ("finer than the degree", "0.5 radians"),
        ),
        (lambda: Density(jnp.zeros((2, 9)), 3).sample(jax.random.key(0), n=3), ("single density", "vmap")),
    ],
)
def test_what_is_no_density_is_refused_with_the_remedy(make, words):
    for word in words:
        with pytest.raises(InputError, match=word):
            make()


def test_the_uniform_density_is_one_over_the_area():
    for dim in (2, 3):
        u = Density.uniform(dim=dim, degree=3)
        np.testing.assert_allclose(u(jnp.asarray(oracles.unit_rows(4, dim))), 1 / area(dim), rtol=1e-15)
        np.testing.assert_allclose(least(u), 1 / area(dim), rtol=1e-14)
