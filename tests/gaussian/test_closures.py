"""Gaussians under softmax, L2 and Sinkhorn attention: published covariance equations, and real tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm

from jaxflow.attention import L2, Sinkhorn, Softmax
from jaxflow.errors import InputError
from jaxflow.gaussian import ClosureFlow, Gaussian, MomentFlow
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud, gauss_hermite
from jaxflow.particles import AttentionFlow, PairingFlow
from jaxflow.weights import Constant, Function, Values, make_values

Q, K = oracles.general(2, 2, 2, scale=0.35, seed=1), oracles.general(2, 2, 2, scale=0.35, seed=2)
V = oracles.general(2, 2, 2, scale=0.4, seed=3)
A, b = oracles.general(2, 2, scale=0.3, seed=4), oracles.general(2, scale=0.3, seed=5)
MASS = np.array([0.7, 1.6])
MEAN = np.array([0.3, -0.4])
L = np.array([[0.45, 0.0], [0.2, 0.35]])
WEIGHTS = Values(V=V, A=A, b=b, mass=MASS)
START = Gaussian(jnp.asarray(MEAN), jnp.asarray(L))


def test_with_softmax_it_is_the_moment_flow():
    B = 0.9 * np.einsum("hki,hkj->hij", K, Q)
    options = {"t1": 1.0, "dt": 0.1}
    a = run(ClosureFlow(WEIGHTS, Softmax(Q, K, 0.9)), START, **options).final
    c = run(MomentFlow(Constant(A=A, b=b, B=B, V=V, mass=MASS)), START, **options).final
    np.testing.assert_allclose(a.mean, c.mean, atol=1e-15)
    np.testing.assert_allclose(a.factor, c.factor, atol=1e-15)
    flows = ClosureFlow(WEIGHTS, Softmax(Q, K, 0.9)), MomentFlow(Constant(A=A, b=b, B=B, V=V, mass=MASS))
    a, c = (flow.time_left(START, flow.field(0.0, START, flow.weights.at(0.0))[1]) for flow in flows)
    np.testing.assert_allclose(a, c, rtol=1e-13)
    cloud = gauss_hermite(START, nodes=4)
    a = run(PairingFlow(WEIGHTS, Softmax(Q, K, 0.9)), cloud, **options).final
    attention = AttentionFlow(Constant(A=A, b=b, B=B, V=V, mass=MASS), geometry=Euclidean())
    np.testing.assert_allclose(a.points, run(attention, cloud, **options).final.points, atol=1e-14)


def half(X):
    return np.real(sqrtm(X))


def published(rule, V, Q, K, S):
    """Σ' − ᵀ as published: one head, no mean."""
    C, one = K.T @ Q, np.eye(len(S))
    if rule is L2:
        return 2 * V @ S @ np.linalg.inv(one + 2 * K.T @ K @ S) @ C @ S
    T = (half(S) @ half(4 * half(S) @ C.T @ S @ C @ half(S) + one) @ np.linalg.inv(half(S)) - one) / 2
    return V @ np.linalg.inv(C.T) @ np.linalg.inv(S) @ T @ S


