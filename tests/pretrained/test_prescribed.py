"""Prescribed attention in a trained encoder: it is that of the token flow, and (1.1) says what becomes of Σ."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from small_models import write_bert

from jaxflow.errors import InputError
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.pretrained import Block, Encoder, PrescribedAttention, SelfAttention, effective_layer, load, prescribe
from jaxflow.pretrained.embeddings import WordEmbedding
from jaxflow.pretrained.parts import MLP, LayerNorm, Linear
from jaxflow.weights import Constant

D, DEPTH = 2, 10


@pytest.fixture(scope="module")
def encoder():
    """Pre-norm, with a feed-forward layer and attention of its own."""

    def linear(out, size, seed):
        return Linear(jnp.asarray(oracles.general(out, size, scale=0.3, seed=seed)), jnp.full(out, 0.1))

    norm = LayerNorm(jnp.ones(D), None, 1e-5)
    attention = SelfAttention(*(linear(D, D, seed) for seed in range(4)), 1)
    block = Block(attention, MLP(linear(3, D, 5), linear(D, 3, 6), "gelu"), norm, norm)
    return Encoder(WordEmbedding(jnp.ones((3, D)), None, None, norm, 9), (block,) * DEPTH, None, "test")


def test_a_silent_block_is_one_euler_step_of_the_token_flow(encoder):
    B, V = (jnp.asarray(oracles.general(2 * D, D, seed=seed).reshape(2, D, D)) for seed in (1, 2))
    x = jnp.asarray(oracles.general(9, D, seed=3))
    flow, layer = AttentionFlow(Constant(B=B, V=V), geometry=Euclidean()), Constant(B=B, V=V).at(0.0)
    step = flow.velocity(Cloud(x), layer, flow.tilt(Cloud(x), layer))
    found = prescribe(encoder, B, V, feedforward=False).blocks[0](x)
    np.testing.assert_allclose(found, x + step, rtol=1e-12)
    # With it, the trained feed-forward layer comes after.
    trained = encoder.blocks[0].second(x + step)
    np.testing.assert_allclose(prescribe(encoder, B, V).blocks[0](x), trained, rtol=1e-12)


@pytest.mark.parametrize("v", [-0.5, 0.05])
def test_opposite_signs_bound_the_covariance_and_equal_signs_let_it_grow(encoder, v):
    """4000 tokens against L ← (1 + v b LLᵀ)L, block by block, while κ is below 1."""
    b, n = 0.8, 4000
    z = jax.random.normal(jax.random.key(0), (n, D))
    z = z - z.mean(0, keepdims=True)
    x = z @ jnp.linalg.inv(jnp.linalg.cholesky(z.T @ z / n)).T
    silent = prescribe(encoder, b * jnp.eye(D)[None], v * jnp.eye(D)[None], feedforward=False)
    states = np.asarray(eqx.filter_jit(silent.hidden_states)(x))
    variance = 1.0
    for state in states:
        np.testing.assert_allclose(np.cov(state.T, bias=True), variance * np.eye(D), atol=0.04 * variance)
        if b * variance > 1:
            break
        variance *= (1 + v * b * variance) ** 2
    assert (variance < 0.2) if v < 0 else (variance > 1.25)


def test_its_effective_layer_is_itself(encoder):
    """A = 0, b = 0 and no tilt, so that κ, θ² and the prediction are those of B, V and Σ."""
    B, V = 0.3 * jnp.eye(D)[None], jnp.asarray([[[-0.4, 0.1], [0.0, -0.2]]])
    block = prescribe(encoder, B, V, feedforward=False).blocks[0]
    x = jax.random.normal(jax.random.key(1), (1, 50, D)) + jnp.asarray([[[0.5, -1.0]]])
    found = eqx.filter_jit(effective_layer)(block, x)
    S, mu = np.cov(np.asarray(x[0]).T, bias=True), np.asarray(x[0]).mean(0)
    np.testing.assert_allclose(found.layer.A, 0, atol=1e-9)
    np.testing.assert_allclose(found.layer.b, 0, atol=1e-9)
    np.testing.assert_allclose(found.layer.V, V, atol=1e-9)
    np.testing.assert_allclose(found.kappa[0], 0.3 * np.linalg.eigvalsh(S)[-1], rtol=1e-9)
    theta2 = 0.09 * (np.sum(S * S) + mu @ S @ mu)
    np.testing.assert_allclose(found.tilt[0] ** 2, theta2, rtol=1e-9)
    np.testing.assert_allclose(found.self_weight[0], 0.3 * np.trace(S) - theta2 / 2, rtol=1e-9)


def test_tokens_in_many_dimensions_attend_to_themselves_alone():
    """b tr Σ beyond ln n: a(x_i) = x_i, where (1.1) has ΣBx; the self-weight says so."""
    d, n = 60, 300
    x = jax.random.normal(jax.random.key(2), (n, d))
    attention = PrescribedAttention(0.8 * jnp.eye(d)[None], jnp.eye(d)[None])
    np.testing.assert_allclose(attention(x), x, atol=0.1)
    eye, norm = Linear(jnp.eye(d), None), LayerNorm(jnp.ones(d), None, 1e-5)
    block = Block(attention, MLP(eye, eye, "relu"), None, norm, None, jnp.zeros(d))
    found = eqx.filter_jit(effective_layer)(block, x[None])
    assert float(found.self_weight[0]) > np.log(n)
    # What (1.1) has as 0.8 Σx is x.
    S = np.cov(np.asarray(x).T, bias=True)
    np.testing.assert_allclose(found.gain, np.trace(S @ S) / (0.8 * np.trace(S @ S @ S)), rtol=1e-2)


def test_its_heads_seen_through_a_norm():
    B, V = (jnp.asarray(oracles.general(D, D, seed=seed))[None] for seed in (1, 2))
    M, c, x = jnp.asarray(oracles.general(D, D, seed=3)), jnp.asarray([0.3, -0.7]), oracles.general(6, D, seed=4)
    heads = PrescribedAttention(B, V).heads_at(M, c)
    logits = x @ np.asarray(heads.B[0]).T + np.asarray(heads.tilt[0])
    w = np.exp(logits @ x.T)
    found = w @ x / w.sum(1, keepdims=True) @ np.asarray(heads.V[0]).T + np.asarray(heads.constant)
    np.testing.assert_allclose(found, PrescribedAttention(B, V)(jnp.asarray(x) @ M.T + c[None]), rtol=1e-10)


def test_what_cannot_be_prescribed_is_refused(encoder, tmp_path):
    bert = load(write_bert(tmp_path), dtype=jnp.float64)
    with pytest.raises(InputError, match=r"encoder(.|\n)*bert(.|\n)*pre-norm"):
        prescribe(bert, jnp.eye(6)[None], jnp.eye(6)[None])
    with pytest.raises(InputError, match="V: has the wrong shape"):
        prescribe(encoder, jnp.eye(D)[None], jnp.ones((2, D, D)))
    with pytest.raises(InputError, match="B: has the wrong shape"):
        prescribe(encoder, jnp.ones((1, 3, 3)), jnp.eye(D)[None])
