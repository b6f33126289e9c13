"""Attention at zero temperature: the mean of the leaders, which themselves stay where they are."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.attention import Chunked, Dense, hardmax
from jaxflow.errors import InputError
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, equiangular
from jaxflow.solve import RK4, Euler, Heun, Tsit5, solve
from jaxflow.weights import Constant

N, D, H = 7, 3, 2
X, W = oracles.unit_rows(N, D), oracles.weights(N)
B, V = oracles.general(H, D, D, seed=2), oracles.general(H, D, D, seed=3)
MASS = np.array([0.3, 0.9])
CLOUD = Cloud.from_weights(jnp.asarray(X), jnp.asarray(W))
FREE = AttentionFlow(Constant(B=B, V=V, mass=MASS), law="hardmax", kernel=Chunked(block=3))


def leaders(B, x, w, *, causal=False):
    """The mean of the leaders of every token, by the definition."""
    a = np.zeros_like(x)
    for i in range(len(x)):
        seen = range(i + 1 if causal else len(x))
        s = [(B @ x[i]) @ x[j] for j in seen]
        best = [j for j in seen if s[j] > max(s) - 1e-12]
        a[i] = sum(w[j] * x[j] for j in best) / sum(w[j] for j in best)
    return a


def velocity(flow, cloud):
    return flow.field(0.0, cloud, flow.weights.at(0.0))[0]


@pytest.mark.parametrize("causal", [False, True])
def test_velocities_against_the_definition(causal):
    u = sum(c * leaders(b, X, W, causal=causal) @ v.T for c, b, v in zip(MASS, B, V))
    expected = u - np.sum(u * X, 1, keepdims=True) * X
    for kernel in (Chunked(block=3), Chunked(), Dense()):
        flow = dataclasses.replace(FREE, causal=causal, kernel=kernel)
        np.testing.assert_allclose(velocity(flow, CLOUD), expected, atol=1e-14)


@pytest.mark.parametrize("direction", ["descend", "ascend"])
def test_tied_heads(direction):
    heads = oracles.symmetric(H, D, seed=5)
    sign = -1 if direction == "descend" else 1
    tied = AttentionFlow(Constant(D=heads), law="hardmax", direction=direction)
    free = AttentionFlow(Constant(B=heads, V=sign * heads, mass=np.full(H, 1 / H)), law="hardmax")
    np.testing.assert_allclose(velocity(tied, CLOUD), velocity(free, CLOUD), atol=1e-15)


def test_tied_leaders_count_by_their_weights():
    """Under B = −I every other token of an equiangular cloud is a leader, up to rounding."""
    x = np.asarray(equiangular(n=4, dim=4, cosine=0.2).points) @ oracles.rotation(4).T
    w = oracles.weights(4)
    q = -jnp.asarray(x)[None]
    a = hardmax(q, jnp.asarray(x), jnp.log(jnp.asarray(w)))
    others = [(w @ x - w[i] * x[i]) / (1 - w[i]) for i in range(4)]
    np.testing.assert_allclose(a.mean[0], others, atol=1e-14)
    np.testing.assert_allclose(a.log_m, -0.2, atol=1e-14)
    # Weights far below the smallest number still make a mean.
    tiny = hardmax(q, jnp.asarray(x), jnp.log(jnp.asarray(w)) - 2000.0)
    np.testing.assert_allclose(tiny.mean, a.mean, atol=1e-12)


def test_softmax_goes_to_hardmax_as_the_temperature_falls():
    """The error is e^{−β·gap}, gap the distance of the two largest scores."""
    hard = velocity(FREE, CLOUD)
    scores = np.sort(np.einsum("hij,nj,mi->hnm", B, X, X), -1)
    gap = (scores[..., -1] - scores[..., -2]).min()
    misses = []
    for distance in (10.0, 12.0, 14.0, 40.0):
        soft = AttentionFlow(Constant(B=distance / gap * B, V=V, mass=MASS))
        misses.append(float(jnp.abs(velocity(soft, CLOUD) - hard).max()))
    # The pair with the smallest gap is the last to go.
    np.testing.assert_allclose(np.diff(np.log(misses[:3])), -2, rtol=0.02)
    assert misses[3] < 1e-14


def test_a_token_that_leads_itself_never_moves():
    """V = I: on the sphere P_x x = 0; in R^d with A = −I, ẋ = a(x) − x. Others go straight to their leader."""
    sphere = AttentionFlow(Constant(B=np.diag([1.0, 0.6, 0.4]), V=np.eye(3)), law="hardmax")
    own = np.argmax(X @ np.diag([1.0, 0.6, 0.4]) @ X.T, 1) == np.arange(N)
    assert 0 < own.sum() < N
    end = run(sphere, CLOUD, t1=3.0, dt=0.05, method=Heun()).final.points
    np.testing.assert_allclose(end[own], X[own], atol=1e-13)
    assert np.abs(np.asarray(end) - X)[~own].max() > 0.1

    x = jnp.asarray([[1.0, 0.0], [0.5, 0.1], [-1.0, 0.3], [-0.4, 0.2]])
    flow = AttentionFlow(Constant(A=-np.eye(2), B=np.eye(2), V=np.eye(2)), law="hardmax", geometry=Euclidean())
    t = 1.3
    end = run(flow, Cloud(x), t1=t, dt=0.01, method=RK4()).final.points
    leader = np.array([0, 0, 2, 2])
    np.testing.assert_allclose(end, x[leader] + np.exp(-t) * (x - x[leader]), atol=1e-9)


def test_the_first_causal_token_leads_itself():
    flow = AttentionFlow(Constant(B=B, V=np.stack([np.eye(D)] * H)), law="hardmax", causal=True)
    end = run(flow, CLOUD, t1=1.0, dt=0.1, method=Euler()).final.points
    np.testing.assert_allclose(end[0], X[0], atol=1e-14)
    assert np.abs(np.asarray(end[1:]) - X[1:]).max() > 0.1


def test_what_hardmax_cannot_do_is_refused():
    with pytest.raises(InputError, match=r"method: does not apply to hardmax(.|\n)*Euler\(\), Heun\(\) or RK4\(\)"):
        solve(FREE, CLOUD, t1=1.0, method=Tsit5())
    with pytest.raises(InputError, match="method: does not apply to hardmax"):
        solve(FREE, CLOUD, t1=1.0)
    tied = AttentionFlow(Constant(D=np.eye(3)), law="hardmax", direction="descend")
    with pytest.raises(InputError, match="observe: does not apply: hardmax has no partition"):
        solve(tied, CLOUD, t1=1.0, dt=0.1, observe=balance)
