"""Exact answers about the long run of a Gaussian: Riccati form, blow-up, equilibria, the mean, other attentions."""

import jax.numpy as jnp
import numpy as np

from jaxflow.attention import Sinkhorn
from jaxflow.gaussian import (
    ClosureFlow,
    MomentFlow,
    bernoulli,
    equilibrium,
    relu_bound_slope,
    relu_true_slope,
    riccati,
    riccati_blowup_time,
    tune_mean,
)
from jaxflow.measures import Gaussian, gauss_hermite
from jaxflow.particles import PairingFlow
from jaxflow.scenarios.check import Check
from jaxflow.solve import Dopri8, solve
from jaxflow.weights import Constant, Values, make_layer

TIGHT = {"method": Dopri8(), "rtol": 1e-12, "atol": 1e-12}

A = np.array([[0.5, 1.0, 0.0], [0.0, -0.7, 0.3], [0.2, 0.0, 0.3]])
B = np.array([[1.0, 0.3, 0.1], [-0.2, 0.8, 0.0], [0.0, 0.1, 1.2]])
START = Gaussian(jnp.zeros(3), jnp.array([[0.6, 0.0], [0.2, 0.5], [-0.3, 0.1]]))


def _riccati() -> float:
    flow = MomentFlow(Constant(A=A, B=B, V=-0.8 * np.eye(3)))
    gap = solve(flow, START, t1=1.5, **TIGHT).final.covariance
    gap = gap - riccati(make_layer(A=A, B=B, V=-0.8 * np.eye(3)), START, 1.5).covariance
    return float(jnp.max(jnp.abs(gap)))


def _riccati_blowup() -> float:
    sol = solve(MomentFlow(Constant(A=A, B=B, V=0.7 * np.eye(3))), START, t1=5.0, **TIGHT)
    exact = riccati_blowup_time(make_layer(A=A, B=B, V=0.7 * np.eye(3)), START)
    return float(sol.t_end - exact) if sol.outcome == "blow_up" else float("nan")


def _bernoulli() -> float:
    S = bernoulli(make_layer(A=A, B=B, V=-0.8 * np.eye(3)))
    KS = (A - 0.8 * S @ B) @ S
    return float(jnp.max(jnp.abs(KS + KS.T)))


def _mean_of_positive_values() -> float:
    growing = A + np.eye(3)
    return float(np.real(equilibrium(make_layer(A=growing, B=-B @ B.T, V=0.8 * np.eye(3))).mean_spectrum)[0])


def _tuned_mean() -> float:
    target = jnp.array([1.0, -2.0, 0.5])
    layers = {"A": A, "B": B @ B.T, "V": -0.8 * np.eye(3)}
    tuned = tune_mean(make_layer(**layers), target)
    return float(jnp.max(jnp.abs(equilibrium(make_layer(**layers, b=tuned.b)).mean - target)))


def _sinkhorn_closure() -> float:
    values, rule = Values(V=np.array([[0.5, 0.2], [-0.3, 0.4]])), Sinkhorn(np.diag([0.5, 0.4]), np.diag([0.6, 0.5]))
    start = Gaussian(jnp.array([0.3, -0.2]), jnp.array([[0.7, 0.0], [0.2, 0.5]]))
    tokens = solve(PairingFlow(values, rule), gauss_hermite(start, nodes=12), t1=0.5, dt=0.05).final
    exact = solve(ClosureFlow(values, rule), start, t1=0.5, dt=0.05).final
    return float(jnp.max(jnp.abs(tokens.covariance - exact.covariance)))


def _relu_in_one_dimension() -> float:
    """With bias the two slopes agree in d = 1, because every field on the line is a gradient."""
    start, A, b = Gaussian(jnp.array([-0.3]), jnp.array([[0.8]])), jnp.array([[0.7]]), jnp.array([0.2])
    return float(relu_bound_slope(start, A, b) - relu_true_slope(start, A, b))


CHECKS = (
    Check(
        "riccati_closed_form",
        "arXiv:2606.07600 (1.1) with V = vI",
        "Σ(t) = e^{At}L₀[I − L₀ᵀW(t)L₀]^{-1}L₀ᵀe^{Aᵀt} at rank two in three dimensions equals the flow.",
        0.0,
        1e-10,
        _riccati,
    ),
    Check(
        "riccati_blowup_time",
        "arXiv:2606.07600 (1.1) with V = vI",
        "The flow becomes infinite at the first zero of det X.",
        0.0,
        1e-8,
        _riccati_blowup,
    ),
    Check(
        "bernoulli_equilibrium",
        "arXiv:2606.07600, asymptotics; derived in tests/README.md",
        "AS + SAᵀ + 2vSB_sS = 0 for a mixed spectrum.",
        0.0,
        1e-10,
        _bernoulli,
    ),
    Check(
        "mean_beside_a_settled_covariance",
        "arXiv:2606.07600, asymptotics; derived in tests/README.md",
        "With V = vI the mean's rates at a positive definite equilibrium have real part v: it diverges for V > 0 > B.",
        0.8,
        1e-9,
        _mean_of_positive_values,
    ),
    Check(
        "tuned_mean",
        "arXiv:2606.07600, tuning of the mean",
        "b = −(A + V + VΣ∞B)μ* puts the resting mean at μ*.",
        0.0,
        1e-9,
        _tuned_mean,
    ),
    Check(
        "sinkhorn_closure",
        "arXiv:2501.18322; derived in tests/README.md",
        "12 × 12 Gauss–Hermite tokens under Sinkhorn attention follow its Gaussian closure.",
        0.0,
        1e-9,
        _sinkhorn_closure,
    ),
    Check(
        "relu_slopes_on_the_line",
        "arXiv:2606.07600, ReLU bound; derived in tests/README.md",
        "The bound's slope at 0 is the true slope of W₂ in one dimension.",
        0.0,
        1e-10,
        _relu_in_one_dimension,
    ),
)
