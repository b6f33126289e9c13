"""The primitive (log m, a, second moments): against the double loop, and among themselves under AD."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.attention import Chunked, Dense
from jaxflow.attention.exponential import LARGEST, LOG2_E, bounded_exp2
from jaxflow.attention.tiles import sums
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


def cloud_for_tied(kind, n, d, dtype):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d)) if kind != "clustered" else 1e-3 * rng.normal(size=(n, d)) + np.eye(d)[0]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w = rng.uniform(size=n) ** (30 if kind == "weighted" else 0)
    return jnp.asarray(1.5 * x if kind == "long" else x, dtype), jnp.asarray(np.log(w / w.sum()), dtype)


def symmetric_heads(h, d, scale, dtype=float):
    Z = np.random.default_rng(4).normal(size=(h, d, d))
    return jnp.asarray(scale * (Z + Z.transpose(0, 2, 1)) / 2, dtype)


TIED = {
    kernel: eqx.filter_jit(lambda *a, kernel=kernel: kernel.tied(*a, quartic=True))
    for kernel in (Dense(), Chunked(block=40))
}


@pytest.mark.parametrize("kind", ["spread", "clustered", "weighted", "long"])
@pytest.mark.parametrize(("n", "d", "h"), [(200, 3, 10), (93, 2, 7), (41, 5, 25), (130, 4, 1)])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_tied_heads_by_symmetry_equal_the_dense_sums(kind, n, d, h, scale):
    """n: several tiles, tiles filled up, one tile. At scale 20 some logits reach a hundred."""
    x, log_w = cloud_for_tied(kind, n, d, float)
    D = symmetric_heads(h, d, scale)
    dense, found = (TIED[kernel](D, x, log_w) for kernel in TIED)
    # log m is of the size of the logits, whose rounding both sides have.
    np.testing.assert_allclose(found.log_m, dense.log_m, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.mean, dense.mean, atol=1e-12)
    np.testing.assert_allclose(found.quartic, dense.quartic, rtol=1e-12)


def test_tied_heads_in_many_dimensions_take_all_pairs():
    x, log_w = cloud_for_tied("weighted", 60, 40, float)
    D = symmetric_heads(2, 40, 0.3)
    dense, found = (kernel.tied(D, x, log_w) for kernel in (Dense(), Chunked(block=25)))
    np.testing.assert_allclose(found.log_m, dense.log_m, rtol=1e-12)
    np.testing.assert_allclose(found.mean, dense.mean, atol=1e-13)
    quartic = [kernel.tied(D, x, log_w, quartic=True).quartic for kernel in (Dense(), Chunked(block=25))]
    np.testing.assert_allclose(*quartic, rtol=1e-12)


def test_tied_heads_against_the_double_loop():
    D = np.asarray(symmetric_heads(H, 3, 1.0))
    for block in (None, 1, 3, 7):
        found = Chunked(block).tied(jnp.asarray(D), X, jnp.log(W), quartic=True)
        for h in range(H):
            m, a, S = oracles.tilt(D[h], np.asarray(X), np.asarray(W))
            np.testing.assert_allclose(found.log_m[h], np.log(m), atol=1e-13)
            np.testing.assert_allclose(found.mean[h], a, atol=1e-13)
            squares = [x @ x * np.trace(s) + x @ s @ x for x, s in zip(np.asarray(X), S, strict=True)]
            np.testing.assert_allclose(found.quartic[h], np.sum(np.asarray(W) * m * squares), rtol=1e-13)


@pytest.mark.parametrize("scale", [150.0, 5000.0])
def test_tied_heads_of_any_size_neither_overflow_nor_lose_the_maximum(scale):
    x, log_w = cloud_for_tied("weighted", 200, 3, float)
    D = symmetric_heads(10, 3, scale)
    dense, found = (kernel.tied(D, x, log_w) for kernel in (Dense(), Chunked()))
    assert bool(jnp.isfinite(found.log_m).all())
    np.testing.assert_allclose(found.log_m, dense.log_m, rtol=1e-12)
    np.testing.assert_allclose(found.mean, dense.mean, atol=1e-12)


def test_one_large_head_of_a_batch_does_not_disturb_the_others():
    x, log_w = cloud_for_tied("spread", 100, 3, float)
    D = jnp.stack([symmetric_heads(10, 3, scale) for scale in (1.0, 1000.0)])
    together = jax.jit(jax.vmap(lambda D: Chunked().tied(D, x, log_w)))(D)
    for i in range(2):
        alone = Dense().tied(D[i], x, log_w)
        # log m passes through 0, where rounding errors of the sums remain.
        np.testing.assert_allclose(together.log_m[i], alone.log_m, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(together.mean[i], alone.mean, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_tokens_without_weight_are_as_if_they_were_not_there(scale):
    """Wherever they are, in values and derivatives; the large scale takes the pass for the largest logit."""
    q, light = scale * Q, 1e3 * jnp.ones((2, D))

    def f(q, x, log_w):
        t = Chunked(block=4)(q, x, log_w)
        return jnp.sum(jnp.sin(t.log_m)) + jnp.sum(jnp.sin(t.mean))

    slopes = jax.grad(f, (0, 1, 2))
    alone = slopes(q, X, jnp.log(W))
    padded = slopes(q, jnp.concatenate([light, X]), jnp.concatenate([jnp.full(2, -jnp.inf), jnp.log(W)]))
    for a, b in zip(alone, (padded[0], padded[1][2:], padded[2][2:]), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12 * scale)
    assert float(jnp.max(jnp.abs(padded[1][:2]))) < 1e-290


def test_queries_that_see_no_weight_get_no_numbers():
    """Under causal attention the first token sees itself alone."""
    found = Chunked(block=3)(Q, X, jnp.log(W).at[0].set(-jnp.inf), causal=True)
    assert bool(jnp.isnan(found.mean[:, 0]).all())
    assert bool(jnp.isfinite(found.mean[:, 1:]).all())
    assert bool(jnp.isnan(Chunked()(Q, X, jnp.full(N, -jnp.inf)).mean).all())


def test_derivatives_do_not_keep_the_pairs():
    """Eight heads and 2048 tokens make 268 MB of pairs."""
    x = jnp.asarray(oracles.general(2048, 3, seed=0))
    q, log_w = jnp.broadcast_to(x, (8, *x.shape)), jnp.zeros(2048)
    slopes = jax.jit(jax.grad(lambda q, x, log_w: jnp.sum(Chunked()(q, x, log_w).mean ** 2), (0, 1, 2)))
    assert slopes.lower(q, x, log_w).compile().memory_analysis().temp_size_in_bytes < 30e6


def test_heads_that_are_not_numbers_give_no_numbers():
    x, log_w = cloud_for_tied("spread", 20, 3, float)
    assert bool(jnp.isnan(Chunked().tied(jnp.full((1, 3, 3), jnp.nan), x, log_w).mean).all())


@pytest.mark.parametrize("scale", [1.0, 15.0, 60.0])
def test_tied_heads_in_single_precision(scale):
    x, log_w = cloud_for_tied("spread", 200, 3, jnp.float32)
    D = symmetric_heads(10, 3, scale, jnp.float32)
    found = Chunked().tied(D, x, log_w)
    exact = Dense().tied(D.astype(float), x.astype(float), log_w.astype(float))
    assert found.mean.dtype == jnp.float32
    np.testing.assert_allclose(found.log_m, exact.log_m, rtol=2e-6, atol=2e-6 * scale)
    np.testing.assert_allclose(found.mean, exact.mean, atol=3e-6 * scale)


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_derivatives_of_tied_heads_are_those_of_the_dense_sums(scale):
    """To second order, forward and backward."""
    x, log_w = cloud_for_tied("weighted", 90, 3, float)
    at = (symmetric_heads(3, 3, scale), x, log_w)
    tangents = tuple(jnp.asarray(oracles.general(*y.shape, seed=5)) for y in at)
    tangents = (tangents[0] + jnp.swapaxes(tangents[0], 1, 2), *tangents[1:])

    def everything(kernel):
        def f(*at):
            t = kernel.tied(*at, quartic=scale == 1)
            return (t.log_m, t.mean) + ((t.quartic,) if scale == 1 else ())

        value, forward = jax.jvp(f, at, tangents)
        cotangents = jax.tree.map(lambda v: jnp.asarray(oracles.general(*v.shape, seed=6)), value)

        def gradient(*at):
            return jax.vjp(f, *at)[1](cotangents)

        return forward, *jax.jvp(gradient, at, tangents)

    dense, found = (jax.jit(lambda kernel=kernel: everything(kernel))() for kernel in (Dense(), Chunked(block=40)))
    size = max(float(jnp.max(jnp.abs(y))) for y in jax.tree.leaves(dense))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-13 * size), dense, found)


@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float64, 1e-12), (jnp.float32, 1e-5)])
def test_the_bounded_exponential_has_its_derivative_without_a_rule(dtype, rtol):
    """JAX drops rules of a function's own inside loops that it transposes and then differentiates again."""
    x = jnp.linspace(-20, 20, 1001, dtype=dtype)
    slope = jax.jit(jax.vmap(jax.grad(bounded_exp2)))(x)
    np.testing.assert_allclose(slope, np.log(2) * np.exp2(np.asarray(x, np.float64)), rtol=rtol)


