"""The moment flow against an independent integration of (1.1) in its Σ form, and against real tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.gaussian import Gaussian, MomentFlow, moments
from jaxflow.geometry import Euclidean
from jaxflow.measures import gauss_hermite
from jaxflow.particles import AttentionFlow
from jaxflow.solve import Dopri8
from jaxflow.weights import Constant, Function, Oscillating, Piecewise, make_layer

TIGHT = {"method": Dopri8(), "rtol": 1e-12, "atol": 1e-12}
A, b = oracles.general(3, 3, scale=0.4, seed=1), oracles.general(3, scale=0.5, seed=2)
B, V = oracles.general(2, 3, 3, scale=0.4, seed=3), oracles.general(2, 3, 3, scale=0.4, seed=4)
MASS = np.array([0.7, 1.6])
D0 = oracles.symmetric(2, 3, scale=0.4, seed=5)
MEAN = np.array([0.5, -1.0, 0.3])
TIMES = [0.4, 0.7, 1.0]
LAYERED = {
    "A": oracles.general(3, 3, 3, scale=0.6, seed=7),
    "b": oracles.general(3, 3, seed=8),
    "B": oracles.general(3, 2, 3, 3, scale=0.3, seed=9),
    "V": oracles.general(3, 2, 3, 3, scale=0.3, seed=10),
}
EDGES = (0.0, 0.3, 0.5, 1.0)


def swinging(t):
    return make_layer(A=jnp.cos(3 * t) * A, b=b, B=jnp.asarray(B), V=(1 + t) * jnp.asarray(V), mass=jnp.asarray(MASS))


def heads(mass, B, V):
    return list(zip(mass, B, V))


def oscillating(t):
    D = np.asarray(OSCILLATING.at(t).B)
    return np.zeros((3, 3)), np.zeros(3), heads([-0.5, -0.5], D, D)


def layered(t):
    i = int(np.searchsorted(EDGES[1:-1], t, side="right"))
    return LAYERED["A"][i], LAYERED["b"][i], heads([1, 1], LAYERED["B"][i], LAYERED["V"][i])


OSCILLATING = Oscillating(initial=D0, phase="spread")
CASES = {
    "constant": (
        MomentFlow(Constant(A=A, b=b, B=B, V=V, mass=MASS)),
        lambda t: (A, b, heads(MASS, B, V)),
        (),
    ),
    "function": (
        MomentFlow(Function(swinging)),
        lambda t: (np.cos(3 * t) * A, b, heads(MASS, B, (1 + t) * V)),
        (),
    ),
    "layers": (MomentFlow(Piecewise(**LAYERED, durations=[0.3, 0.2, 0.5])), layered, EDGES),
    "oscillating": (MomentFlow(OSCILLATING, direction="descend"), oscillating, ()),
}


@pytest.mark.parametrize("rank", [3, 1])
@pytest.mark.parametrize("case", CASES)
def test_multi_head_moments_against_an_integration_of_the_sigma_form(case, rank):
    flow, layer_at, edges = CASES[case]
    L = oracles.general(3, rank, scale=0.6, seed=20)
    start = Gaussian(jnp.asarray(MEAN), jnp.asarray(L))
    expected = oracles.moments(MEAN, L @ L.T, layer_at, TIMES, edges=edges)
    sol = run(flow, start, t1=1.0, dt=2e-3, save_at=TIMES)
    assert sol.outcome == "done"
    for i, (mean, covariance) in enumerate(expected):
        np.testing.assert_allclose(sol.states.mean[i], mean, atol=2e-10)
        np.testing.assert_allclose(sol.states.covariance[i], covariance, atol=2e-10)
    assert sol.states.factor.shape == (3, 3, rank)
    assert all(np.linalg.matrix_rank(L) == rank for L in np.asarray(sol.states.factor))


@pytest.mark.parametrize("rank", [2, 1])
def test_gauss_hermite_tokens_follow_the_moments(rank):
    """Weighted tokens at 12 × 12 quadrature nodes, moved by attention itself, have the moments of (1.1)."""
    c = np.sqrt(0.3)
    weights = Constant(A=0.3 * A[:2, :2], b=b[:2], B=0.5 * B[:, :2, :2], V=0.5 * V[:, :2, :2], mass=MASS)
    start = Gaussian(jnp.asarray([0.3, -0.5]), jnp.asarray(c * (np.eye(2) + 0.3 * A[:2, :2])[:, :rank]))
    options = {"t1": 1.0, "dt": 0.02}
    exact = run(MomentFlow(weights), start, **options).final
    tokens = run(AttentionFlow(weights, geometry=Euclidean()), gauss_hermite(start, nodes=12), **options).final
    np.testing.assert_allclose(tokens.mean, exact.mean, atol=1e-9)
    np.testing.assert_allclose(tokens.covariance, exact.covariance, atol=1e-9)


def test_the_report_of_a_moment_run():
    """log det Σ_t − log det Σ₀ = 2∫tr K; κ_eff = max_h ‖LᵀB_hL‖₂; eigenvalues ascending."""
    flow, _, _ = CASES["constant"]
    start = Gaussian(jnp.asarray(MEAN), jnp.asarray(oracles.general(3, 3, scale=0.6, seed=20)))
    sol = run(flow, start, t1=1.0, dt=2e-3, save_at=[0.0, *TIMES], observe=moments)
    r = sol.observables
    log_det = np.linalg.slogdet(np.asarray(r.covariance))[1]
    np.testing.assert_allclose(r.log_det_growth, log_det - log_det[0], atol=1e-9)
    np.testing.assert_allclose(r.covariance, sol.states.covariance, atol=1e-15)
    np.testing.assert_allclose(r.eigenvalues, np.linalg.eigvalsh(np.asarray(r.covariance)), atol=1e-14)
    for i, L in enumerate(np.asarray(sol.states.factor)):
        np.testing.assert_allclose(r.kappa[i], max(np.linalg.norm(L.T @ Bh @ L, 2) for Bh in B), rtol=1e-13)
    np.testing.assert_array_equal(r.rank, 3)


def test_equal_heads_are_one_head():
    one = MomentFlow(Constant(D=D0[0]), direction="ascend")
    three = MomentFlow(Constant(D=np.stack([D0[0]] * 3)), direction="ascend")
    free = MomentFlow(Constant(B=D0[0], V=D0[0]))
    start = Gaussian(jnp.asarray(MEAN), 0.6 * jnp.eye(3))
    a, b, c = (run(flow, start, t1=1.0, dt=0.1).final for flow in (one, three, free))
    np.testing.assert_allclose(a.factor, b.factor, atol=1e-14)
    np.testing.assert_allclose(a.factor, c.factor, atol=1e-14)
    down = run(MomentFlow(Constant(D=D0[0]), direction="descend"), start, t1=1.0, dt=0.1).final
    other = run(MomentFlow(Constant(B=D0[0], V=-D0[0])), start, t1=1.0, dt=0.1).final
    np.testing.assert_allclose(down.mean, other.mean, atol=1e-14)


def test_moments_turn_with_the_space():
    """x → Qx takes (A, b, B, V) to (QAQᵀ, Qb, QBQᵀ, QVQᵀ); turning the factor's columns changes nothing."""
    Q = oracles.rotation(3)
    L = oracles.general(3, 2, scale=0.6, seed=21)
    turned = MomentFlow(Constant(A=Q @ A @ Q.T, b=Q @ b, B=Q @ B @ Q.T, V=Q @ V @ Q.T, mass=MASS))
    a = run(CASES["constant"][0], Gaussian(jnp.asarray(MEAN), jnp.asarray(L)), t1=1.0, dt=0.1).final
    c = run(turned, Gaussian(jnp.asarray(Q @ MEAN), jnp.asarray(Q @ L @ oracles.rotation(2))), t1=1.0, dt=0.1).final
    np.testing.assert_allclose(Q @ a.mean, c.mean, atol=1e-13)
    np.testing.assert_allclose(Q @ a.covariance @ Q.T, c.covariance, atol=1e-13)


def test_float32_stays_float32():
    single = jax.tree.map(
        lambda x: x.astype(jnp.float32), (CASES["constant"][0], Gaussian(jnp.asarray(MEAN), jnp.eye(3)))
    )
    sol = run(*single, t1=0.5, dt=0.1, observe=moments, save_every=2)
    kinds = {x.dtype for x in jax.tree.leaves(sol) if jnp.issubdtype(x.dtype, jnp.floating)}
    assert kinds == {jnp.dtype(jnp.float32)}
