"""Where moments come to rest: Lyapunov, Bernoulli, A = 0, several heads; stability; tuned means; refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import solve_continuous_are, solve_continuous_lyapunov

from jaxflow.errors import InputError, NumericalError
from jaxflow.gaussian import (
    Gaussian,
    bernoulli,
    covariance_spectrum,
    equilibrium,
    held_covariance,
    mean_spectrum,
    newton_covariance,
    riccati,
    tune_mean,
)
from jaxflow.weights import make_layer


def positive(d, seed):
    M = oracles.general(d, d, seed=seed)
    return M @ M.T / d + 0.3 * np.eye(d)


def gaussian(L):
    return Gaussian(jnp.zeros(len(L)), jnp.asarray(L))


def growing_only(d, seed):
    """A whose eigenvalues have positive real parts."""
    A = oracles.general(d, d, scale=0.5, seed=seed)
    return A + (0.3 - np.linalg.eigvals(A).real.min()) * np.eye(d)


@pytest.mark.parametrize("d", [1, 2, 5, 16])
def test_lyapunov_equilibrium(d):
    """−A Hurwitz, vB_s < 0: Σ∞ = P^{-1}, AᵀP + PA = −2vB_s."""
    A, B, v = growing_only(d, d), positive(d, d + 50) + np.triu(oracles.general(d, d, seed=3), 1) * 0.1, -0.7
    B_s = (B + B.T) / 2
    P = solve_continuous_lyapunov(A.T, -2 * v * B_s)
    found = equilibrium(make_layer(A=A, B=B, V=v * np.eye(d)))
    np.testing.assert_allclose(found.covariance, np.linalg.inv(P), atol=1e-9 * np.abs(np.linalg.inv(P)).max())
    assert found.how == "bernoulli"
    assert found.rank == d
    assert found.covariance_stable
    assert found.mean_stable
    # K∞ is similar to a skew matrix: the mean's rates are v + i(...).
    np.testing.assert_allclose(found.mean_spectrum.real, v, atol=1e-9)


@pytest.mark.parametrize(("d", "seed"), [(2, 1), (3, 2), (5, 3), (8, 4), (32, 5), (128, 6), (256, 7)])
def test_bernoulli_equilibrium_of_a_mixed_spectrum(d, seed):
    """AS + SAᵀ + 2vSB_sS = 0 to 1e-10, A + 2vSB_s stable, rank = number of Re λ > 0; SciPy's Riccati solver agrees."""
    A = oracles.general(d, d, seed=seed) / np.sqrt(d)
    B, v = positive(d, seed + 50), -0.8
    S = np.asarray(bernoulli(make_layer(A=A, B=B, V=v * np.eye(d))))
    np.testing.assert_allclose(A @ S + S @ A.T + 2 * v * S @ B @ S, 0, atol=1e-10)
    growing = int((np.linalg.eigvals(A).real > 0).sum())
    assert 0 < growing < d
    values = np.linalg.eigvalsh(S)
    assert values[-growing] > 1e-6 * values[-1]
    assert abs(values[: d - growing]).max() < 1e-11 * values[-1]
    assert np.linalg.eigvals(A + 2 * v * S @ B).real.max() < 0
    if d <= 32:
        root = np.linalg.cholesky(B)
        np.testing.assert_allclose(
            S, solve_continuous_are(A.T, np.sqrt(-2 * v) * root, np.zeros((d, d)), np.eye(d)), atol=1e-8
        )


def test_bernoulli_equilibrium_attracts():
    A = np.array([[0.5, 1.0, 0.0], [0.0, -0.7, 0.3], [0.2, 0.0, 0.3]])
    B, v = positive(3, 1), -0.8
    S = np.asarray(bernoulli(make_layer(A=A, B=B, V=v * np.eye(3))))
    heads = [(1.0, B, v * np.eye(3))]
    end = oracles.moments(np.zeros(3), np.eye(3), lambda t: (A, np.zeros(3), heads), [150.0])[0][1]
    np.testing.assert_allclose(end, S, atol=1e-9)


def test_hurwitz_layers_send_the_covariance_to_zero():
    A = oracles.general(3, 3, scale=0.3, seed=1) - np.eye(3)
    found = equilibrium(make_layer(A=A, B=np.eye(3), V=-np.eye(3), b=np.ones(3)))
    np.testing.assert_allclose(found.covariance, 0, atol=1e-14)
    assert found.rank == 0
    assert found.covariance_stable
    np.testing.assert_allclose(found.mean, -np.linalg.solve(A - np.eye(3), np.ones(3)), atol=1e-12)


