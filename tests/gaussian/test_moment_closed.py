"""Closed forms of the moment flow: the linear flow, the scalar Riccati equation, and its blow-up."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from jaxflow.gaussian import Gaussian, MomentFlow, linear, scalar_blowup_time, scalar_variance
from jaxflow.solve import Dopri8
from jaxflow.weights import Constant

TIGHT = {"method": Dopri8(), "rtol": 1e-13, "atol": 1e-13}

A, b = oracles.general(3, 3, seed=1), oracles.general(3, seed=2)


@pytest.mark.parametrize("rank", [3, 2])
def test_without_attention_the_flow_is_the_matrix_exponential(rank):
    """Σ(t) = e^{At}Σ₀e^{Aᵀt}, μ(t) = e^{At}μ₀ + A^{-1}(e^{At} − I)b."""
    mean, L, t = oracles.general(3, seed=3), oracles.general(3, rank, seed=4), 1.3
    start = Gaussian(jnp.asarray(mean), jnp.asarray(L))
    E = expm(A * t)
    expected_mean = E @ mean + np.linalg.solve(A, (E - np.eye(3)) @ b)
    by_form = linear(start, jnp.asarray(A), jnp.asarray(b), t)
    by_ode = run(MomentFlow(Constant(A=A, b=b)), start, t1=t, **TIGHT).final
    for found in (by_form, by_ode):
        np.testing.assert_allclose(found.mean, expected_mean, atol=1e-10)
        np.testing.assert_allclose(found.covariance, E @ L @ L.T @ E.T, atol=1e-10)


def test_the_linear_form_also_holds_for_singular_a():
    nilpotent = jnp.asarray([[0.0, 1.0], [0.0, 0.0]])
    end = linear(Gaussian(jnp.asarray([1.0, 2.0]), jnp.eye(2)), nilpotent, jnp.asarray([3.0, 4.0]), 0.5)
    np.testing.assert_allclose(end.mean, [1 + 0.5 * 2 + 0.5 * 3 + 0.125 * 4, 2 + 0.5 * 4], atol=1e-15)
    np.testing.assert_allclose(end.factor, [[1.0, 0.5], [0.0, 1.0]], atol=1e-15)


@pytest.mark.parametrize(
    ("a", "c", "l0", "expected"),
    [
        (0.3, 1.0, 0.5, 0.7833393820762261),
        (0.0, 1.0, 0.5, 1.0),
        (1e-9, 1.0, 0.5, 1.0 - 1e-9),
        (-0.3, 1.0, 0.5, np.log(0.4) / -0.6),
        (2.0, 0.5, 3.0, np.log(1 + 2 / 1.5) / 4),
        (-0.5, 1.0, 0.5, np.inf),
        (-1.0, 1.0, 0.5, np.inf),
        (0.3, -1.0, 0.5, np.inf),
        (0.3, 0.0, 0.5, np.inf),
    ],
)
def test_scalar_blow_up_time(a, c, l0, expected):
    np.testing.assert_allclose(scalar_blowup_time(a, c, l0), expected, rtol=1e-13)


def test_branches_of_the_blow_up_time_meet():
    a = jnp.linspace(-3e-5, 3e-5, 13)
    np.testing.assert_allclose(scalar_blowup_time(a, 1.0, 0.5), 1 - a + 4 * a**2 / 3, atol=1e-12)
    slope = jax.vmap(jax.grad(scalar_blowup_time), (0, None, None))(a, 1.0, 0.5)
    np.testing.assert_allclose(slope, -1 + 8 * a / 3, atol=1e-7)


@pytest.mark.parametrize(("a", "c", "l0"), [(0.3, 1.0, 0.5), (0.0, 1.0, 0.5), (-0.3, 1.0, 0.5), (2.0, 0.5, 3.0)])
def test_scalar_blow_up_time_by_the_ode(a, c, l0):
    """B and V share c between them, and V acts on the left: c = vb."""
    flow = MomentFlow(Constant(A=[[a]], B=[[-2 * c]], V=[[-0.5]]))
    start = Gaussian(jnp.ones(1), jnp.asarray([[np.sqrt(l0)]]))
    sol = run(flow, start, t1=4.0, **TIGHT)
    assert sol.outcome == "blow_up"
    np.testing.assert_allclose(sol.t_end, scalar_blowup_time(a, c, l0), rtol=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(0.1, 2), st.floats(0.05, 0.9))
def test_scalar_variance_solves_its_riccati_equation(a, c, l0, share):
    t = share * min(1.0, float(scalar_blowup_time(a, c, l0)))
    end = solve_ivp(lambda t, l: 2 * a * l + 2 * c * l**2, (0, t), [l0], method="DOP853", rtol=1e-12, atol=1e-14).y
    np.testing.assert_allclose(scalar_variance(a, c, l0, t), end[0, -1], rtol=1e-9)


def test_scalar_variance_is_smooth_through_a_equal_zero():
    np.testing.assert_allclose(scalar_variance(0.0, 1.0, 0.5, 0.3), 0.5 / (1 - 0.3), rtol=1e-15)
    a = jnp.linspace(-1e-4, 1e-4, 21)
    exact = oracles.derivative(lambda x: scalar_variance(x, 1.0, 0.5, 0.3), 0.0, step=1e-2)
    slope = jax.vmap(jax.grad(lambda x: scalar_variance(x, 1.0, 0.5, 0.3)))(a)
    np.testing.assert_allclose(slope, exact, rtol=1e-3)
    np.testing.assert_allclose(slope[10], exact, rtol=1e-8)


def test_commuting_layers_decouple_into_scalars():
    """A, B, V diagonal in one basis: each eigenvalue of Σ obeys its own Riccati equation."""
    Q = oracles.rotation(3)
    a, v, beta, l0 = (
        np.array([0.3, -0.4, 0.0]),
        np.array([1.0, -0.7, 0.5]),
        np.array([0.5, 0.8, -1.0]),
        np.array([0.5, 1.0, 0.3]),
    )
    a_, v_, beta_ = (jnp.asarray(Q @ np.diag(x) @ Q.T) for x in (a, v, beta))
    start = Gaussian(jnp.zeros(3), jnp.asarray(Q * np.sqrt(l0)))
    end = run(MomentFlow(Constant(A=a_, B=beta_, V=v_)), start, t1=0.6, **TIGHT).final
    l = scalar_variance(jnp.asarray(a), jnp.asarray(v * beta), jnp.asarray(l0), 0.6)
    np.testing.assert_allclose(end.covariance, (Q * np.asarray(l)) @ Q.T, atol=1e-10)


def test_the_riccati_link_for_v_a_multiple_of_the_identity():
    """V = vI: Σ = YX^{-1} with [X;Y]' = [[−Aᵀ, −2vB_s],[0, A]][X;Y], X(0) = I, Y(0) = Σ₀."""
    v, B = 0.4, oracles.general(3, 3, scale=0.4, seed=5)
    L, t = oracles.general(3, 2, scale=0.6, seed=6), 0.4
    M = np.block([[-A.T, -v * (B + B.T)], [np.zeros((3, 3)), A]])
    XY = expm(M * t) @ np.vstack([np.eye(3), L @ L.T])
    end = run(MomentFlow(Constant(A=A, B=B, V=v * np.eye(3))), Gaussian(jnp.zeros(3), jnp.asarray(L)), t1=t, **TIGHT)
    np.testing.assert_allclose(end.final.covariance, XY[3:] @ np.linalg.inv(XY[:3]), atol=1e-10)
