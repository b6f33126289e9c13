"""A trained block as a layer of (1.1): what is read off is exact, what is fitted is the best, and (1.1) predicts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from small_models import write_bert

from jaxflow.errors import InputError
from jaxflow.measures import Gaussian, sample
from jaxflow.pretrained import Block, SelfAttention, effective_layer, load
from jaxflow.pretrained.parts import MLP, LayerNorm, Linear

D, HEADS = 4, 2
effective = eqx.filter_jit(effective_layer)


def linear(out, size, seed, *, scale=0.5):
    return Linear(
        jnp.asarray(oracles.general(out, size, scale=scale, seed=seed)),
        jnp.asarray(oracles.general(1, out, scale=scale, seed=seed + 50)[0]),
    )


def norm(seed):
    return LayerNorm(
        jnp.asarray(1 + oracles.general(1, D, scale=0.3, seed=seed)[0]), jnp.asarray([0.1, 0.0, -0.2, 0.3]), 1e-5
    )


def attention(scale=0.5):
    q, k, v, o = (linear(D, D, seed, scale=scale) for seed in (1, 2, 3, 4))
    return SelfAttention(q, k, v, o, HEADS)


def plain(scale=0.5):
    """x ← x + attention(x), and no second half."""
    zero = jnp.zeros(D)
    mlp = MLP(linear(6, D, 5), linear(D, 6, 6), "gelu")
    return Block(attention(scale), mlp, None, norm(7), jnp.asarray([1.0, 0.5, 2.0, 1.5]), zero)


GAUSSIAN = Gaussian(jnp.asarray([0.3, -0.2, 0.1, 0.5]), jnp.asarray(oracles.general(D, D, scale=0.5, seed=9)))


def tokens(p, n, seed=0):
    return sample(GAUSSIAN, jax.random.key(seed), n=p * n).points.reshape(p, n, D)


def even(x):
    """The same tokens, moved and stretched one by one so that the coordinates of each have mean 0 and variance 1."""
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True))


def softmax_mean(x, B, tilt):
    """a(x_i) under the weights e^{⟨B x_i + t, x_j⟩}, by a loop."""
    rows = []
    for xi in x:
        logits = x @ (B @ xi + tilt)
        w = np.exp(logits - logits.max())
        rows.append(w @ x / w.sum())
    return np.array(rows)


def test_heads_are_read_off_exactly():
    """attention(x) = Σ_h V_h a_h(x) + o with B_h, V_h and t_h from the weights, for any tokens whatever."""
    block, x = plain(), np.asarray(tokens(1, 7)[0])
    found = effective(block, jnp.asarray(x)[None])
    weight = {name: np.asarray(getattr(block.attention, name).weight) for name in ("query", "key", "value", "output")}
    bias = {name: np.asarray(getattr(block.attention, name).bias) for name in ("query", "key", "value", "output")}
    expected = np.asarray(block.attention(jnp.asarray(x)))
    y = bias["output"] + weight["output"] @ bias["value"]
    for h in range(HEADS):
        part = slice(2 * h, 2 * h + 2)
        Q, K, W, O = weight["query"][part], weight["key"][part], weight["value"][part], weight["output"][:, part]
        B, tilt = K.T @ Q / np.sqrt(2), K.T @ bias["query"][part] / np.sqrt(2)
        np.testing.assert_allclose(found.layer.B[h], B, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.layer.V[h], np.asarray(block.scale1)[:, None] * (O @ W), atol=1e-9)
        y = y + softmax_mean(x, B, tilt) @ (O @ W).T
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)


def test_norms_are_affine_where_all_tokens_have_one_variance():
    """The norm before attention, for tokens that have been through a norm: exact. κ and the tilt follow from its B."""
    x = even(tokens(1, 12))[0]
    block = eqx.tree_at(lambda b: b.norm1, plain(), norm(8), is_leaf=lambda leaf: leaf is None)
    found = effective(block, x[None])
    u = np.asarray(block.norm1(x))
    M, c = block.norm1.affine(1.0)
    np.testing.assert_allclose(np.asarray(x) @ np.asarray(M).T + np.asarray(c), u, atol=1e-10)
    q, k = block.attention.query, block.attention.key
    centred = np.asarray(x) - np.asarray(x).mean(0)
    for h in range(HEADS):
        part = slice(2 * h, 2 * h + 2)
        queries = u @ np.asarray(q.weight[part]).T + np.asarray(q.bias[part])
        # ⟨B x_i + t, x_j − mean⟩ = ⟨q_i, k_j − mean k⟩/√k, and θ² is the mean over i of its mean square over j.
        keys = (u - u.mean(0)) @ np.asarray(k.weight[part]).T
        logits = queries @ keys.T / np.sqrt(2)
        np.testing.assert_allclose(found.tilt[h] ** 2, np.mean(logits**2), rtol=1e-9)
        B = np.asarray(found.layer.B[h])
        S = centred.T @ centred / len(centred)
        values = np.linalg.eigvals(S @ B @ S @ B.T).real
        np.testing.assert_allclose(found.kappa[h], np.sqrt(values.max()), rtol=1e-8)


def test_the_step_of_one_layer_is_the_gaussian_limit_of_the_block():
    """4000 tokens of weak attention: gain 1, everything explained, and the moments after the block as (1.1) says."""
    x = tokens(1, 4000, seed=1)
    weak = plain(0.25)
    found = effective(weak, x)
    after = np.asarray(weak(x[0]))
    assert float(found.kappa.max()) < 0.5
    assert abs(float(found.gain) - 1) < 0.1
    assert float(found.attention) > 0.9
    assert float(found.missed) < 0.02
    np.testing.assert_allclose(found.mean, after.mean(0), atol=0.01)
    np.testing.assert_allclose(found.covariance, np.cov(after.T, bias=True), atol=0.01)
    # The change is larger than what is compared.
    assert np.abs(after.mean(0) - np.asarray(x[0]).mean(0)).max() > 0.1


@pytest.mark.parametrize("post", [False, True])
def test_without_attention_the_best_affine_map_is_exact_where_the_block_is_affine(post):
    """A feed-forward layer whose ReLU is always on, tokens of one variance before every norm: nothing is missed."""
    x = even(tokens(1, 30))
    silent = eqx.tree_at(lambda a: (a.output.weight, a.output.bias), attention(), (jnp.zeros((D, D)), jnp.zeros(D)))
    first = Linear(0.1 * linear(6, D, 5).weight, jnp.full(6, 50.0))
    # The second norm of a post-norm block meets tokens of one variance only if the feed-forward layer is silent.
    second = Linear(jnp.zeros((D, 6)) if post else linear(D, 6, 6).weight, jnp.zeros(D))
    round_norm = LayerNorm(jnp.ones(D), None, 1e-5)
    block = Block(silent, MLP(first, second, "relu"), round_norm if post else None, norm(7), post=post)
    found = effective(block, x)
    after = np.asarray(block(x[0]))
    np.testing.assert_allclose(found.mean, after.mean(0), atol=1e-9)
    np.testing.assert_allclose(found.covariance, np.cov(after.T, bias=True), atol=1e-9)
    np.testing.assert_allclose(found.affine, 1.0, atol=1e-9)
    assert float(found.missed) < 1e-5


def test_predictions_are_one_euler_step_of_the_layer_written_out(tmp_path):
    """μ + (A + ΣV + ΣVΣB)μ + b and (I + K)Σ(I + K)ᵀ from the layer itself, in a post-norm block with everything on."""
    encoder = load(write_bert(tmp_path), dtype=jnp.float64)
    x = jax.random.normal(jax.random.key(3), (2, 40, 6)) + 0.5
    found = effective(encoder.blocks[0], x)
    A, B, V, b = (np.asarray(getattr(found.layer, name)) for name in "ABVb")
    flat = np.asarray(x).reshape(-1, 6)
    mu, S = flat.mean(0), np.cov(flat.T, bias=True)
    K = A + sum(v @ S @ w for v, w in zip(V, B))
    np.testing.assert_allclose(found.mean, mu + (K + V.sum(0)) @ mu + b, atol=1e-10)
    step = np.eye(6) + K
    np.testing.assert_allclose(found.covariance, step @ S @ step.T, atol=1e-10)
    after = np.stack([np.asarray(encoder.blocks[0](y)) for y in x]).reshape(-1, 6)
    error, moved = (np.linalg.norm(m - after.mean(0)) for m in (np.asarray(found.mean), mu))
    assert error < 0.1 * moved, (error, moved)
    # The best affine map of x, by another least squares.
    design = np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
    left = np.linalg.lstsq(design, after - flat, rcond=None)[1].sum()
    change = after - flat
    np.testing.assert_allclose(found.affine, 1 - left / np.sum((change - change.mean(0)) ** 2), rtol=1e-9)


def test_a_tilt_beyond_the_tokens_is_where_the_prediction_fails():
    """n e^{−θ²} tokens are left: 1000 tokens follow a tilt of 1, and not one of 6, although κ = 0 in both."""
    x = jax.random.normal(jax.random.key(4), (1, 1000, D))
    zero, eye = Linear(jnp.zeros((D, D)), None), Linear(jnp.eye(D), None)
    mlp = MLP(linear(6, D, 5), linear(D, 6, 6), "gelu")
    gaps = []
    for tilt in (1.0, 6.0):
        query = Linear(zero.weight, jnp.asarray([tilt, 0.0, 0.0, 0.0]) * np.sqrt(D))
        block = Block(SelfAttention(query, eye, eye, eye, 1), mlp, None, norm(7), None, jnp.zeros(D))
        found = effective(block, x)
        np.testing.assert_allclose(found.tilt, tilt, rtol=0.1)
        assert float(found.kappa[0]) == 0
        gaps.append(float(found.missed))
    assert gaps[0] < 0.15
    assert gaps[1] > 0.3


def test_attention_with_positions_has_no_single_b():
    block = eqx.tree_at(
        lambda b: b.attention, plain(), SelfAttention(*(linear(D, D, i) for i in range(4)), HEADS, theta=10.0)
    )
    with pytest.raises(InputError, match=r"block\.attention(.|\n)*positions"):
        effective_layer(block, tokens(1, 8))
