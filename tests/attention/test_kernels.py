"""The primitive (log m, a, second moments): against the double loop, and among themselves under AD."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.attention import Chunked, Dense
from jaxflow.errors import InputError

N, D, H = 7, 3, 2
X = jnp.asarray(oracles.general(N, D, seed=0))
W = jnp.asarray(oracles.weights(N))
B = oracles.general(H, D, D, scale=0.7, seed=1)
Q = jnp.einsum("hij,nj->hni", jnp.asarray(B), X)
BLOCKS = [1, 3, 7, 64]  # 3 does not divide 7; 64 is more than there are


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", [Dense(), Chunked(block=3)])
def test_kernels_against_the_double_loop(kernel, causal):
    found = kernel(Q, X, jnp.log(W), second=True, causal=causal)
    for h in range(H):
        m, a, S = oracles.tilt(B[h], np.asarray(X), np.asarray(W), causal=causal)
        np.testing.assert_allclose(found.log_m[h], np.log(m), atol=1e-13)
        np.testing.assert_allclose(found.mean[h], a, atol=1e-13)
        np.testing.assert_allclose(found.second[h], S, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_chunked_equals_dense_with_its_derivatives(block, causal):
    tangents = tuple(jnp.asarray(oracles.general(*x.shape, seed=5)) for x in (Q, X, W))

    @eqx.filter_jit
    def both(kernel):
        def f(q, x, log_w):
            t = kernel(q, x, log_w, second=True, causal=causal)
            return t.log_m, t.mean, t.second

        value, forward = jax.jvp(f, (Q, X, jnp.log(W)), tangents)
        cotangents = jax.tree.map(lambda v: jnp.asarray(oracles.general(*v.shape, seed=6)), value)
        return value, forward, jax.vjp(f, Q, X, jnp.log(W))[1](cotangents)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13, rtol=1e-13),
        both(Dense()),
        both(Chunked(block)),
    )


def test_derivatives_of_the_primitive_against_differences():
    E = jnp.asarray(oracles.general(N, D, seed=7))

    def f(s):
        x = X + s * E
        t = Dense()(jnp.einsum("hij,nj->hni", jnp.asarray(B), x), x, jnp.log(W), second=True)
        return jnp.sum(t.log_m) + jnp.sum(jnp.sin(t.mean)) + jnp.sum(jnp.sin(t.second))

    np.testing.assert_allclose(jax.grad(f)(0.0), oracles.derivative(f, 0.0, step=5e-3), rtol=1e-9)


def test_the_gradient_of_log_m_in_the_query_is_the_attention_mean():
    """∇_q log m = a: the identity that makes softmax attention a gradient."""
    grad = jax.grad(lambda q: jnp.sum(Dense()(q, X, jnp.log(W)).log_m))(Q)
    np.testing.assert_allclose(grad, Dense()(Q, X, jnp.log(W)).mean, atol=1e-14)


def test_large_logits_neither_overflow_nor_lose_the_maximum():
    found = Dense()(2000 * Q, X, jnp.log(W))
    scores = 2000 * np.einsum("hnd,md->hnm", Q, X)
    np.testing.assert_allclose(found.log_m, (scores + np.log(W)).max(-1), rtol=1e-12)
    np.testing.assert_allclose(found.mean, np.asarray(X)[scores.argmax(-1)], atol=1e-12)


def test_attention_does_not_see_the_order_of_tokens():
    p = np.random.default_rng(0).permutation(N)
    a, b = Dense()(Q, X, jnp.log(W)), Dense()(Q, X[p], jnp.log(W)[p])
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-14)
    np.testing.assert_allclose(a.log_m, b.log_m, atol=1e-14)


def test_queries_may_differ_in_number_from_tokens():
    whole = Dense()(Q, X, jnp.log(W))
    for kernel in (Dense(), Chunked(block=2)):
        np.testing.assert_allclose(kernel(Q[:, :5], X, jnp.log(W)).mean, whole.mean[:, :5], atol=1e-14)


def test_a_block_must_hold_a_query():
    with pytest.raises(InputError, match=r"Chunked\.block: must be at least 1"):
        Chunked(block=0)
