"""Constants of the theorems: their formulas, that nothing exceeds them, and where they are attained."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles import (
    AttentionFlow,
    energy_gap_bound,
    lipschitz_bound,
    perturbation_bound,
    spreading_rate,
    stationarity,
)
from jaxflow.weights import Constant, make_layer

LAWS = ("softmax", "unnormalized", "steepest")
N = 5
W = oracles.weights(N, seed=3)


@eqx.filter_jit
def spread(flow, cloud):
    return spreading_rate(flow, cloud, flow.weights.layer)


def norm(D):
    return float(np.linalg.norm(D, 2, axis=(-2, -1)).max())


def heads(scale, seed):
    D = oracles.symmetric(2, 3, seed=seed)
    return scale * D / norm(D)


def velocity(x, D, law, sign=-1.0):
    return oracles.velocity(x, W, [(0.5, head, sign * head) for head in D], law=law)


# --- how far two clouds can part ------------------------------------------------------------------------------------


def test_the_constants_written_out():
    e = np.exp
    for R in (0.0, 0.3, 1.1):
        expected = {
            "softmax": R**2 + 2 * R + e(2 * R) * (2 * R**2 + R),
            "unnormalized": e(R) * (R**2 + 2 * R) + e(R) * (R**2 + R),
            "steepest": e(2 * R) * (2 * R**2 + 2 * R) + e(2 * R) * (R**2 + R) + e(4 * R) * R**2,
        }
        size = {"softmax": 1 + R, "unnormalized": e(R) * (1 + R), "steepest": e(2 * R) * (1 + 2 * R)}
        for law in LAWS:
            L = expected[law]
            np.testing.assert_allclose(lipschitz_bound(R, law=law), L, rtol=1e-14)
            grown = (e(L * 0.7) - 1) / L if R else 0.7
            np.testing.assert_allclose(perturbation_bound(R, 0.2, 0.7, law=law), size[law] * 0.2 * grown, rtol=1e-12)
        np.testing.assert_allclose(energy_gap_bound(R, 0.2), 0.5 * e(R) * (e(0.2) - 1), rtol=1e-14)


@pytest.mark.parametrize("law", LAWS)
def test_velocities_differ_by_no_more_than_the_constants(law):
    """‖v[μ] − v[ν]‖ ≤ L‖x − y‖ in L² of the coupling, and ‖v^{D+S} − v^D‖ ≤ K‖S‖, by loops."""
    worst = 0.0
    for seed in range(40):
        R, rng = (0.2, 1.0, 2.5)[seed % 3], np.random.default_rng(seed)
        D, S = heads(R, seed), heads(0.3, seed + 100)
        x = oracles.unit_rows(N, 3, seed=seed)
        y = x + (0.01, 0.3, 3.0)[seed % 3] * rng.normal(size=x.shape)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        size = [np.sqrt(W @ np.sum(u**2, 1)) for u in (velocity(x, D, law) - velocity(y, D, law), x - y)]
        assert size[0] <= float(lipschitz_bound(R, law=law)) * size[1]
        worst = max(worst, size[0] / size[1] / float(lipschitz_bound(R, law=law)))
        both = max(norm(D), norm(D + S))
        # perturbation_bound starts with the slope K‖S‖.
        K = float(perturbation_bound(both, norm(S), 1e-9, law=law)) / 1e-9 / norm(S)
        moved = np.linalg.norm(velocity(x, D + S, law) - velocity(x, D, law), axis=1).max()
        assert moved <= K * norm(S) * (1 + 1e-6)
    # Not empty words: within a factor of a hundred.
    assert worst > 0.01


def test_a_single_token_on_top_of_its_hill_parts_at_two_thirds_of_the_small_bound():
    """One token at e₁ under D = diag(R, −R, 0), descend: rate 2R, and L = 3R + O(R²)."""
    R = 1e-4
    D = jnp.diag(jnp.array([R, -R, 0.0]))
    flow = AttentionFlow(Constant(D=D), direction="descend")
    rate = spread(flow, Cloud(jnp.eye(3)[:1]))
    np.testing.assert_allclose(rate, 2 * R, rtol=1e-12)
    np.testing.assert_allclose(rate / lipschitz_bound(R), 2 / 3, rtol=1e-3)


# --- energies -------------------------------------------------------------------------------------------------------


def test_energies_differ_by_at_most_the_bound_with_equality_for_a_dirac_at_a_common_eigenvector():
    for seed in range(30):
        D, S = heads(1.3, seed), heads(0.4, seed + 50)
        x = oracles.unit_rows(N, 3, seed=seed)
        gap = oracles.energy(x, W, [(1.0, head) for head in D + S]) - oracles.energy(x, W, [(1.0, head) for head in D])
        assert abs(gap) <= float(energy_gap_bound(1.3, 0.4))
    Q = oracles.rotation(3, seed=1)
    D, S = Q @ np.diag([1.3, -0.7, 0.2]) @ Q.T, Q @ np.diag([0.4, 0.1, -0.3]) @ Q.T
    flow, dirac = AttentionFlow(Constant(D=D), direction="descend"), Cloud(jnp.asarray(Q[:, :1].T))
    E, E_eps = (stationarity(flow, dirac, make_layer(D=head))[0] for head in (D, D + S))
    np.testing.assert_allclose(E_eps - E, energy_gap_bound(1.3, 0.4), rtol=1e-12)


def test_stationarity_is_the_steepest_descent_of_the_energy_of_the_heads_that_are_asked():
    """|∂E|² = −dE/dt along the steepest velocity, by loops, whatever the heads of the flow; zero for four tokens at
    rest, which unit weights must be for."""
    D, x = heads(1.1, 7), oracles.unit_rows(N, 3, seed=9)
    flow = AttentionFlow(Constant(D=heads(2.0, 8)), law="softmax", direction="ascend")
    cloud = Cloud.from_weights(jnp.asarray(x), jnp.asarray(W))
    E, upper = stationarity(flow, cloud, make_layer(D=D))
    v = velocity(x, D, "steepest")

    def along(h):
        y = x + h * v
        return oracles.energy(y / np.linalg.norm(y, axis=1, keepdims=True), W, [(1.0, head) for head in D])

    np.testing.assert_allclose(E, along(0.0), rtol=1e-13)
    np.testing.assert_allclose(upper, -oracles.derivative(along, 0.0), rtol=1e-9)
    a2 = 0.5
    rest = np.array([[s * np.sqrt(a2), t * np.sqrt(1 - a2)] for s in (1, -1) for t in (1, -1)])
    two = AttentionFlow(Constant(D=np.eye(2)), direction="descend")
    assert float(stationarity(two, Cloud(jnp.asarray(rest)), make_layer(D=np.eye(2)))[1]) < 1e-30


# --- the sharp rate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
def test_the_spreading_rate_is_the_largest_of_all_displacements_and_one_has_it(law):
    """½ d/dt Σw|ξ|² = Σw⟨ξ, ∇_ξ v⟩ by differences of velocities by loops, in a basis of the tangent vectors."""
    D, x = heads(1.2, 5), oracles.unit_rows(N, 3, seed=6)
    flow = AttentionFlow(Constant(D=D), law=law, direction="descend")
    cloud = Cloud.from_weights(jnp.asarray(x), jnp.asarray(W))
    rate = float(spread(flow, cloud))

    def tangent(u):
        return u - np.sum(u * x, axis=1, keepdims=True) * x

    def matrix():
        """Of ξ ↦ √w P ∂_{ξ/√w} v in an orthonormal basis of tangent vectors, by central differences."""
        basis = np.concatenate([np.linalg.svd(row[None])[2][1:] for row in x]).reshape(N, 2, 3)
        columns = []
        for i in range(N):
            for b in range(2):
                xi = np.zeros_like(x)
                xi[i] = basis[i, b] / np.sqrt(W[i])
                change = oracles.derivative(lambda h, xi=xi: velocity(x + h * xi, D, law), 0.0, step=1e-3)
                columns.append(np.einsum("ibk,ik->ib", basis, np.sqrt(W)[:, None] * tangent(change)).ravel())
        return np.array(columns).T

    J = matrix()
    np.testing.assert_allclose(rate, np.linalg.eigvalsh((J + J.T) / 2)[-1], rtol=1e-7)
    assert rate < float(lipschitz_bound(1.2, law=law))


def test_a_cloud_that_contracts_has_a_negative_rate():
    """All tokens at e₁ under diag(1, q, q), ascend: ξ_i' = q ξ̄ − ξ_i. Differences have the rate −1, the mean q − 1."""
    cloud = Cloud(jnp.broadcast_to(jnp.eye(3)[:1], (4, 3)))
    for q, rate in ((1.0, 0.0), (-0.5, -1.0), (0.5, -0.5)):
        flow = AttentionFlow(Constant(D=np.diag([1.0, q, q])), direction="ascend")
        np.testing.assert_allclose(spread(flow, cloud), rate, atol=1e-12)


