"""Ensembles on lanes: the same answers as one system at a time, in both layouts; blow-up, gradients, refusals."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.gaussian import Gaussian, MomentFlow, ensemble
from jaxflow.solve import Dopri8, Kvaerno5, Status, Tsit5, solve
from jaxflow.weights import Constant, Oscillating, Piecewise, make_layer

TIGHT = {"rtol": 1e-12, "atol": 1e-13}
compiled = eqx.filter_jit(ensemble)


def systems(N, d, r, h, *, k=None, seed=0):
    """Matrices of N systems (with k segments: (N, k, ...)) without symmetry, and their starts."""
    lead = (N,) if k is None else (N, k)
    matrices = {
        "A": oracles.general(*lead, d, d, scale=0.4 / np.sqrt(d), seed=seed),
        "b": oracles.general(*lead, d, scale=0.5, seed=seed + 1),
        "B": oracles.general(*lead, h, d, d, scale=0.3 / np.sqrt(d), seed=seed + 2),
        "V": oracles.general(*lead, h, d, d, scale=0.3 / np.sqrt(d), seed=seed + 3),
    }
    mean, L = oracles.general(N, d, seed=seed + 4), oracles.general(N, d, r, scale=0.7 / np.sqrt(r), seed=seed + 5)
    return matrices, Gaussian(jnp.asarray(mean), jnp.asarray(L))


@pytest.mark.parametrize(
    ("d", "r", "h", "block"), [(3, 3, 1, 4), (3, 2, 2, 3), (8, 1, 3, None), (9, 9, 2, 3), (9, 4, 1, None)]
)
def test_ensembles_equal_one_system_at_a_time(d, r, h, block):
    """Against DOP853 on (1.1): lanes last (d ≤ 8) and first, blocks that do and do not divide N."""
    N = 7
    matrices, starts = systems(N, d, r, h)
    found = compiled(make_layer(**matrices, lead=1), starts, t1=0.8, block=block, **TIGHT)
    assert bool(jnp.all(found.status == Status.done))
    for i in range(N):
        A, b, B, V = (matrices[name][i] for name in ("A", "b", "B", "V"))
        heads = [(1.0, B[k], V[k]) for k in range(h)]
        start = np.asarray(starts.mean[i]), np.asarray(starts.covariance[i])
        mean, covariance = oracles.moments(*start, lambda t, A=A, b=b, heads=heads: (A, b, heads), [0.8])[0]
        np.testing.assert_allclose(found.final.mean[i], mean, atol=1e-9)
        np.testing.assert_allclose(found.final.covariance[i], covariance, atol=1e-9)
        kappa = max(np.linalg.norm(found.final.factor[i].T @ B[k] @ found.final.factor[i], 2) for k in range(h))
        np.testing.assert_allclose(found.kappa[i], kappa, rtol=1e-10)


@pytest.mark.parametrize("window", [(0.0, 1.0), (0.3, 0.9)])
def test_piecewise_layers_and_tied_heads(window):
    t0, t1 = window
    N, d = 5, 3
    D = oracles.symmetric(N * 3 * 2, d, scale=0.4, seed=3).reshape(N, 3, 2, d, d)
    _, starts = systems(N, d, d, 1)
    flows = eqx.filter_vmap(lambda D: Piecewise(D=D, t1=1.0))(jnp.asarray(D))
    found = compiled(flows, starts, t0=t0, t1=t1, direction="ascend", **TIGHT)

    def one(D, start):
        return solve(MomentFlow(Piecewise(D=D, t1=1.0), "ascend"), start, t0=t0, t1=t1, method=Dopri8(), **TIGHT).final

    expected = jax.vmap(one)(jnp.asarray(D), starts)
    np.testing.assert_allclose(found.final.covariance, expected.covariance, atol=1e-10)
    np.testing.assert_allclose(found.final.mean, expected.mean, atol=1e-10)


@pytest.mark.parametrize("d", [1, 9])
def test_one_blow_up_does_not_disturb_the_others(d):
    """a = 0.3, c = 1, ℓ₀ = 0.5: golden time, in both layouts; its neighbours are as without it."""
    v = np.array([1.0, -1.0, 1.0, -0.5])[:, None, None] * np.eye(d)
    A = np.broadcast_to(0.3 * np.eye(d), (4, d, d))
    layers = make_layer(A=A, B=np.broadcast_to(np.eye(d), (4, d, d)), V=v, lead=1)
    L = np.sqrt([0.5, 0.5, 0.01, 0.5])[:, None, None] * np.eye(d)
    found = compiled(layers, Gaussian(jnp.ones((4, d)), jnp.asarray(L)), t1=2.0, rtol=1e-11, atol=1e-12)
    assert [bool(x) for x in found.status == Status.blow_up] == [True, False, False, False]
    np.testing.assert_allclose(found.t_end, [0.7833393820762261, 2, 2, 2], rtol=1e-9)
    assert np.isfinite(found.final.factor).all()
    growth = np.expm1(0.6 * 2.0) / 0.6
    l = (
        np.array([0.5, 0.01, 0.5])
        * np.exp(1.2)
        / (1 - 2 * np.array([-1, 1, -0.5]) * np.array([0.5, 0.01, 0.5]) * growth)
    )
    np.testing.assert_allclose(found.final.covariance[1:, 0, 0], l, rtol=1e-9)


def test_later_layers_leave_a_blown_up_system_alone():
    layers = eqx.filter_vmap(lambda V: Piecewise(A=0.3 * jnp.ones((2, 1, 1)), B=jnp.ones((2, 1, 1)), V=V, t1=2.0))
    found = compiled(
        layers(jnp.asarray([[[[1.0]], [[-1.0]]], [[[-1.0]], [[-1.0]]]])), _ones(2), t1=2.0, rtol=1e-11, atol=1e-12
    )
    assert [bool(x) for x in found.status == Status.blow_up] == [True, False]
    np.testing.assert_allclose(found.t_end, [0.7833393820762261, 2.0], rtol=1e-9)


def _ones(N):
    return Gaussian(jnp.ones((N, 1)), jnp.full((N, 1, 1), np.sqrt(0.5)))


def test_blow_up_in_float32():
    """Times resolve 1e-7 there; the estimate of the time left makes up for stopping earlier."""
    one = jnp.ones((1, 1, 1), jnp.float32)
    start = Gaussian(jnp.ones((1, 1), jnp.float32), jnp.sqrt(0.5 * one))
    found = compiled(make_layer(A=0.3 * one, B=one, V=one, lead=1), start, t1=2.0)
    alone = solve(MomentFlow(Constant(A=0.3 * one[0], B=one[0], V=one[0])), jax.tree.map(lambda x: x[0], start), t1=2.0)
    assert bool(jnp.all(found.status == Status.blow_up))
    assert alone.outcome == "blow_up"
    np.testing.assert_allclose([found.t_end[0], alone.t_end], 0.7833393820762261, rtol=2e-4)


def test_used_up_steps_are_said():
    matrices, starts = systems(3, 2, 2, 1)
    found = compiled(make_layer(**matrices, lead=1), starts, t1=5.0, max_steps=2, **TIGHT)
    assert bool(jnp.all(found.status == Status.max_steps))
    assert (np.asarray(found.t_end) < 5).all()
    assert np.isfinite(found.final.factor).all()


@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize("method", [Dopri8(), Tsit5()])
def test_derivatives_of_ensembles(d, method):
    """Reverse mode by replayed steps against central differences, in every matrix and the start, and against solve."""
    matrices, starts = systems(3, d, 2, 2, k=2, seed=20)
    p = jax.tree.map(jnp.asarray, {**matrices, "mean": starts.mean, "L": starts.factor})
    W, w = jnp.asarray(oracles.general(3, d, d, seed=30)), jnp.asarray(oracles.general(3, d, seed=31))

    @jax.jit
    @jax.value_and_grad
    def both(p):
        layers = eqx.filter_vmap(lambda A, b, B, V: Piecewise(A=A, b=b, B=B, V=V, durations=[0.4, 0.5]))
        start = Gaussian(p["mean"], p["L"])
        end = ensemble(
            layers(p["A"], p["b"], p["B"], p["V"]), start, t1=0.9, method=method, rtol=1e-11, atol=1e-12, block=2
        )
        return jnp.sum(W * end.final.covariance) + jnp.sum(w * end.final.mean)

    _, slope = both(p)
    for seed, name in enumerate(p):
        e = oracles.general(*p[name].shape, seed=40 + seed)
        expected = oracles.derivative(lambda s, name=name, e=e: float(both({**p, name: p[name] + s * e})[0]), 0.0)
        np.testing.assert_allclose(np.sum(np.asarray(slope[name]) * e), expected, rtol=1e-6)


def test_systems_spread_over_devices():
    """Two CPU devices in a process of its own: equal numbers and derivatives, whether N divides or not."""
    code = """