@pytest.mark.parametrize("rank", [3, 2])
def test_without_feed_forward_the_unseen_directions_stay(rank):
    """A = 0, vB_s ≤ 0 with kernel N: Σ∞ = N(NᵀΣ₀^{-1}N)^{-1}Nᵀ at full rank; L₀PL₀ᵀ at any, here against the flow."""
    u = np.array([[2.0, 1.0, -1.0]])
    B, L = u.T @ u, oracles.general(3, rank, seed=2)
    found = equilibrium(make_layer(B=B, V=-0.5 * np.eye(3)), gaussian(L))
    assert found.how == "held"
    assert not found.covariance_stable
    assert found.rank == rank - 1
    if rank == 3:
        N = np.linalg.svd(u)[2][1:].T
        expected = N @ np.linalg.inv(N.T @ np.linalg.inv(L @ L.T) @ N) @ N.T
        np.testing.assert_allclose(found.covariance, expected, atol=1e-10)
    t = 1e7
    limit = L @ np.linalg.inv(np.eye(rank) + t * L.T @ B @ L) @ L.T
    np.testing.assert_allclose(found.covariance, limit, atol=1e-6)


def test_two_heads_by_newton():
    """Values that are no multiples of the identity: KΣ + ΣKᵀ = 0, and the flow of SciPy ends there."""
    A = growing_only(3, 5)
    B = np.stack([positive(3, 6), positive(3, 7)])
    V = -np.stack([positive(3, 8), np.eye(3) + 0.2 * oracles.general(3, 3, seed=9)])
    layer, start = make_layer(A=A, B=B, V=V), gaussian(np.eye(3))
    found = equilibrium(layer, start)
    S = np.asarray(found.covariance)
    K = A + sum(V[h] @ S @ B[h] for h in range(2))
    assert found.how == "newton"
    assert found.rank == 3
    np.testing.assert_allclose(K @ S + S @ K.T, 0, atol=1e-12)
    heads = [(1.0, B[h], V[h]) for h in range(2)]
    end = oracles.moments(np.zeros(3), np.eye(3), lambda t: (A, np.zeros(3), heads), [80.0])[0][1]
    np.testing.assert_allclose(S, end, atol=1e-9)
    assert found.covariance_stable == bool(found.covariance_spectrum.real.max() < 0)


def test_spectra_are_those_of_finite_differences():
    """General values: eigenvalues of the numerical Jacobian of Σ̇ on symmetric matrices, and of μ̇."""
    A, B = oracles.general(3, 3, seed=1), oracles.general(2, 3, 3, seed=2)
    V, S = oracles.general(2, 3, 3, seed=3), positive(3, 4)
    layer = make_layer(A=A, B=B, V=V)

    def velocity(S):
        K = A + sum(V[h] @ S @ B[h] for h in range(2))
        return K @ S + S @ K.T

    i, j = np.triu_indices(3)
    J = np.zeros((6, 6))
    for k in range(6):
        E = np.zeros((3, 3))
        E[i[k], j[k]] = E[j[k], i[k]] = 1
        J[:, k] = oracles.derivative(lambda s, E=E: velocity(S + s * E)[i, j], 0.0)
    expected = np.linalg.eigvals(J)
    found = covariance_spectrum(layer, jnp.asarray(S))
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(expected), atol=1e-8)
    M = A + V.sum(0) + sum(V[h] @ S @ B[h] for h in range(2))
    np.testing.assert_allclose(
        np.sort_complex(mean_spectrum(layer, jnp.asarray(S))), np.sort_complex(np.linalg.eigvals(M)), atol=1e-12
    )


def test_closed_spectrum_for_scalar_values_equals_the_dense_one():
    A, B = growing_only(3, 1), positive(3, 2)
    layer = make_layer(A=A, B=B, V=-0.6 * np.eye(3))
    S = bernoulli(layer)
    bent = make_layer(A=A, B=B, V=-0.6 * np.eye(3) + 1e-11 * np.triu(np.ones((3, 3)), 1))
    found, dense = covariance_spectrum(layer, S), covariance_spectrum(bent, S)
    np.testing.assert_allclose(np.sort(found.real), np.sort(dense.real), atol=1e-8)


