"""Rules of attention: on clouds against their definitions, on Gaussians against inverses of joint covariances."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.linalg import sqrtm

from jaxflow.attention import L2, Chunked, Sinkhorn, Softmax
from jaxflow.errors import InputError
from jaxflow.measures import Cloud, Gaussian, gauss_hermite

N, D, H, SCALE = 7, 3, 2, 0.8
RULES = [Softmax, L2, Sinkhorn]
X, W = oracles.general(N, D, seed=0), oracles.weights(N)
CLOUD = Cloud.from_weights(jnp.asarray(X), jnp.asarray(W))
Q, K = oracles.general(H, 2, D, scale=0.7, seed=1), oracles.general(H, 2, D, scale=0.7, seed=2)
MEAN = oracles.general(D, seed=3)
means = eqx.filter_jit(lambda rule, cloud: rule.means(cloud))
couple = eqx.filter_jit(lambda rule, cloud: rule.couple(cloud))
affine_of = eqx.filter_jit(lambda rule, gaussian: rule.affine(gaussian))


def scaled(kernel, w):
    """The coupling of w with itself that is a scaling of this kernel, by Sinkhorn's iteration on plain numbers."""
    u = np.ones(len(w))
    for _ in range(3000):
        v = w / (kernel.T @ u)
        u = w / (kernel @ v)
    return u[:, None] * kernel * v[None]


def by_definition(rule, Q, K):
    """Row-stochastic weights p_ij and a(x_i), one pair at a time."""
    p = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            q, k = Q @ X[i], K @ X[j]
            p[i, j] = W[j] * np.exp(-SCALE * np.sum((q - k) ** 2) if rule is L2 else SCALE * (q @ k))
    p = scaled(p, W) if rule is Sinkhorn else p
    return p / p.sum(1, keepdims=True) @ X


@pytest.mark.parametrize("rule", RULES)
def test_means_of_a_cloud_by_their_definition(rule):
    found = means(rule(Q, K, SCALE), CLOUD)
    for h in range(H):
        np.testing.assert_allclose(found[h], by_definition(rule, Q[h], K[h]), atol=1e-10)


@pytest.mark.parametrize("rule", [Softmax, L2])
def test_blocks_change_nothing(rule):
    a, b = (means(rule(Q, K, SCALE, kernel=kernel), CLOUD) for kernel in (None, Chunked(block=3)))
    np.testing.assert_allclose(a, b, atol=1e-14)


def test_sinkhorn_attention_keeps_the_mean_and_says_how_it_was_found():
    """Both marginals are w, so Σ w_i a_i = Σ w_j x_j; terms of x or y alone in the logits change nothing."""
    rule = Sinkhorn(Q, K, SCALE)
    coupling = couple(rule, CLOUD)
    assert coupling.converged.all()
    assert (coupling.error <= 1e-11).all()
    assert (coupling.iterations < 100).all()
    np.testing.assert_allclose(coupling.g @ W, 0, atol=1e-12)
    np.testing.assert_allclose(jnp.einsum("n,hnd->hd", W, means(rule, CLOUD)), np.tile(W @ X, (H, 1)), atol=1e-10)
    far = Cloud(CLOUD.points + 1000 * jnp.asarray(MEAN)[None], CLOUD.log_weights)
    moved = np.asarray(means(rule, far)) - np.asarray(means(rule, CLOUD))
    np.testing.assert_allclose(moved, np.broadcast_to(1000 * MEAN, moved.shape), atol=1e-9)


def test_a_scaling_that_does_not_converge_shows():
    rule = Sinkhorn(Q, K, 10.0, max_iterations=2)
    coupling = couple(rule, CLOUD)
    assert not coupling.converged.any()
    assert (coupling.iterations == 2).all()
    assert (coupling.error > 1e-3).all()
    assert jnp.isnan(means(rule, CLOUD)).all()
    assert jnp.isfinite(means(Sinkhorn(Q, K, 10.0, max_iterations=100_000), CLOUD)).all()


def test_large_logits_stay_finite():
    """In the limit every token sees the nearest key, or the one of largest product."""
    q, k = np.einsum("hkd,nd->hnk", Q, X), np.einsum("hkd,nd->hnk", K, X)
    product = np.einsum("hnk,hmk->hnm", q, k)
    distance = np.sum((q[:, :, None] - k[:, None]) ** 2, -1)
    np.testing.assert_allclose(means(Softmax(Q, K, 1e5), CLOUD), X[product.argmax(-1)], atol=1e-9)
    np.testing.assert_allclose(means(L2(Q, K, 1e5), CLOUD), X[distance.argmin(-1)], atol=1e-9)