import jax, jax.numpy as jnp, numpy as np
from jaxflow.runtime import configure
configure(cpu_devices=2, cache=False)
from jaxflow.gaussian import Gaussian, ensemble
from jaxflow.weights import make_layer
rng = np.random.default_rng(0)
for d, N in ((2, 7), (9, 8)):
    A, B = 0.3 * rng.normal(size=(2, N, d, d)) / np.sqrt(d)
    V = np.broadcast_to(-np.eye(d), (N, d, d))
    starts = Gaussian(jnp.asarray(rng.normal(size=(N, d))), jnp.asarray(0.5 * rng.normal(size=(N, d, d))))
    def end(A, devices):
        found = ensemble(make_layer(A=A, B=B, V=V, lead=1), starts, t1=1.0, block=2, devices=devices)
        return jnp.sum(found.final.covariance ** 2), found.final.covariance
    A = jnp.asarray(A)
    assert len(jax.devices()) == 2
    found = [
        jax.jit(jax.value_and_grad(lambda A: end(A, devices), has_aux=True))(A) for devices in (jax.devices(), None)
    ]
    ((_, values), slopes), ((_, alone), slopes_alone) = found
    np.testing.assert_allclose(values, alone, atol=1e-12)
    np.testing.assert_allclose(slopes, slopes_alone, atol=1e-11)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_refusals():
    matrices, starts = systems(3, 2, 2, 1)
    layers = make_layer(**matrices, lead=1)
    single = Gaussian(starts.mean[0], starts.factor[0])
    with pytest.raises(InputError, match="one leading axis"):
        ensemble(layers, single, t1=1.0)
    with pytest.raises(InputError, match="leading axis over systems"):
        ensemble(Constant(A=np.eye(2)), starts, t1=1.0)
    with pytest.raises(InputError, match="does not run on lanes"):
        ensemble(layers, starts, t1=1.0, method=Kvaerno5())
    with pytest.raises(InputError, match="piecewise constant"):
        ensemble(Oscillating(initial=np.eye(2)[None]), starts, t1=1.0, direction="ascend")
    with pytest.raises(InputError, match="after t0"):
        ensemble(layers, starts, t1=0.0)
    with pytest.raises(InputError, match="another dimension"):
        ensemble(layers, Gaussian(jnp.zeros((3, 3)), jnp.ones((3, 3, 1))), t1=1.0)
