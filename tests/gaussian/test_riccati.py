"""V = vI: the covariance by one matrix exponential, against the ODE, SciPy's exponential, and its own derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.linalg import expm

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, MomentFlow, riccati, riccati_blowup_time, scalar_blowup_time
from jaxflow.solve import Dopri8
from jaxflow.weights import Constant, make_layer

TIGHT = {"method": Dopri8(), "rtol": 1e-13, "atol": 1e-13}

A = oracles.general(3, 3, scale=0.5, seed=1)
B = oracles.general(2, 3, 3, scale=0.5, seed=2)
v = np.array([-0.8, 0.3])
MASS = np.array([1.2, 0.5])
V = v[:, None, None] * np.eye(3)


time_of = eqx.filter_jit(riccati_blowup_time)


def gaussian(L):
    return Gaussian(jnp.zeros(len(L)), jnp.asarray(L))


@pytest.mark.parametrize("rank", [3, 2, 1])
def test_closed_form_equals_the_flow_for_any_rank_and_two_heads(rank):
    start = gaussian(oracles.general(3, rank, scale=0.7, seed=3))
    end = run(MomentFlow(Constant(A=A, B=B, V=V, mass=MASS)), start, t1=1.5, **TIGHT).final
    found = riccati(make_layer(A=A, B=B, V=V, mass=MASS), start, 1.5)
    assert bool(found.valid)
    np.testing.assert_allclose(found.covariance, end.covariance, atol=1e-10)


def test_closed_form_equals_y_x_inverse():
    """[X;Y]' = [[−Aᵀ, −2G],[0, A]][X;Y], X(0) = I, Y(0) = Σ₀: Σ = YX^{-1}, as SCIENCE writes it."""
    L = oracles.general(3, 3, scale=0.6, seed=4)
    G = sum(c * w * (M + M.T) / 2 for c, w, M in zip(MASS, v, B))
    XY = expm(0.9 * np.block([[-A.T, -2 * G], [np.zeros((3, 3)), A]])) @ np.vstack([np.eye(3), L @ L.T])
    found = riccati(make_layer(A=A, B=B, V=V, mass=MASS), gaussian(L), 0.9, substeps=1)
    np.testing.assert_allclose(found.covariance, XY[3:] @ np.linalg.inv(XY[:3]), atol=1e-12)


def test_long_times_lose_no_digits():
    """Forty units of time, eigenvalues of A near ±1: e^{2·40} in the exponential, and Σ at its equilibrium."""
    D = np.diag([1.0, -1.2, 0.8]) + np.triu(oracles.general(3, 3, scale=0.3, seed=5), 1)
    layer = make_layer(A=D, B=np.eye(3), V=-np.eye(3))
    S = riccati(layer, gaussian(np.eye(3)), 40.0, substeps=64).covariance
    np.testing.assert_allclose(D @ S + S @ D.T, 2 * S @ S, atol=1e-12)
    assert np.linalg.eigvalsh(S)[1] > 0.1


@pytest.mark.parametrize(("d", "rank"), [(64, 1), (64, 64), (256, 1), (256, 7), (256, 256)])
def test_large_dimensions_solve_their_equation(d, rank):
    """Σ̇ = AΣ + ΣAᵀ + 2ΣGΣ by a central difference in t: at d = 256 an independent integrator would take minutes."""
    M = oracles.general(d, d, seed=6) / np.sqrt(d)
    K = oracles.general(d, d, seed=7) / np.sqrt(d)
    B = K @ K.T + 0.3 * M
    layer = make_layer(A=0.5 * M, B=B, V=-0.7 * np.eye(d))
    start = gaussian(oracles.general(d, rank, seed=8) / np.sqrt(rank))
    assert bool(riccati(layer, start, 0.81, substeps=2).valid)
    S, h = jax.jit(lambda t: riccati(layer, start, t, substeps=2).covariance), 1e-3
    G = -0.7 * (B + B.T) / 2
    now = np.asarray(S(0.8))
    slope = oracles.derivative(lambda t: np.asarray(S(t)), 0.8, step=h)
    expected = 0.5 * (M @ now + now @ M.T) + 2 * now @ G @ now
    np.testing.assert_allclose(slope, expected, atol=1e-8 * np.abs(expected).max())
    assert np.linalg.matrix_rank(now, tol=1e-10) == rank


def test_beyond_the_blow_up_says_so_and_stays_finite():
    layer, start = make_layer(A=[[0.3]], B=[[1.0]], V=[[1.0]]), gaussian([[np.sqrt(0.5)]])
    before, after = (riccati(layer, start, t) for t in (0.78, 2.0))
    assert bool(before.valid)
    assert not bool(after.valid)
    assert np.isfinite(after.factor).all()
    slope = jax.grad(lambda t: riccati(layer, start, t).factor.sum())(2.0)
    assert np.isfinite(slope)


