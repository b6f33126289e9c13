"""Neighbouring results with exact answers, followed by the particle solver."""

import diffrax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, equiangular
from jaxflow.solve import Dopri8, Euler, Heun, Tsit5
from jaxflow.solve.adaptive import Retracted
from jaxflow.weights import Constant, Oscillating

N, RHO0 = 4, 0.1


def cosine(law, beta, t):
    flow = AttentionFlow(Constant(B=beta * np.eye(N), V=np.eye(N)), law=law)
    sol = run(flow, equiangular(n=N, dim=N, cosine=RHO0), t1=t, method=Dopri8(), rtol=1e-12, atol=1e-12)
    gram = np.asarray(sol.final.points @ sol.final.points.T)
    off = gram[~np.eye(N, dtype=bool)]
    np.testing.assert_allclose(off, off[0], atol=1e-12)
    return off[0]


@pytest.mark.parametrize("law", ["softmax", "unnormalized"])
def test_equiangular_tokens_obey_their_closed_equation(law):
    """SA ρ' = 2e^{βρ}(1−ρ)((n−1)ρ+1)/(e^β+(n−1)e^{βρ}); USA ρ' = (2/n)e^{βρ}(1−ρ)((n−1)ρ+1)."""
    beta, t = 2.0, 0.7

    def rhs(t, rho):
        speed = 2 * np.exp(beta * rho) * (1 - rho) * ((N - 1) * rho + 1)
        return speed / (np.exp(beta) + (N - 1) * np.exp(beta * rho)) if law == "softmax" else speed / N

    expected = solve_ivp(rhs, (0, t), [RHO0], method="DOP853", rtol=1e-12, atol=1e-13).y[0, -1]
    np.testing.assert_allclose(cosine(law, beta, t), expected, atol=1e-9)


def test_equiangular_tokens_without_temperature_in_closed_form():
    """β = 0: ρ = (Ce^{2t} − 1)/(Ce^{2t} + n − 1), C = (1 + (n−1)ρ₀)/(1 − ρ₀); both laws agree."""
    C, t = (1 + (N - 1) * RHO0) / (1 - RHO0), 0.7
    expected = (C * np.exp(2 * t) - 1) / (C * np.exp(2 * t) + N - 1)
    for law in ("softmax", "unnormalized"):
        np.testing.assert_allclose(cosine(law, 0.0, t), expected, atol=1e-10)


@pytest.mark.parametrize("q", [1.5, 3.0])
def test_a_cross_of_four_tokens_is_at_rest(q):
    """(±a, ±b) under D = diag(1, q), descend, where tanh(a²) = q tanh(q(1 − a²))."""
    square = brentq(lambda s: np.tanh(s) - q * np.tanh(q * (1 - s)), 1e-6, 1 - 1e-12, xtol=1e-15)
    a, b = np.sqrt(square), np.sqrt(1 - square)
    x = jnp.asarray([[a, b], [a, -b], [-a, b], [-a, -b]])
    flow = AttentionFlow(Constant(D=np.diag([1.0, q])), direction="descend")
    layer = flow.weights.at(0.0)
    np.testing.assert_allclose(flow.field(0.0, Cloud(x), layer)[0], 0, atol=1e-13)
    # And only there: a cross of other proportions moves.
    y = jnp.asarray(oracles.rotation(2)[0] * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]))
    assert float(jnp.abs(flow.field(0.0, Cloud(y), layer)[0]).max()) > 0.1


@pytest.mark.parametrize("law", ["softmax", "unnormalized", "steepest"])
@pytest.mark.parametrize("method", [Euler(), Heun(), None, Tsit5()], ids=["Euler", "Heun", "RK4", "Tsit5"])
def test_tokens_stay_on_the_sphere(law, method):
    flow = AttentionFlow(Oscillating(initial=oracles.symmetric(2, 3)), law=law, direction="descend")
    fixed = not isinstance(method, Tsit5)
    options = {"dt": 0.1, "save_every": 4} if fixed else {"save_at": [0.0, 0.31, 0.77, 2.0], "rtol": 1e-5, "atol": 1e-5}
    sol = run(flow, Cloud(jnp.asarray(oracles.unit_rows(6, 3))), t1=2.0, method=method, **options)
    assert float(Sphere().violation(sol.states.points).max()) < 1e-12
    assert float(Sphere().violation(sol.final.points).max()) < 1e-12
    assert float(jnp.abs(sol.final.points - sol.states.points[0]).max()) > 0.1


def test_adaptive_steps_end_on_the_sphere():
    """Each step, not only each saved state: the retraction of what the solver alone would do."""
    flow = AttentionFlow(Constant(D=np.eye(3)), direction="descend")
    x, layer = jnp.asarray(oracles.unit_rows(6, 3)), flow.weights.at(0.0)
    term = diffrax.ODETerm(lambda t, z, _: (flow.field(t, Cloud(z[0]), layer)[0], None))

    def one_step(solver):
        begin = solver.init(term, 0.0, 1.0, (x, None), None)
        return solver.step(term, 0.0, 1.0, (x, None), None, begin, False)[0][0]

    plain, retracted = one_step(diffrax.Tsit5()), one_step(Retracted(diffrax.Tsit5(), Sphere().retract))
    assert float(Sphere().violation(plain).max()) > 1e-6
    np.testing.assert_allclose(retracted, Sphere().retract(plain), atol=1e-15)


def test_descending_tokens_spread_and_ascending_ones_meet():
    """D = I: the descend flow repels, the ascend flow clusters. The repulsive run stays on the sphere."""
    start = Cloud(jnp.asarray(oracles.unit_rows(6, 3) + np.array([1.5, 0, 0]))).points
    start = Cloud(Sphere().retract(start))
    together = run(AttentionFlow(Constant(D=np.eye(3)), direction="ascend"), start, t1=20.0, dt=0.1).final.points
    np.testing.assert_allclose(together @ together.T, 1.0, atol=1e-6)
    apart = run(AttentionFlow(Constant(D=np.eye(3)), direction="descend"), start, t1=20.0, dt=0.1).final.points
    assert float(jnp.linalg.norm(apart.mean(0))) < 0.02
    assert float(Sphere().violation(apart).max()) < 1e-12
