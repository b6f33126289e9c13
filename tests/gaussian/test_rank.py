"""Rank is invariant: exactly in factor form, to the size of the tolerance in Σ form; any rank up to d = 256."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm

from jaxflow.gaussian import Gaussian, MomentFlow, kappa_eff, moments, propagator, riccati
from jaxflow.solve import RK4, Dopri8, Kvaerno5
from jaxflow.weights import Constant, make_layer


def test_the_factor_form_keeps_the_rank_where_the_covariance_form_loses_it():
    """Rank 2 in d = 5, tolerance 1e-6: eigenvalues that should be zero are zero to rounding in factor form; integrating
    Σ itself at the same tolerance makes them as large as the tolerance, some of them negative."""
    d, r, tolerance = 5, 2, 1e-6
    A, B = (oracles.general(d, d, scale=0.5, seed=k) for k in (1, 2))
    V = -np.eye(d) + oracles.general(d, d, scale=0.1, seed=3)
    B, L = B @ B.T, oracles.general(d, r, scale=0.6, seed=4)

    def right(t, z):
        Sigma = z.reshape(d, d)
        K = A + V @ Sigma @ B
        return (K @ Sigma + Sigma @ K.T).ravel()

    drifted = solve_ivp(right, (0, 1), (L @ L.T).ravel(), method="RK45", rtol=tolerance, atol=tolerance).y[:, -1]
    drifted = np.linalg.eigvalsh(drifted.reshape(d, d) + drifted.reshape(d, d).T) / 2
    flow = MomentFlow(Constant(A=A, B=B, V=V))
    kept = run(flow, Gaussian(jnp.zeros(d), jnp.asarray(L)), t1=1.0, rtol=tolerance, atol=tolerance).final.covariance
    kept = np.linalg.eigvalsh(kept)
    assert np.abs(kept[:3]).max() < 1e-14 * kept[-1]
    assert np.abs(drifted[:3]).max() > 1e-8 * drifted[-1]
    np.testing.assert_allclose(kept[3:], drifted[3:], rtol=1e-3)


@pytest.mark.parametrize(("d", "r"), [(64, 1), (64, 64), (256, 1), (256, 256)])
def test_large_dimensions_by_the_flow_and_in_closed_form(d, r):
    A = 0.4 * oracles.general(d, d, seed=1) / np.sqrt(d)
    K = oracles.general(d, d, seed=2) / np.sqrt(d)
    B = K @ K.T + 0.2 * np.eye(d)
    start = Gaussian(jnp.asarray(oracles.general(d, seed=3)), jnp.asarray(oracles.general(d, r, seed=4) / np.sqrt(r)))
    flow = MomentFlow(Constant(A=A, B=B, V=-0.6 * np.eye(d)))
    sol = run(flow, start, t1=0.5, method=Dopri8(), rtol=1e-11, atol=1e-12, observe=moments)
    exact = riccati(make_layer(A=A, B=B, V=-0.6 * np.eye(d)), start, 0.5, substeps=1).covariance
    np.testing.assert_allclose(sol.final.covariance, exact, atol=1e-10)
    assert sol.observables.rank.tolist() == [r, r]
    kappa = np.linalg.norm(start.factor.T @ B @ start.factor, 2)
    np.testing.assert_allclose(sol.observables.kappa[0], kappa, rtol=1e-12)


def test_log_det_by_its_own_equation():
    """log det Σ_t = log det Σ₀ + 2∫tr K, an augmented component, against the determinant."""
    A, B = (oracles.general(3, 3, scale=0.5, seed=k) for k in (1, 2))
    B, V = B @ B.T, -np.eye(3) + oracles.general(3, 3, scale=0.1, seed=3)
    start = Gaussian(jnp.zeros(3), jnp.asarray(oracles.general(3, 3, scale=0.5, seed=4)))
    sol = run(MomentFlow(Constant(A=A, B=B, V=V)), start, t1=1.0, rtol=1e-12, atol=1e-12, observe=moments)
    assert sol.outcome == "done"
    expected = np.linalg.slogdet(sol.final.covariance)[1] - np.linalg.slogdet(start.covariance)[1]
    np.testing.assert_allclose(sol.observables.log_det_growth[-1], expected, atol=1e-10)


@pytest.mark.parametrize("rank", [3, 2])
def test_the_propagator_solves_its_equation(rank):
    """Ġ = KG, G(0) = I, by DOP853 along with Σ = GΣ₀Gᵀ; at deficient rank on the range of Σ₀."""
    A, B = (oracles.general(3, 3, scale=0.5, seed=k) for k in (1, 2))
    B, V = B @ B.T, -np.eye(3) + oracles.general(3, 3, scale=0.1, seed=3)
    L = oracles.general(3, rank, scale=0.5, seed=4)
    start = Gaussian(jnp.ones(3), jnp.asarray(L))
    end = run(MomentFlow(Constant(A=A, B=B, V=V)), start, t1=1.0, rtol=1e-12, atol=1e-12).final

    def right(t, z):
        G = z.reshape(3, 3)
        return ((A + V @ G @ L @ L.T @ G.T @ B) @ G).ravel()

    G = solve_ivp(right, (0, 1), np.eye(3).ravel(), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1].reshape(3, 3)
    found = propagator(start, end)
    np.testing.assert_allclose(found @ L, G @ L, atol=1e-10)
    np.testing.assert_allclose(found @ L @ L.T @ found.T, end.covariance, atol=1e-12)
    if rank == 3:
        np.testing.assert_allclose(found, G, atol=1e-9)


def test_kappa_eff_is_the_norm_of_the_symmetric_form():
    """max_h ‖Σ^½B_hΣ^½‖₂ by SciPy's square root; zero without heads."""
    B, L = oracles.general(2, 3, 3, seed=5), oracles.general(3, 3, seed=6)
    root = np.real(sqrtm(L @ L.T))
    state = Gaussian(jnp.zeros(3), jnp.asarray(L))
    expected = max(np.linalg.norm(root @ M @ root, 2) for M in B)
    np.testing.assert_allclose(kappa_eff(make_layer(B=B, V=B), state), expected, rtol=1e-10)
    assert kappa_eff(make_layer(A=np.eye(3)), state) == 0


@pytest.mark.parametrize(
    "numerics", [{"method": Kvaerno5(), "rtol": 1e-9, "atol": 1e-11}, {"method": RK4(), "dt": 2e-4}]
)
def test_stiff_and_fixed_step_methods_reach_the_closed_form(numerics):
    """Decay rates 2000 and 0.5 side by side."""
    A = np.array([[-2e3, 30.0, 0.0], [0.0, 0.5, 0.2], [0.0, -0.1, -0.5]])
    start = Gaussian(jnp.ones(3), jnp.asarray(oracles.general(3, 3, scale=0.5, seed=4)))
    layers = {"A": A, "B": np.eye(3), "V": -0.7 * np.eye(3)}
    sol = run(MomentFlow(Constant(**layers)), start, t1=0.4, **numerics)
    exact = riccati(make_layer(**layers), start, 0.4, substeps=256).covariance
    np.testing.assert_allclose(sol.final.covariance, exact, atol=1e-7)