E = [jnp.asarray(oracles.general(*x.shape, seed=5 + i)) for i, x in enumerate((Q, K, X, W))]
C = jnp.asarray(oracles.general(H, N, D, seed=9))


def varied(rule, s):
    """One number from the means, when everything they depend on moves at once."""
    cloud = Cloud(CLOUD.points + s * E[2], jax.nn.log_softmax(CLOUD.log_w + s * E[3]))
    return jnp.sum(C * rule(Q + s * E[0], K + s * E[1], SCALE + s).means(cloud))


@pytest.mark.parametrize("rule", [L2, Sinkhorn])
def test_derivatives_of_the_means_against_differences(rule):
    f = jax.jit(jax.value_and_grad(lambda s: varied(rule, s)))
    np.testing.assert_allclose(f(0.0)[1], oracles.derivative(lambda s: f(s)[0], 0.0, step=2e-3), rtol=1e-7)


@pytest.mark.slow
def test_second_derivatives_of_sinkhorn_means_against_differences():
    slope = jax.jit(jax.grad(lambda s: varied(Sinkhorn, s)))
    forward = jax.jit(lambda s: jax.jvp(lambda s: varied(Sinkhorn, s), (s,), (1.0,))[1])
    np.testing.assert_allclose(forward(0.0), slope(0.0), rtol=1e-12)
    second = oracles.derivative(slope, 0.0, step=2e-3)
    np.testing.assert_allclose(jax.jvp(slope, (0.0,), (1.0,))[1], second, rtol=1e-6)


def test_softmax_on_a_gaussian_is_exponential_tilting():
    L = oracles.general(D, D, scale=0.6, seed=6)
    found = affine_of(Softmax(Q, K, SCALE), Gaussian(jnp.asarray(MEAN), jnp.asarray(L)))
    for h in range(H):
        np.testing.assert_allclose(found.M[h], SCALE * L @ L.T @ K[h].T @ Q[h], atol=1e-14)
        np.testing.assert_allclose(found.m[h], MEAN, atol=1e-15)


def test_l2_on_a_gaussian_by_its_precision():
    """a(x) = (Σ^{-1} + 2λKᵀK)^{-1}(Σ^{-1}μ + 2λKᵀQx)."""
    L = oracles.general(D, D, scale=0.6, seed=6)
    inverse = np.linalg.inv(L @ L.T)
    found = affine_of(L2(Q, K, SCALE), Gaussian(jnp.asarray(MEAN), jnp.asarray(L)))
    for h in range(H):
        precision = inverse + 2 * SCALE * K[h].T @ K[h]
        np.testing.assert_allclose(found.M[h], np.linalg.solve(precision, 2 * SCALE * K[h].T @ Q[h]), atol=1e-12)
        np.testing.assert_allclose(found.m[h], np.linalg.solve(precision, inverse @ MEAN), atol=1e-12)


def test_sinkhorn_on_a_gaussian_is_the_coupling_with_this_precision():
    """The joint covariance [[Σ, ΣMᵀ], [MΣ, Σ]] must have −λCᵀ in the corner of its inverse: density e^{λ⟨Qx,Ky⟩}."""
    L = oracles.general(D, D, scale=0.6, seed=6)
    Sigma = L @ L.T
    found = affine_of(Sinkhorn(Q, K, SCALE), Gaussian(jnp.asarray(MEAN), jnp.asarray(L)))
    for h in range(H):
        M = np.asarray(found.M[h])
        joint = np.block([[Sigma, Sigma @ M.T], [M @ Sigma, Sigma]])
        corner = np.linalg.inv(joint)[:D, D:]
        np.testing.assert_allclose(corner, -SCALE * Q[h].T @ K[h], atol=1e-10)
        np.testing.assert_allclose(found.m[h], MEAN - M @ MEAN, atol=1e-14)
        assert np.linalg.eigvalsh(joint).min() > 0


