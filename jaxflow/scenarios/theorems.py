"""Exact answers about curves of clouds: how fast they part, what perturbed heads change, where they come to rest."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, energy_gap_bound, lipschitz_bound, spreading_rate, stationarity
from jaxflow.scenarios.check import Check
from jaxflow.solve import RK4, solve
from jaxflow.transport import weighted_distance
from jaxflow.weights import Constant, Perturbed, Relaxing, make_layer

STEPS = {"method": RK4(), "dt": 0.005}
ANGLE, LOW, HIGH = 0.3, np.array([0.5, 1.0]), np.array([1.2, -0.6])


def _token(angle: float) -> Cloud:
    return Cloud(jnp.array([[np.cos(angle), np.sin(angle)]]))


def _settled() -> float:
    """tan of a token's angle at t = 2 under heads that relax from diag(0.5, 1) to diag(1.2, −0.6), descend."""
    flow = AttentionFlow(Relaxing(initial=np.diag(LOW), mean=np.diag(HIGH)), direction="descend")
    x = solve(flow, _token(ANGLE), t1=2.0, **STEPS).final.points[0]
    return float(x[1] / x[0])


def _settled_exact() -> float:
    """tan θ grows by exp ∫(λ − μ): the mean's difference times t, and what is left of the first one's."""
    last, first = HIGH[0] - HIGH[1], LOW[0] - LOW[1]
    return float(np.tan(ANGLE) * np.exp(2 * last + (first - last) * -np.expm1(-2.0)))


EPS, S = 0.1, np.array([[0.2, 0.6], [0.6, 0.1]])


def _minimum_of_perturbed_heads() -> float:
    """The energy at which one token ends that descends for long under diag(0.9, −0.7) + εS."""
    weights = Perturbed(Constant(D=np.diag([0.9, -0.7])), shift=EPS * S)
    flow = AttentionFlow(weights, law="steepest", direction="descend")
    final = solve(flow, _token(ANGLE), t1=30.0, method=RK4(), dt=0.1).final
    return float(stationarity(flow, final, weights.at(0.0))[0])


def _minimum_exact() -> float:
    """½e^μ, μ the lowest eigenvalue."""
    return float(np.exp(np.linalg.eigvalsh(np.diag([0.9, -0.7]) + EPS * S)[0]) / 2)


def _gap_over_bound() -> float:
    """|E^{D+S} − E^D| over ½e^R(e^{‖S‖} − 1) for a Dirac at a common eigenvector of the largest eigenvalues."""
    flow = AttentionFlow(Constant(D=np.diag([1.3, -0.7])), direction="descend")
    before, after = (stationarity(flow, _token(0.0), make_layer(D=np.diag(d)))[0] for d in ([1.3, -0.7], [1.7, -0.6]))
    return float((after - before) / energy_gap_bound(1.3, 0.4))


def _rate_over_bound() -> float:
    """The sharp rate of a token on top of its hill, D = diag(R, −R), over L, as R → 0."""
    R = 1e-7
    flow = AttentionFlow(Constant(D=np.diag([R, -R])), direction="descend")
    return float(eqx.filter_jit(spreading_rate)(flow, _token(0.0), flow.weights.at(0.0)) / lipschitz_bound(R))


def _weighted_diracs() -> float:
    """W_{m,2} of two Diracs at an angle of 2.5 under heads −0.3 I and −1.1 I."""
    heads = jnp.stack([-0.3 * jnp.eye(2), -1.1 * jnp.eye(2)])
    return float(weighted_distance(_token(0.0), _token(2.5), heads, steps=8, split=1).value)


CHECKS = (
    Check(
        "theorems_settling_heads",
        "arXiv:2605.18870 §5 without noise; derived for one token",
        "Under heads that relax tan θ of one token grows by exp ∫(λ − μ).",
        _settled_exact(),
        1e-8,
        _settled,
    ),
    Check(
        "theorems_perturbed_minimum",
        "arXiv:2605.18870 §4, Γ-convergence; derived for one token",
        "The minimum of the energy of one token under D + εS is ½e^μ, μ the lowest eigenvalue.",
        _minimum_exact(),
        1e-10,
        _minimum_of_perturbed_heads,
    ),
    Check(
        "theorems_energy_gap",
        "derived: tests/README.md",
        "The uniform bound ½e^R(e^{‖S‖} − 1) of energies is attained by a Dirac at a common eigenvector.",
        1.0,
        1e-12,
        _gap_over_bound,
    ),
    Check(
        "theorems_stability_rate",
        "derived: tests/README.md",
        "A token on top of its hill parts from its neighbours at two thirds of the stability constant as ‖D‖ → 0.",
        2 / 3,
        1e-6,
        _rate_over_bound,
    ),
    Check(
        "theorems_weighted_diracs",
        "arXiv:2605.18870 §4; derived",
        "Under negative multiples of the identity W_{m,2} of two Diracs is the angle over √(mean e^{c_h}).",
        float(2.5 / np.sqrt(np.mean(np.exp([0.3, 1.1])))),
        1e-8,
        _weighted_diracs,
    ),
)