def test_two_near_clouds_part_at_the_sharp_rate_along_its_direction():
    """Diracs at and near the top e₁ of a hill, D = diag(λ, μ): tan θ grows like e^{(λ−μ)t}, exactly."""
    D = jnp.diag(jnp.array([0.8, -0.4]))
    flow = AttentionFlow(Constant(D=D), direction="descend")
    rate = float(spread(flow, Cloud(jnp.eye(2)[:1])))
    angle = 1e-6
    token = Cloud(jnp.array([[np.cos(angle), np.sin(angle)]]))
    end = np.asarray(run(flow, token, t1=0.5, dt=0.01).final.points[0])
    np.testing.assert_allclose(np.log(np.arctan2(end[1], end[0]) / angle) / 0.5, rate, rtol=1e-9)
    np.testing.assert_allclose(rate, 1.2, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: lipschitz_bound(-1.0), "norm: must be a norm"),
        (lambda: lipschitz_bound(1.0, law="hardmax"), r"(?s)law: has no Lipschitz constant.*steepest"),
        (lambda: perturbation_bound(1.0, -0.1, 1.0), "change: must be a norm"),
        (lambda: perturbation_bound(1.0, 0.1, 1.0, law="hardmax"), "law: has no Lipschitz constant"),
        (lambda: energy_gap_bound(float("nan"), 0.1), "norm: must be a norm"),
        (
            lambda: spreading_rate(
                AttentionFlow(Constant(D=np.eye(3)), law="hardmax", direction="ascend"),
                Cloud(jnp.eye(3)),
                make_layer(D=np.eye(3)),
            ),
            "flow.law: has no derivative",
        ),
    ],
)
def test_what_has_no_bound_is_refused(call, part):
    with pytest.raises(InputError, match=part):
        call()
