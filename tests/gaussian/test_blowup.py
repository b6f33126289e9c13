"""Blow-up times: which way they are found, the bounds around them, and the commuting closed form."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, MomentFlow, blowup_bounds, blowup_time, commuting, scalar_blowup_time
from jaxflow.solve import Dopri8
from jaxflow.weights import Constant, make_layer


def gaussian(L, mean=None):
    return Gaussian(jnp.zeros(len(L)) if mean is None else jnp.asarray(mean), jnp.asarray(L))


def positive(d, seed):
    M = oracles.general(d, d, seed=seed)
    return M @ M.T / d + 0.3 * np.eye(d)


Q = oracles.rotation(3)


def spectral(values):
    return Q @ np.diag(values) @ Q.T


def test_ways_agree_where_several_apply():
    """V = vI, A, B, Σ₀ diagonal in one basis: scalar by scalar, by det X, and by the event of the ODE."""
    a, b, l0 = np.array([0.3, -0.4, 0.1]), np.array([0.5, 0.8, 0.4]), np.array([0.5, 1.0, 0.3])
    layer = make_layer(A=spectral(a), B=spectral(b), V=1.1 * np.eye(3))
    start = gaussian(Q * np.sqrt(l0))
    exact = float(jnp.min(scalar_blowup_time(jnp.asarray(a), jnp.asarray(1.1 * b), jnp.asarray(l0))))
    found = blowup_time(layer, start)
    assert found.how == "commuting"
    np.testing.assert_allclose(found.time, exact, rtol=1e-12)
    # A rotation of the start breaks the commuting, a shear of V the Riccati form; as they vanish, all times agree.
    turned = blowup_time(layer, gaussian(oracles.rotation(3, seed=5) @ np.diag(np.sqrt(l0))))
    assert turned.how == "riccati"
    shear = np.zeros((3, 3))
    shear[0, 1] = 1e-9
    bent = blowup_time(make_layer(A=spectral(a), B=spectral(b), V=1.1 * np.eye(3) + shear), start, horizon=5.0)
    assert bent.how == "ode"
    np.testing.assert_allclose(bent.time, exact, rtol=1e-7)


def test_event_time_equals_the_closed_form_to_1e_8():
    A, B, L = oracles.general(3, 3, scale=0.5, seed=1), positive(3, 2), oracles.general(3, 3, scale=0.6, seed=3)
    exact = blowup_time(make_layer(A=A, B=B, V=0.7 * np.eye(3)), gaussian(L))
    flow = MomentFlow(Constant(A=A, B=B, V=0.7 * np.eye(3)))
    event = run(flow, gaussian(L), t1=5.0, method=Dopri8(), rtol=1e-12, atol=1e-13)
    assert exact.how == "riccati"
    assert event.outcome == "blow_up"
    np.testing.assert_allclose(event.t_end, exact.time, rtol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_for_definite_values(seed):
    """lower ≤ t* ≤ upper for V and B definite of one sign, with and without A."""
    A = oracles.general(3, 3, scale=0.3 * (seed % 3), seed=seed)
    sign = 1 if seed % 2 else -1
    layer = make_layer(A=A, B=sign * positive(3, seed + 10), V=sign * positive(3, seed + 20))
    found = blowup_time(layer, gaussian(oracles.general(3, 3, scale=0.8, seed=seed + 30)), horizon=20.0)
    assert found.how == "ode"
    assert found.lower <= found.time <= found.upper
    assert np.isfinite(found.lower)


def test_bounds_without_feed_forward_are_those_of_the_paper():
    V, B, L = positive(3, 1), positive(3, 2), oracles.general(3, 3, seed=3)
    lower, upper = blowup_bounds(make_layer(B=B, V=V), gaussian(L))
    Sigma = L @ L.T
    top = np.linalg.norm(V, 2) * np.linalg.norm(B, 2) * np.linalg.eigvalsh(Sigma)[-1]
    np.testing.assert_allclose(lower, 1 / (2 * top), rtol=1e-12)
    b, v = np.linalg.eigvalsh(B)[0], np.linalg.eigvalsh(V)[0]
    np.testing.assert_allclose(upper, 3 / (2 * b * v**2 * np.trace(np.linalg.inv(V) @ Sigma)), rtol=1e-12)


def test_bounds_meet_in_one_dimension():
    layer, start = make_layer(A=[[0.3]], B=[[-2.0]], V=[[-0.5]]), gaussian([[np.sqrt(0.5)]])
    np.testing.assert_allclose(blowup_bounds(layer, start), 2 * [0.7833393820762261], rtol=1e-13)


def test_opposite_signs_have_no_upper_bound_and_no_blow_up():
    layer = make_layer(A=oracles.general(3, 3, scale=0.3, seed=1), B=positive(3, 2), V=-positive(3, 3))
    found = blowup_time(layer, gaussian(np.eye(3)), horizon=10.0)
    assert found.time == np.inf
    assert found.upper == np.inf
    assert found.how == "ode"


@pytest.mark.parametrize("rank", [3, 2])
def test_commuting_moments_equal_the_flow(rank):
    a, v, b, l0 = ([0.3, -0.4, 0.0], [1.0, -0.7, 0.5], [0.5, 0.8, -1.0], [0.5, 1.0, 0.3])
    start = gaussian((Q * np.sqrt(l0))[:, :rank], mean=[1.0, -2.0, 0.5])
    layers = {"A": spectral(a), "B": spectral(b), "V": spectral(v)}
    end = run(MomentFlow(Constant(**layers)), start, t1=0.6, method=Dopri8(), rtol=1e-13, atol=1e-13).final
    found = commuting(make_layer(**layers), start, 0.6)
    assert found.rank == rank
    np.testing.assert_allclose(found.covariance, end.covariance, atol=1e-12)
    np.testing.assert_allclose(found.mean, end.mean, atol=1e-11)


def test_what_does_not_commute_is_refused():
    with pytest.raises(InputError, match="symmetric and commuting"):
        commuting(make_layer(A=oracles.general(3, 3), B=np.eye(3), V=np.eye(3)), gaussian(np.eye(3)), 1.0)
    with pytest.raises(InputError, match=r"layer\.b"):
        commuting(make_layer(A=np.eye(3), b=np.ones(3)), gaussian(np.eye(3)), 1.0)
    with pytest.raises(InputError, match="horizon"):
        blowup_time(make_layer(A=np.eye(3)), gaussian(np.eye(3)), horizon=-1.0)