@pytest.mark.parametrize("sign", [-1, 1])
def test_tuned_mean_is_at_rest_and_says_whether_it_attracts(sign):
    """V < 0 < B: the mean goes there. V > 0 > B: it is at rest, and repels at rate v."""
    A, B = growing_only(3, 3), positive(3, 4)
    target = np.array([1.0, -2.0, 0.5])
    matrices = {"A": A, "B": -sign * B, "V": 0.8 * sign * np.eye(3)}
    tuned = tune_mean(make_layer(**matrices), jnp.asarray(target))
    layer = make_layer(**matrices, b=tuned.b)
    found = equilibrium(layer)
    np.testing.assert_allclose(found.mean, target, atol=1e-9)
    assert found.mean_exists
    assert found.covariance_stable
    assert tuned.stable == (sign < 0) == found.mean_stable
    assert ("repels" in tuned.advice) == (sign > 0)
    S = np.asarray(found.covariance)
    K = A - 0.8 * S @ B
    off = solve_ivp(
        lambda t, m: (K + matrices["V"]) @ m + np.asarray(tuned.b), (0, 10), target + 1e-3, rtol=1e-10, atol=1e-13
    ).y[:, -1]
    distance = np.linalg.norm(off - target)
    assert distance < 1e-5 if sign < 0 else distance > 1


@pytest.mark.parametrize("way", ["bernoulli", "newton"])
def test_derivatives_of_equilibria(way):
    """By the implicit function theorem, against central differences, for A, B and V."""
    A = np.array([[0.5, 1.0, 0.0], [0.0, -0.7, 0.3], [0.2, 0.0, 0.3]]) if way == "bernoulli" else growing_only(3, 1)
    p = {"A": jnp.asarray(A), "B": jnp.asarray(positive(3, 2)), "v": jnp.asarray(-0.8)}
    W = jnp.asarray(oracles.general(3, 3, seed=4))
    bend = 0.0 if way == "bernoulli" else 0.1 * oracles.general(3, 3, seed=5)
    guess = None
    if way == "newton":
        guess = equilibrium(make_layer(A=A, B=p["B"], V=p["v"] * jnp.eye(3) + bend), gaussian(np.eye(3))).covariance

    @jax.jit
    def value(p):
        layer = make_layer(A=p["A"], B=p["B"], V=p["v"] * jnp.eye(3) + bend)
        return jnp.sum(W * (bernoulli(layer) if guess is None else newton_covariance(layer, guess)))

    slope = jax.grad(value)(p)
    for seed, name in enumerate(p):
        e = oracles.general(*p[name].shape, seed=10 + seed) if p[name].ndim else 1.0
        expected = oracles.derivative(lambda s, name=name, e=e: float(value({**p, name: p[name] + s * e})), 0.0)
        np.testing.assert_allclose(np.sum(np.asarray(slope[name]) * e), expected, rtol=1e-7)


def test_the_equilibrium_derivative_is_the_limit_of_the_closed_form():
    """d/dA of Σ(t) at t = 40 by the Riccati form is d/dA of Σ∞."""
    A, B = jnp.asarray(growing_only(3, 1)), positive(3, 2)
    W = jnp.asarray(oracles.general(3, 3, seed=4))

    def limit(A):
        return jnp.sum(W * bernoulli(make_layer(A=A, B=B, V=-0.8 * jnp.eye(3))))

    def late(A):
        return jnp.sum(
            W * riccati(make_layer(A=A, B=B, V=-0.8 * jnp.eye(3)), gaussian(np.eye(3)), 40.0, substeps=64).covariance
        )

    np.testing.assert_allclose(jax.grad(late)(A), jax.grad(limit)(A), atol=1e-9)


def test_refusals():
    turning = [[0.0, 1.0], [-1.0, 0.0]]
    with pytest.raises(InputError, match="imaginary axis"):
        equilibrium(make_layer(A=turning, B=np.eye(2), V=-np.eye(2)))
    with pytest.raises(InputError, match="does not hold back"):
        equilibrium(make_layer(A=np.eye(2), B=np.eye(2), V=np.eye(2)))
    with pytest.raises(InputError, match="must be zero"):
        held_covariance(make_layer(A=np.eye(2), B=np.eye(2), V=-np.eye(2)), gaussian(np.eye(2)))
    with pytest.raises(InputError, match="positive direction"):
        held_covariance(make_layer(B=np.eye(2), V=np.eye(2)), gaussian(np.eye(2)))
    with pytest.raises(InputError, match="is needed"):
        equilibrium(make_layer(B=np.eye(2), V=np.diag([-1.0, -2.0])))
    with pytest.raises(InputError, match="wrong shape"):
        tune_mean(make_layer(A=np.eye(2), B=np.eye(2), V=-np.eye(2)), jnp.ones(3))
    with pytest.raises(NumericalError, match="does not reach"):
        equilibrium(make_layer(A=np.eye(2), B=np.eye(2), V=np.diag([1.0, 2.0])), gaussian(np.eye(2)))