def test_sinkhorn_on_a_gaussian_as_published():
    """M = C^{-ᵀ}Σ^{-1}T, T = ½(Σ^½(4Σ^½CᵀΣCΣ^½ + I)^½Σ^{−½} − I), for invertible C."""
    L, Q, K = (oracles.general(D, D, scale=0.6, seed=seed) for seed in (6, 7, 8))
    Sigma, C = L @ L.T, K.T @ Q
    half = np.real(sqrtm(Sigma))
    inner = np.real(sqrtm(4 * half @ C.T @ Sigma @ C @ half + np.eye(D)))
    T = (half @ inner @ np.linalg.inv(half) - np.eye(D)) / 2
    found = Sinkhorn(Q, K).affine(Gaussian(jnp.zeros(D), jnp.asarray(L)))
    np.testing.assert_allclose(found.M[0], np.linalg.inv(C.T) @ np.linalg.inv(Sigma) @ T, atol=1e-10)


CASES = [(1, 1, 1), (2, 1, 2), (2, 3, 2), (3, 2, 1)]
"""Dimension, number of keys, rank."""


@pytest.mark.parametrize(("d", "k", "rank"), CASES)
@pytest.mark.parametrize(("rule", "error"), [(Softmax, 1e-13), (L2, 1e-9), (Sinkhorn, 1e-13)])
def test_gauss_hermite_tokens_have_the_means_of_their_gaussian(rule, error, d, k, rank):
    """20 nodes per axis; the weights of L2 are Gaussians themselves, and take more nodes than exponentials."""
    Q, K = oracles.general(H, k, d, scale=0.3, seed=1), oracles.general(H, k, d, scale=0.3, seed=2)
    start = Gaussian(jnp.asarray(0.5 * MEAN[:d]), jnp.asarray(oracles.general(d, rank, scale=0.4, seed=6)))
    cloud = gauss_hermite(start, nodes=20)
    found = means(rule(Q, K, SCALE), cloud)
    affine = affine_of(rule(Q, K, SCALE), start)
    exact = np.einsum("hde,ne->hnd", affine.M, cloud.points) + np.asarray(affine.m)[:, None]
    rms = np.sqrt(np.einsum("n,hnd->h", cloud.weights, (found - exact) ** 2))
    np.testing.assert_allclose(rms, 0, atol=error)


@pytest.mark.parametrize("rule", RULES)
def test_the_affine_map_is_smooth_at_any_rank(rule):
    E = [jnp.asarray(oracles.general(*shape, seed=5 + i)) for i, shape in enumerate((Q.shape, K.shape, (D, 2), (D,)))]
    C, c = jnp.asarray(oracles.general(H, D, D, seed=9)), jnp.asarray(oracles.general(H, D, seed=10))
    L = jnp.asarray(oracles.general(D, 2, scale=0.6, seed=6))

    @jax.jit
    @jax.value_and_grad
    def f(s):
        a = rule(Q + s * E[0], K + s * E[1], SCALE + s).affine(Gaussian(MEAN + s * E[3], L + s * E[2]))
        return jnp.sum(C * a.M) + jnp.sum(c * a.m)

    np.testing.assert_allclose(f(0.0)[1], oracles.derivative(lambda s: f(s)[0], 0.0, step=2e-3), rtol=1e-8)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Softmax(np.ones(3), K), "Q: has the wrong shape"),
        (lambda: Softmax(Q, K[:1]), "K: has the wrong shape"),
        (lambda: Softmax(Q, K, [1.0, 2.0]), "scale: has the wrong shape"),
        (lambda: Softmax(Q, K.astype(np.float32)), "mixes precisions"),
        (lambda: Softmax(Q * np.nan, K), "Q: holds values that are not finite"),
        (lambda: L2(Q, K, -1.0), "scale: must be positive"),
        (lambda: Sinkhorn(Q, K, tolerance=0.0), "tolerance: must be positive"),
        (lambda: Sinkhorn(Q, K, max_iterations=0), "max_iterations: must be at least 1"),
    ],
)
def test_refusals(make, part):
    with pytest.raises(InputError, match=part):
        make()


@pytest.mark.parametrize("rule", RULES)
def test_one_head_needs_no_head_axis_and_precision_is_kept(rule):
    single = rule(Q[0].astype(np.float32), K[0].astype(np.float32), 0.8)
    assert single.Q.shape == (1, 2, D)
    found = means(single, Cloud(CLOUD.points.astype(jnp.float32)))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[0], means(rule(Q, K, 0.8), Cloud(CLOUD.points))[0], atol=1e-4)