def test_sums_in_tiles_to_second_order_behind_a_nonlinear_function():
    """Of the signed sums that a grid of the sphere needs, in queries and columns."""
    rng = np.random.default_rng(0)
    q, x, Y, C = (jnp.asarray(rng.normal(size=shape)) for shape in ((2, 20, 3), (20, 3), (20, 4), (2, 20, 4)))
    dq, dY = (jnp.asarray(rng.normal(size=y.shape)) for y in (q, Y))
    shift = jnp.full((2, 20), 3.0)

    def tiled(q, Y):
        return jnp.sin(sums(q, x, jnp.zeros(20), shift, Y, block=8))

    def dense(q, Y):
        return jnp.sin(jnp.exp(jnp.einsum("hnd,md->hnm", q, x) - 3.0) @ Y)

    def second(f):
        return jax.jit(lambda q, Y: jax.jvp(lambda *at: jax.vjp(f, *at)[1](C), (q, Y), (dq, dY)))(q, Y)

    exact, found = second(dense), second(tiled)
    size = max(float(jnp.max(jnp.abs(y))) for y in jax.tree.leaves(exact))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, atol=1e-11 * size), exact, found)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_the_bounded_exponential_is_right_to_one_unit_in_the_last_place(dtype):
    largest = LARGEST[np.dtype(dtype)] * LOG2_E
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=10_000), rng.uniform(-largest, largest, 10_000), np.arange(-30, 31) / 2])
    x = x.astype(dtype)
    exact = np.exp2(x.astype(np.longdouble))
    assert np.max(np.abs(np.asarray(jax.jit(bounded_exp2)(jnp.asarray(x))) / exact - 1)) < np.finfo(dtype).eps
