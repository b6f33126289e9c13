"""Velocities of tokens against the double loop, and the symmetries they must have."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.attention import Chunked
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Constant

N, D, H = 6, 3, 2
X, W = oracles.unit_rows(N, D), oracles.weights(N)
TIED = oracles.symmetric(H, D, seed=1)
B, V = oracles.general(H, D, D, scale=0.7, seed=2), oracles.general(H, D, D, seed=3)
A, b = oracles.general(D, D, seed=4), oracles.general(D, seed=5)
MASS = np.array([0.3, 0.9])
CLOUD = Cloud.from_weights(jnp.asarray(X), jnp.asarray(W))


@eqx.filter_jit
def velocity(flow, cloud):
    return flow.field(0.0, cloud, flow.weights.at(0.0))[0]


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
@pytest.mark.parametrize("direction", ["descend", "ascend"])
def test_tied_heads_against_the_double_loop(law, direction):
    flow = AttentionFlow(Constant(D=TIED, mass=MASS), law=law, direction=direction)
    sign = -1 if direction == "descend" else 1
    heads = [(c, D, sign * D) for c, D in zip(MASS, TIED)]
    np.testing.assert_allclose(velocity(flow, CLOUD), oracles.velocity(X, W, heads, law=law), atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sphere", [True, False])
@pytest.mark.parametrize("law", ["softmax", "unnormalized"])
def test_free_heads_with_feed_forward_against_the_double_loop(law, sphere, causal):
    points = X if sphere else 1.3 * X + 0.2
    geometry = Sphere() if sphere else Euclidean()
    flow = AttentionFlow(Constant(A=A, b=b, B=B, V=V, mass=MASS), law=law, geometry=geometry, causal=causal)
    heads = list(zip(MASS, B, V))
    expected = oracles.velocity(points, W, heads, law=law, A=A, b=b, sphere=sphere, causal=causal)
    cloud = Cloud.from_weights(jnp.asarray(points), jnp.asarray(W))
    np.testing.assert_allclose(velocity(flow, cloud), expected, atol=1e-13)
    chunked = dataclasses.replace(flow, kernel=Chunked(block=4))
    np.testing.assert_allclose(velocity(chunked, cloud), expected, atol=1e-13)


def test_a_layer_may_have_no_attention():
    flow = AttentionFlow(Constant(A=A, b=b), geometry=Euclidean())
    np.testing.assert_allclose(velocity(flow, CLOUD), X @ A.T + b, atol=1e-15)
    assert flow.field(0.0, CLOUD, flow.weights.at(0.0))[1].tilted is None


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
@pytest.mark.parametrize("direction", ["descend", "ascend"])
def test_tied_heads_are_free_heads_with_b_equal_to_d_and_v_to_minus_or_plus_d(law, direction):
    sign = -1 if direction == "descend" else 1
    tied = velocity(AttentionFlow(Constant(D=TIED), law=law, direction=direction), CLOUD)
    if law == "steepest":
        one = AttentionFlow(Constant(D=TIED[:1]), law=law, direction=direction)
        softmax = AttentionFlow(Constant(D=TIED[:1]), direction=direction)
        # One head: its own mobility cancels, and steepest descent is softmax attention.
        np.testing.assert_allclose(velocity(one, CLOUD), velocity(softmax, CLOUD), atol=1e-14)
    else:
        free = AttentionFlow(Constant(B=TIED, V=sign * TIED, mass=np.full(H, 1 / H)), law=law)
        np.testing.assert_allclose(tied, velocity(free, CLOUD), atol=1e-14)


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
def test_equal_heads_are_one_head(law):
    one = AttentionFlow(Constant(D=TIED[:1]), law=law, direction="descend")
    four = AttentionFlow(Constant(D=np.stack([TIED[0]] * 4)), law=law, direction="descend")
    weighed = AttentionFlow(Constant(D=np.stack([TIED[0]] * 2), mass=[0.25, 0.75]), law=law, direction="descend")
    for other in (four, weighed):
        np.testing.assert_allclose(velocity(one, CLOUD), velocity(other, CLOUD), atol=1e-14)


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
def test_velocities_turn_with_the_space_and_follow_the_order_of_tokens(law):
    Q, p = oracles.rotation(D), np.random.default_rng(0).permutation(N)
    flow = AttentionFlow(Constant(D=TIED), law=law, direction="descend")
    turned = AttentionFlow(Constant(D=Q @ TIED @ Q.T), law=law, direction="descend")
    v = velocity(flow, CLOUD)
    np.testing.assert_allclose(velocity(turned, Cloud(jnp.asarray(X @ Q.T), CLOUD.log_weights)), v @ Q.T, atol=1e-14)
    permuted = Cloud(jnp.asarray(X[p]), CLOUD.log_weights[p])
    np.testing.assert_allclose(velocity(flow, permuted), v[p], atol=1e-14)


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
def test_two_copies_of_a_token_are_one_of_twice_the_weight(law):
    flow = AttentionFlow(Constant(D=TIED), law=law, direction="descend")
    doubled = Cloud(jnp.asarray(np.vstack([X, X[:1]])))
    weighed = Cloud.from_weights(jnp.asarray(X), jnp.asarray([2.0] + [1.0] * (N - 1)))
    np.testing.assert_allclose(velocity(flow, doubled)[:N], velocity(flow, weighed), atol=1e-14)
    np.testing.assert_allclose(velocity(flow, doubled)[N], velocity(flow, weighed)[0], atol=1e-14)


def test_the_unnormalized_law_is_the_gradient_of_the_energy():
    """n ∇_{x_i} E = ∓ẋ_i in the ambient space, tied heads with D symmetric."""
    flow = AttentionFlow(Constant(D=TIED), law="unnormalized", direction="descend", geometry=Euclidean())

    def E(x):
        s = jnp.einsum("id,hde,je->hij", x, jnp.asarray(TIED), x)
        return 0.5 / H * jnp.einsum("i,j,hij->", jnp.asarray(W), jnp.asarray(W), jnp.exp(s))

    gradient = jax.grad(E)(jnp.asarray(X)) / W[:, None]
    np.testing.assert_allclose(velocity(flow, CLOUD), -gradient, atol=1e-14)


def test_a_causal_first_token_never_moves_under_identity_values():
    flow = AttentionFlow(Constant(B=B, V=np.stack([np.eye(D)] * H)), causal=True)
    sol = run(flow, CLOUD, t1=2.0, dt=0.1)
    np.testing.assert_allclose(sol.final.points[0], X[0], atol=1e-14)
    assert np.abs(np.asarray(sol.final.points[1:]) - X[1:]).max() > 0.1
    full = run(dataclasses.replace(flow, causal=False), CLOUD, t1=2.0, dt=0.1)
    assert np.abs(np.asarray(full.final.points[0]) - X[0]).max() > 0.1