@pytest.mark.parametrize("rule", [L2, Sinkhorn])
def test_covariances_against_an_integration_of_the_published_equation(rule):
    Q, K = oracles.general(3, 3, scale=0.5, seed=6), oracles.general(3, 3, scale=0.5, seed=7)
    V, L = oracles.general(3, 3, scale=0.5, seed=8), oracles.general(3, 3, scale=0.5, seed=9)

    def right(t, z):
        S = z.reshape(3, 3)
        half_rate = published(rule, V, Q, K, (S + S.T) / 2)
        return (half_rate + half_rate.T).ravel()

    exact = solve_ivp(right, (0, 1), (L @ L.T).ravel(), method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    end = run(ClosureFlow(Values(V=V), rule(Q, K)), Gaussian(jnp.zeros(3), jnp.asarray(L)), t1=1.0, dt=5e-3).final
    np.testing.assert_allclose(end.covariance, exact.reshape(3, 3), atol=1e-9)
    np.testing.assert_allclose(end.mean, 0, atol=1e-15)


@pytest.mark.parametrize("rank", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", [L2, Sinkhorn])
def test_gauss_hermite_tokens_follow_two_heads_with_feed_forward(rule, rank):
    """16 nodes per axis; both flows take the same steps, so that only quadrature tells them apart."""
    start = Gaussian(jnp.asarray(MEAN), jnp.asarray(L[:, :rank]))
    options = {"t1": 1.0, "dt": 0.1}
    exact = run(ClosureFlow(WEIGHTS, rule(Q, K, 0.9)), start, **options).final
    tokens = run(PairingFlow(WEIGHTS, rule(Q, K, 0.9)), gauss_hermite(start, nodes=16), **options).final
    np.testing.assert_allclose(tokens.mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(tokens.covariance, exact.covariance, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [L2, Sinkhorn])
def test_one_dimension_with_few_nodes(rule):
    start = Gaussian(jnp.asarray([0.4]), jnp.asarray([[0.5]]))
    weights, attention = Values(V=[[0.8]], A=[[-0.2]], b=[0.1]), rule(np.array([[0.7]]), np.array([[0.6]]))
    options = {"t1": 1.0, "dt": 0.1}
    exact = run(ClosureFlow(weights, attention), start, **options).final
    tokens = run(PairingFlow(weights, attention), gauss_hermite(start, nodes=16), **options).final
    np.testing.assert_allclose(tokens.mean, exact.mean, atol=1e-11)
    np.testing.assert_allclose(tokens.covariance, exact.covariance, atol=1e-11)


def test_values_may_change_with_depth():
    """Values that turn with t: against Σ' and μ' integrated with the affine map written out for L2."""

    def layer(t):
        return make_values(V=(1 + t) * jnp.asarray(V), A=jnp.cos(2 * t) * A, b=t * b, mass=MASS)

    def right(t, z):
        mu, S = z[:2], z[2:].reshape(2, 2)
        M = [2 * S @ np.linalg.inv(np.eye(2) + 2 * k.T @ k @ S) @ k.T @ q for q, k in zip(Q, K)]
        m = [np.linalg.solve(np.linalg.inv(S) + 2 * k.T @ k, np.linalg.solve(S, mu)) for k in K]
        G = np.cos(2 * t) * A + sum(c * (1 + t) * v @ x for c, v, x in zip(MASS, V, M))
        dmu = G @ mu + t * b + sum(c * (1 + t) * v @ x for c, v, x in zip(MASS, V, m))
        return np.concatenate([dmu, (G @ S + S @ G.T).ravel()])

    exact = solve_ivp(right, (0, 1), np.append(MEAN, L @ L.T), method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    end = run(ClosureFlow(Function(layer), L2(Q, K)), START, t1=1.0, dt=5e-3).final
    np.testing.assert_allclose(end.mean, exact[:2], atol=1e-9)
    np.testing.assert_allclose(end.covariance.ravel(), exact[2:], atol=1e-9)


@pytest.mark.parametrize("rule", [pytest.param(L2, marks=pytest.mark.slow), Sinkhorn])
def test_gradients_at_deficient_rank_against_differences(rule):
    E = [jnp.asarray(oracles.general(*x.shape, seed=20 + i)) for i, x in enumerate((Q, K, V, MEAN, L[:, :1]))]

    @jax.jit
    @jax.value_and_grad
    def f(s):
        flow = ClosureFlow(Values(V=V + s * E[2], A=A, b=b), rule(Q + s * E[0], K + s * E[1], 0.9 + s))
        end = run(flow, Gaussian(MEAN + s * E[3], L[:, :1] + s * E[4]), t1=1.0, dt=0.5).final
        return jnp.sum(end.mean) + jnp.sum(end.covariance * jnp.asarray([[1.0, 2.0], [0.5, -1.0]]))

    np.testing.assert_allclose(f(0.0)[1], oracles.derivative(lambda s: f(s)[0], 0.0, step=2e-3), rtol=1e-8)


@pytest.mark.slow
def test_gradients_through_sinkhorn_tokens_against_differences():
    cloud = Cloud(jnp.asarray(oracles.general(5, 2, seed=30)))

    @jax.jit
    @jax.value_and_grad
    def f(s):
        flow = PairingFlow(Values(V=V * (1 + s)), Sinkhorn(Q * (1 + s), K))
        return jnp.sum(run(flow, cloud, t1=0.5, dt=0.25).final.points ** 2)

    np.testing.assert_allclose(f(0.0)[1], oracles.derivative(lambda s: f(s)[0], 0.0, step=2e-3), rtol=1e-8)


def test_l2_attention_with_few_keys_can_blow_up():
    """K = [1, 0], Q = [0, 1], V = diag(0, 1): l₁₁ stays and l₂₁' = g l₂₁², g = 2l₁₁/(1 + 2l₁₁²), so t* = 1/(g l₂₁)."""
    flow = ClosureFlow(Values(V=np.diag([0.0, 1.0])), L2(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])))
    start = Gaussian(jnp.zeros(2), jnp.asarray([[0.6, 0.0], [0.5, 0.3]]))
    sol = run(flow, start, t1=5.0, rtol=1e-11, atol=1e-11)
    assert sol.outcome == "blow_up"
    np.testing.assert_allclose(sol.t_end, (1 + 2 * 0.36) / (2 * 0.6 * 0.5), rtol=1e-8)
    near = Gaussian(jnp.zeros(2), jnp.asarray([[0.6, 0.0], [5e4, 3e4]]))
    left = flow.time_left(near, flow.field(0.0, near, flow.weights.at(0.0))[1])
    np.testing.assert_allclose(left, (1 + 2 * 0.36) / (2 * 0.6 * 5e4), rtol=1e-8)


def test_sinkhorn_attention_never_blows_up():
    """|L|' ≤ ‖V‖|L| where softmax, with the same V, B > 0, ends before t = 1."""
    I, start = np.eye(2), Gaussian(jnp.zeros(2), jnp.eye(2))
    assert run(ClosureFlow(Values(V=I), Softmax(I, I)), start, t1=2.0, dt=0.1).outcome == "blow_up"
    sol = run(ClosureFlow(Values(V=I), Sinkhorn(I, I)), start, t1=2.0, dt=0.1)
    assert sol.outcome == "done"
    assert jnp.linalg.norm(sol.final.factor) <= np.exp(2) * np.sqrt(2)


def test_tokens_whose_scaling_did_not_converge_end_as_not_finite():
    flow = PairingFlow(Values(V=V), Sinkhorn(Q, K, 5.0, max_iterations=1))
    sol = run(flow, Cloud(jnp.asarray(oracles.general(5, 2, seed=30))), t1=1.0, dt=0.5)
    assert sol.outcome == "nonfinite"
    assert jnp.isfinite(sol.final.points).all()


RULE = L2(Q, K)
REFUSED = [
    (lambda: ClosureFlow(Constant(B=V, V=V), RULE), "weights: must give values V and no B"),
    (lambda: PairingFlow(Constant(A=A), RULE), "weights: must give values V and no B"),
    (lambda: ClosureFlow(Values(V=V[0]), RULE), r"weights\.V: does not fit the attention"),
    (lambda: PairingFlow(Values(V=np.ones((2, 3, 3))), RULE), r"weights\.V: does not fit the attention"),
    (lambda: ClosureFlow(WEIGHTS, RULE).check(Cloud(jnp.ones((3, 2)))), "state: must be a Gaussian"),
    (lambda: PairingFlow(WEIGHTS, RULE).check(START), "state: must be a Cloud of tokens"),
    (lambda: ClosureFlow(WEIGHTS, RULE).check(Gaussian(jnp.zeros(3), jnp.eye(3))), "state: lives in another dimension"),
    (lambda: PairingFlow(WEIGHTS, RULE).check(Cloud(jnp.ones((4, 3)))), "points: lives in another dimension"),
    (lambda: PairingFlow(WEIGHTS, RULE).check(Cloud(jnp.ones((2, 4, 2)))), "must be a single cloud"),
    (lambda: ClosureFlow(WEIGHTS, RULE).check(Gaussian(jnp.zeros((3, 2)), jnp.ones((3, 2, 1)))), "single Gaussian"),
    (lambda: PairingFlow(WEIGHTS, RULE).check(Cloud(jnp.ones((4, 2), jnp.float32))), "mixes precisions"),
    (lambda: Values(V=V, mass=[1.0]), "mass: has the wrong shape"),
    (lambda: Values(V=V, A=np.eye(3)), "A: has the wrong shape"),
    (lambda: Values(V=V, b=np.ones(2, np.float32)), "mixes precisions"),
    (lambda: Values(V=np.ones((2, 3))), "V: has the wrong shape"),
]


@pytest.mark.parametrize(("make", "part"), REFUSED)
def test_refusals(make, part):
    with pytest.raises(InputError, match=part):
        make()


def test_one_head_needs_no_head_axis_and_masses_are_one():
    layer = make_values(V=V[0])
    assert layer.V.shape == (1, 2, 2)
    assert (layer.dim, layer.heads, layer.dtype) == (2, 0, jnp.float64)
    np.testing.assert_array_equal(layer.mass, [1.0])
    weights = Values(V=V[0])
    np.testing.assert_array_equal(weights.at(0.3).V, weights.piece(0).at(0.7).V)
