"""Is the measurement right, and calibrated? Exact answers, true Gaussians, mixtures; and the Gaussians that enter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy import stats

from jaxflow.errors import InputError
from jaxflow.measures import Gaussian, sample
from jaxflow.pretrained import departures, measure_layer, own_gaussian, p_values, round_gaussian
from jaxflow.pretrained.departures import NAMES, anderson_darling, fit, mardia, matched_sample, mmd_to_gaussian
from jaxflow.pretrained.embeddings import PatchEmbedding, WordEmbedding
from jaxflow.pretrained.encoder import Encoder
from jaxflow.pretrained.parts import LayerNorm

CLOUD = oracles.general(9, 2, seed=4)
GAUSSIAN = Gaussian(jnp.asarray([1.0, -2.0, 0.5]), jnp.asarray(oracles.general(3, 3, seed=6)))

measure = eqx.filter_jit(measure_layer)


def fitted(x):
    return fit(jnp.asarray(x.mean(0)), jnp.asarray(np.cov(x.T, bias=True)))


# --- exact answers --------------------------------------------------------------------------------------------------


def test_mardia_by_double_loops():
    m, P = CLOUD.mean(0), np.linalg.inv(np.cov(CLOUD.T, bias=True))
    g = np.array([[(x - m) @ P @ (y - m) for y in CLOUD] for x in CLOUD])
    skewness, kurtosis = mardia(fitted(CLOUD), jnp.asarray(CLOUD))
    np.testing.assert_allclose(skewness, np.mean(g**3), rtol=1e-10)
    np.testing.assert_allclose(kurtosis, np.mean(np.diag(g) ** 2) / 8, rtol=1e-10)


def test_mardia_on_a_plane_is_mardia_in_the_plane():
    """A singular covariance: measured on its range, in whatever coordinates."""
    A = oracles.general(2, 4, seed=3)
    inside, outside = (mardia(fitted(x), jnp.asarray(x)) for x in (CLOUD, CLOUD @ A + 7.0))
    np.testing.assert_allclose(outside, inside, rtol=1e-9)


def test_the_distance_in_the_kernel_by_quadrature():
    """Expectations over N(m, Σ) by 60 × 60 Gauss–Hermite nodes."""
    m, S = CLOUD.mean(0), np.cov(CLOUD.T, bias=True)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    z, w = np.stack(np.meshgrid(z, z), -1).reshape(-1, 2), np.outer(w, w).reshape(-1) / w.sum() ** 2
    y = m + z @ np.linalg.cholesky(S).T

    def k(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * np.trace(S)))

    expected = k(CLOUD, CLOUD).mean() - 2 * (k(CLOUD, y) @ w).mean() + w @ k(y, y) @ w
    assert expected > 1e-3
    np.testing.assert_allclose(mmd_to_gaussian(fitted(CLOUD), jnp.asarray(CLOUD)), expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_anderson_darling_is_that_of_scipy():
    x = oracles.general(40, 3, seed=8) ** 3
    n = len(x)
    expected = [stats.anderson(column, "norm").statistic * (1 + 0.75 / n + 2.25 / n**2) for column in x.T]
    np.testing.assert_allclose(anderson_darling(jnp.asarray(x)), expected, rtol=1e-9)
    assert float(anderson_darling(jnp.ones((10, 1)))[0]) == 0


def test_effective_rank_and_growth_of_known_clouds():
    """±√λ_c e_c: covariance diag(λ)/d, whose entropy is known."""
    lam = np.array([4.0, 2.0, 1.0])
    x = np.concatenate([np.diag(np.sqrt(lam)), -np.diag(np.sqrt(lam))]) + 5.0
    report = measure(jnp.asarray(x)[None], jax.random.key(0), nulls=1)
    q = lam / lam.sum()
    np.testing.assert_allclose(report.effective_rank, np.exp(-(q * np.log(q)).sum()), rtol=1e-10)
    np.testing.assert_allclose(report.eigenvalues, lam / 3, rtol=1e-10)
    np.testing.assert_allclose(report.mean, 5.0, rtol=1e-12)


# --- calibration ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def true_gaussians():
    """1000 clouds of 40 true Gaussian tokens against 999 nulls."""
    x = sample(GAUSSIAN, jax.random.key(1), n=40_000).points.reshape(1000, 40, 3)
    return measure(x, jax.random.key(2), nulls=999, directions=12, pairs=40)


@pytest.mark.parametrize("name", NAMES)
def test_true_gaussians_are_rejected_as_often_as_the_level_says(true_gaussians, name):
    """At 5 % and 50 %, to four standard errors of two samples of 1000. Shares of three marginals are few numbers, and p
    errs on the side of caution."""
    p = np.asarray(getattr(p_values(true_gaussians), name))
    for level in (0.05, 0.5):
        error = 4 * np.sqrt(level * (1 - level) * 2 / 1000)
        assert np.mean(p <= level) < level + error
        if name != "marginals":
            assert np.mean(p <= level) > level - error


def test_the_null_of_mardia_has_its_exact_mean(true_gaussians):
    """E b₂ = d(d + 2)(n − 1)/(n + 1) and E b₁ = d(d + 2)((n + 1)(d + 1) − 6)/((n + 1)(n + 3)), Σ divided by n."""
    n, d = 40, 3
    for found, expected in (
        (true_gaussians.null.kurtosis, (n - 1) / (n + 1)),
        (true_gaussians.null.skewness, d * (d + 2) * ((n + 1) * (d + 1) - 6) / ((n + 1) * (n + 3))),
    ):
        assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))


def test_the_share_of_rejected_marginals_is_five_percent(true_gaussians):
    found = true_gaussians.measured.marginals
    assert abs(found.mean() - 0.05) < 4 * float(found.std()) / np.sqrt(len(found))


def test_mixtures_are_detected():
    """Two equal Gaussians four standard deviations apart, in a plane, 200 tokens: power at 5 %, over 100 clouds."""
    sign = jnp.sign(jax.random.normal(jax.random.key(3), (100, 200, 1)))
    x = jax.random.normal(jax.random.key(4), (100, 200, 2)) + 2.0 * sign * jnp.asarray([[[0.8, -0.6]]])
    p = p_values(measure(x, jax.random.key(5), nulls=199, directions=12, pairs=200))
    power = {name: float(np.mean(getattr(p, name) <= 0.05)) for name in NAMES}
    assert all(power[name] > 0.9 for name in ("sliced", "energy", "mmd")), power
    assert power["kurtosis"] > 0.7, power
    # Both of two coordinates must be rejected, and one sees the gap at 2.4 deviations only.
    assert power["marginals"] > 0.5, power
    # A symmetric mixture has no skewness, and none is seen.
    assert power["skewness"] < 0.2, power


def test_a_sphere_has_too_little_kurtosis_and_heavy_tails_too_much():
    z = jax.random.normal(jax.random.key(6), (2, 300, 3))
    sphere = z[:1] / jnp.linalg.norm(z[:1], axis=-1, keepdims=True)
    heavy = z[1:] / jnp.sqrt(jax.random.gamma(jax.random.key(7), 2.0, (1, 300, 1)))
    report = measure(jnp.concatenate([sphere, heavy]), jax.random.key(8), nulls=39, directions=12, pairs=40)
    low, high = report.measured.kurtosis
    assert low < report.null.kurtosis.min() - 0.1
    assert high > report.null.kurtosis.max() + 0.1
    # 3²/(3·5): on a sphere |z|² is constant.
    np.testing.assert_allclose(low, 9 / 15, rtol=0.02)


def test_too_few_tokens_are_refused():
    with pytest.raises(InputError, match=r"too few(.|\n)*got: 3(.|\n)*more than d = 3"):
        departures(jnp.ones((3, 3)), jax.random.key(0))


def test_samples_to_compare_with_have_just_these_moments():
    x = matched_sample(fitted(CLOUD), jax.random.key(0), 30)
    np.testing.assert_allclose(x.mean(0), CLOUD.mean(0), atol=1e-12)
    np.testing.assert_allclose(np.cov(x.T, bias=True), np.cov(CLOUD.T, bias=True), atol=1e-12)


# --- what enters ----------------------------------------------------------------------------------------------------


def encoder_with(embedding):
    d = 4
    from jaxflow.pretrained.attention import SelfAttention
    from jaxflow.pretrained.block import Block
    from jaxflow.pretrained.parts import MLP, Linear

    linear, norm = Linear(jnp.eye(d), None), LayerNorm(jnp.ones(d), None, 1e-5)
    block = Block(SelfAttention(linear, linear, linear, linear, 2), MLP(linear, linear, "relu"), norm, norm)
    return Encoder(embedding, (block,), None, "test")


def test_the_gaussian_of_a_table_of_words_is_that_of_its_rows():
    table, positions, segments = (oracles.general(n, 4, seed=n) for n in (7, 3, 2))
    norm = LayerNorm(jnp.asarray([1.0, 2.0, 0.5, 1.5]), jnp.asarray([0.1, 0.0, -0.3, 0.2]), 1e-5)
    encoder = encoder_with(WordEmbedding(jnp.asarray(table), jnp.asarray(positions), jnp.asarray(segments), norm, 3))
    x = table + positions[np.arange(7) % 3] + segments[0]
    x = x - x.mean(1, keepdims=True)
    x = np.array([1.0, 2.0, 0.5, 1.5]) * x / np.sqrt(x.var(1, keepdims=True) + 1e-5) + np.array([0.1, 0.0, -0.3, 0.2])
    found = own_gaussian(encoder)
    np.testing.assert_allclose(found.mean, x.mean(0), atol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(x.T, bias=True), atol=1e-7)
    np.testing.assert_allclose(round_gaussian(encoder).covariance, np.trace(np.cov(x.T, bias=True)) / 4 * np.eye(4))
    np.testing.assert_allclose(round_gaussian(encoder, deviation=2.0).factor, 2 * np.eye(4))


def test_the_gaussian_of_patches_is_that_of_white_noise():
    """The embedding is affine in the pixels: token i is N(e_i, J_i J_iᵀ), and all patch tokens together have the mean
    of the e_i, and the mean of the J_i J_iᵀ plus the covariance of the e_i."""
    kernel, extra, P = (oracles.general(n, 4, seed=n) for n in (8, 1, 10))
    W = jnp.asarray(kernel.T.reshape(4, 2, 2, 2))
    embedding = PatchEmbedding(W, jnp.arange(4.0), jnp.asarray(extra), jnp.asarray(P), False)
    found = own_gaussian(encoder_with(embedding))
    zero = jnp.zeros((2, 6, 6))
    e, J = np.asarray(embedding(zero))[1:], np.asarray(jax.jacobian(embedding)(zero))[1:].reshape(9, 4, -1)
    np.testing.assert_allclose(found.mean, e.mean(0), rtol=1e-12)
    expected = np.einsum("nik,njk->ij", J, J) / 9 + np.cov(e.T, bias=True)
    np.testing.assert_allclose(found.covariance, expected, atol=1e-10)