@pytest.mark.parametrize("seed", range(8))
def test_blow_up_time_is_where_det_x_first_vanishes(seed):
    """Golden in d = 1; else: X singular there, and positive definite M = I − L₀ᵀWL₀ on a fine grid before."""
    A = oracles.general(3, 3, scale=0.6, seed=seed)
    B = oracles.general(3, 3, scale=0.8, seed=100 + seed)
    L = oracles.general(3, 3 if seed % 2 else 2, scale=0.9, seed=200 + seed)
    t = float(time_of(make_layer(A=A, B=B, V=0.9 * np.eye(3)), gaussian(L), horizon=5.0))
    generator = np.block([[-A.T, -0.9 * (B + B.T)], [np.zeros((3, 3)), A]])

    def det_x(t):
        return np.linalg.det((expm(generator * t) @ np.vstack([np.eye(3), L @ L.T]))[:3])

    grid = np.linspace(0, min(t, 5.0), 400)[:-1]
    assert all(det_x(s) > 0 for s in grid)
    if np.isfinite(t):
        slope = (det_x(t + 1e-6) - det_x(t - 1e-6)) / 2e-6
        assert abs(det_x(t) / slope) < 1e-8


def test_golden_blow_up_time():
    layer, start = make_layer(A=[[0.3]], B=[[1.0]], V=[[1.0]]), gaussian([[np.sqrt(0.5)]])
    np.testing.assert_allclose(riccati_blowup_time(layer, start), 0.7833393820762261, rtol=1e-13)
    for a in (-0.49, 0.0, 2.0):
        layer = make_layer(A=[[a]], B=[[2.0]], V=[[0.5]])
        np.testing.assert_allclose(time_of(layer, start), scalar_blowup_time(a, 1.0, 0.5), rtol=1e-11)


def test_no_blow_up_is_infinity_and_has_derivative_zero():
    layer, start = make_layer(A=-np.eye(2), B=0.1 * np.eye(2), V=np.eye(2)), gaussian(np.eye(2))

    def time(A):
        return riccati_blowup_time(make_layer(A=A, B=0.1 * np.eye(2), V=np.eye(2)), start, horizon=20.0)

    assert riccati_blowup_time(layer, start, horizon=20.0) == np.inf
    np.testing.assert_array_equal(jax.grad(time)(-jnp.eye(2)), 0)


def test_the_closed_form_and_the_flow_have_one_derivative():
    """d/dA, d/dB, d/dL of a function of Σ(1): closed form, ODE and central differences."""
    L = oracles.general(3, 3, scale=0.6, seed=11)
    one = {"A": A, "B": B[0], "L": L}
    W = jnp.asarray(oracles.general(3, 3, seed=12))

    def by_form(p):
        layer = make_layer(A=p["A"], B=p["B"], V=-0.8 * jnp.eye(3))
        return jnp.sum(W * riccati(layer, Gaussian(jnp.zeros(3), p["L"]), 1.0).covariance)

    def by_ode(p):
        flow = MomentFlow(Constant(A=p["A"], B=p["B"], V=-0.8 * jnp.eye(3)))
        return jnp.sum(W * run(flow, Gaussian(jnp.zeros(3), p["L"]), t1=1.0, **TIGHT).final.covariance)

    p = jax.tree.map(jnp.asarray, one)
    form, ode = jax.grad(by_form)(p), jax.grad(by_ode)(p)
    for seed, name in enumerate(one):
        np.testing.assert_allclose(form[name], ode[name], atol=1e-9)
        e = oracles.general(*one[name].shape, seed=20 + seed)
        slope = oracles.derivative(lambda s, name=name, e=e: float(by_form({**p, name: p[name] + s * e})), 0.0)
        np.testing.assert_allclose(np.sum(np.asarray(form[name]) * e), slope, rtol=1e-7)


def test_derivative_of_the_blow_up_time():
    L = oracles.general(3, 3, scale=0.7, seed=13)
    p = {"A": jnp.asarray(A), "B": jnp.asarray(B[0] @ B[0].T), "L": jnp.asarray(L)}

    @jax.jit
    def time(p):
        layer = make_layer(A=p["A"], B=p["B"], V=0.8 * jnp.eye(3))
        return riccati_blowup_time(layer, Gaussian(jnp.zeros(3), p["L"]), horizon=10.0)

    slope = jax.grad(time)(p)
    for seed, name in enumerate(p):
        e = oracles.general(*p[name].shape, seed=30 + seed)
        expected = oracles.derivative(
            lambda s, name=name, e=e: float(time({**p, name: p[name] + s * e})), 0.0, step=1e-3
        )
        np.testing.assert_allclose(np.sum(np.asarray(slope[name]) * e), expected, rtol=1e-6)


def test_other_values_are_refused():
    with pytest.raises(InputError, match="multiple of the identity"):
        riccati(make_layer(A=A, B=B[0], V=np.diag([1.0, 1.0, 1.1])), gaussian(np.eye(3)), 1.0)
    with pytest.raises(InputError, match="does not fit the layer"):
        riccati(make_layer(A=A, B=B, V=V), gaussian(np.eye(2)), 1.0)
