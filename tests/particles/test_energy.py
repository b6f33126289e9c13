"""Energy, mobility and dissipation against loops, and values known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, dissipation, energy, mobility
from jaxflow.particles.energy import ito, work
from jaxflow.weights import Constant

N, D, H = 5, 3, 3
X, W = oracles.unit_rows(N, D), oracles.weights(N)
HEADS = oracles.symmetric(H, D, seed=1)
MASS = np.array([0.2, 0.5, 0.8])
CLOUD = Cloud.from_weights(jnp.asarray(X), jnp.asarray(W))
FLOW = AttentionFlow(Constant(D=HEADS, mass=MASS), direction="descend", second=True)
LAYER = FLOW.weights.at(0.0)
V, TERMS = FLOW.field(0.0, CLOUD, LAYER)
M = np.stack([oracles.tilt(B, X, W)[0] for B in HEADS])
C = MASS / MASS.sum()


def test_the_energy_against_the_double_loop():
    expected = oracles.energy(X, W, list(zip(MASS, HEADS)))
    np.testing.assert_allclose(energy(FLOW, CLOUD, LAYER), expected, rtol=1e-14)


def test_the_mobility_is_the_harmonic_mean_over_heads():
    np.testing.assert_allclose(
        mobility(TERMS), [1 / sum(c / m for c, m in zip(C, M[:, i])) for i in range(N)], rtol=1e-13
    )


def test_dissipation_against_the_loops():
    """slope = Σ w b̂|v|²; rate = −Σ w ⟨∇δE/δμ, v⟩, for any velocity."""
    v = np.asarray(FLOW.geometry.project(CLOUD.points, jnp.asarray(oracles.general(N, D, seed=2))))
    slope, rate = dissipation(FLOW, CLOUD, jnp.asarray(v), TERMS)
    expected_slope = expected_rate = 0.0
    for i in range(N):
        b = 1 / sum(c / m for c, m in zip(C, M[:, i]))
        g = sum(c * W[j] * np.exp(X[i] @ B @ X[j]) * B @ X[j] for c, B in zip(C, HEADS) for j in range(N))
        expected_slope += W[i] * b * v[i] @ v[i]
        expected_rate -= W[i] * g @ v[i]
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-13)
    np.testing.assert_allclose(rate, expected_rate, rtol=1e-12)


def test_the_rate_is_minus_the_derivative_of_the_energy():
    def along(t):
        return energy(FLOW, Cloud(CLOUD.points + t * V, CLOUD.log_weights), LAYER)

    np.testing.assert_allclose(-jax.grad(along)(0.0), dissipation(FLOW, CLOUD, V, TERMS)[1], rtol=1e-13)


def test_the_gap_between_rate_and_slope_is_a_covariance_over_heads():
    """R − G² = Σ_i w_i [⟨cov_h(m_h, u_h), v⟩ + (mean_h m_h − b̂)|v|²], softmax law, masses summing to one."""
    heads = list(zip(C, HEADS))
    flow = AttentionFlow(Constant(D=HEADS, mass=C), direction="descend")
    layer = flow.weights.at(0.0)
    v, terms = flow.field(0.0, CLOUD, layer)
    slope, rate = dissipation(flow, CLOUD, v, terms)
    u = np.stack([oracles.velocity(X, W, [(1.0, B, -B)]) for _, B in heads])
    mean_u, mean_m = np.einsum("h,hid->id", C, u), np.einsum("h,hi->i", C, M)
    covariance = np.einsum("h,hi,hid->id", C, M, u) - mean_m[:, None] * mean_u
    b = 1 / np.einsum("h,hi->i", C, 1 / M)
    gap = W @ (np.sum(covariance * mean_u, 1) + (mean_m - b) * np.sum(mean_u**2, 1))
    np.testing.assert_allclose(rate - slope, gap, rtol=1e-12)
    assert abs(gap) > 1e-3


@pytest.mark.parametrize("law", ["softmax", "steepest"])
def test_slope_equals_rate_for_one_head_and_under_steepest_descent(law):
    heads = HEADS[:1] if law == "softmax" else HEADS
    flow = AttentionFlow(Constant(D=heads), law=law, direction="descend")
    v, terms = flow.field(0.0, CLOUD, flow.weights.at(0.0))
    slope, rate = dissipation(flow, CLOUD, v, terms)
    np.testing.assert_allclose(slope, rate, rtol=1e-13)
    assert slope > 1e-3
    up = AttentionFlow(Constant(D=heads), law=law, direction="ascend")
    v, terms = up.field(0.0, CLOUD, up.weights.at(0.0))
    np.testing.assert_allclose(dissipation(up, CLOUD, v, terms), (slope, -rate), rtol=1e-13)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_energy_of_a_dirac_at_a_unit_eigenvector(index):
    """E = e^λ/2, and the token does not move."""
    values, vectors = np.linalg.eigh(HEADS[0])
    flow = AttentionFlow(Constant(D=HEADS[0]), direction="descend")
    dirac = Cloud(jnp.asarray(vectors[:, [index]].T))
    np.testing.assert_allclose(energy(flow, dirac, flow.weights.at(0.0)), np.exp(values[index]) / 2, rtol=1e-13)
    np.testing.assert_allclose(flow.field(0.0, dirac, flow.weights.at(0.0))[0], 0, atol=1e-14)


def test_work_is_the_first_order_and_ito_the_second_order_effect_of_changing_weights():
    """E(D + εS) = E + ε work(S) + ε² second + …, and E[second] over S = σ dW_sym/√dt is the Itô term."""
    S = oracles.symmetric(H, D, seed=4)

    def changed(S, t):
        return energy(FLOW, CLOUD, Constant(D=HEADS + t * S, mass=MASS).at(0.0))

    np.testing.assert_allclose(jax.grad(lambda t: changed(S, t))(0.0), work(CLOUD, TERMS, jnp.asarray(S)), rtol=1e-13)

    # E⟨x,Sy⟩² for S = (Z+Zᵀ)/2 sums over entries: diagonal variance 1, each pair off it ½.
    def second(s):
        return jax.grad(jax.grad(lambda t: changed(s, t)))(0.0) / 2

    expected = 0.0
    for k in range(D):
        for l in range(k + 1):
            s = np.zeros((D, D))
            s[k, l] = s[l, k] = 1.0
            expected += (1.0 if k == l else 0.5) * second(jnp.asarray(np.stack([s] * H)))
    np.testing.assert_allclose(ito(CLOUD, TERMS, jnp.asarray(1.3)), 1.3 * expected, rtol=1e-12)
