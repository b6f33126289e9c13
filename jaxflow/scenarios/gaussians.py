"""Exact answers about Gaussians: closed forms of equation (1.1) of arXiv:2606.07600, distances, finite clouds."""

import jax.numpy as jnp
import numpy as np

from jaxflow.gaussian import MomentFlow, linear, moments, scalar_variance
from jaxflow.geometry import Euclidean
from jaxflow.measures import Gaussian, gauss_hermite
from jaxflow.particles import AttentionFlow
from jaxflow.scenarios.check import Check
from jaxflow.solve import Dopri8, solve
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Constant

TIGHT = {"method": Dopri8(), "rtol": 1e-12, "atol": 1e-12}

GOLDEN_BLOWUP = 0.7833393820762261
"""ln(1.6)/0.6: a = 0.3, c = 1, ℓ₀ = 0.5."""


def _linear() -> float:
    A, b = jnp.array([[0.1, 1.0], [-1.0, -0.2]]), jnp.array([0.3, -0.4])
    start = Gaussian(jnp.array([1.0, -1.0]), jnp.array([[1.0, 0.0], [0.5, 0.7]]))
    final = solve(MomentFlow(Constant(A=A, b=b)), start, t1=3.0, **TIGHT).final
    return float(wasserstein_gaussian(final, linear(start, A, b, 3.0)))


def _scalar_flow(a: float, c: float) -> MomentFlow:
    return MomentFlow(Constant(A=[[a]], B=[[c]], V=[[1.0]]))


def _scalar_start(l0: float) -> Gaussian:
    return Gaussian(jnp.zeros(1), jnp.sqrt(jnp.array([[l0]])))


def _blowup_time() -> float:
    sol = solve(_scalar_flow(0.3, 1.0), _scalar_start(0.5), t1=2.0, method=Dopri8(), rtol=1e-11, atol=1e-11)
    return float(sol.t_end) if sol.outcome == "blow_up" else float("nan")


def _variance() -> float:
    sol = solve(_scalar_flow(0.7, -1.3), _scalar_start(0.2), t1=2.0, **TIGHT)
    return float(sol.final.covariance[0, 0])


def _logarithm_of_determinant() -> float:
    """log det Σ_t − 2∫tr K − log det Σ₀ for a two-headed layer, zero by Liouville's formula."""
    B = jnp.array([[[1.0, 0.3], [0.0, 0.5]], [[0.2, 0.0], [0.1, 0.4]]])
    V = jnp.array([[[-0.5, 0.2], [0.1, -0.7]], [[0.3, 0.0], [0.2, -0.2]]])
    start = Gaussian(jnp.zeros(2), jnp.array([[0.8, 0.0], [0.3, 0.6]]))
    sol = solve(MomentFlow(Constant(B=B, V=V)), start, t1=2.0, observe=moments, **TIGHT)
    change = jnp.linalg.slogdet(sol.states.covariance)[1]
    return float(change[-1] - change[0] - sol.observables.log_det_growth[-1])


def _nodes_follow_moments() -> float:
    """Largest difference between the moments of 12 × 12 Gauss–Hermite tokens and of the Gaussian."""
    A = np.array([[-0.2, 0.5], [-0.5, 0.1]])
    B, V, b = np.array([[0.5, 0.2], [-0.1, 0.4]]), np.array([[-0.6, 0.1], [0.3, -0.4]]), np.array([0.2, -0.3])
    layer = Constant(A=A, B=B, V=V, b=b)
    start = Gaussian(jnp.array([0.3, -0.2]), jnp.array([[0.7, 0.0], [0.2, 0.5]]))
    cloud = solve(AttentionFlow(layer, geometry=Euclidean()), gauss_hermite(start, nodes=12), t1=1.0, **TIGHT).final
    exact = solve(MomentFlow(layer), start, t1=1.0, **TIGHT).final
    gaps = (cloud.mean - exact.mean, cloud.covariance - exact.covariance)
    return float(max(jnp.max(jnp.abs(gap)) for gap in gaps))


def _commuting_distance() -> float:
    first = Gaussian(jnp.array([0.0, 0.0]), jnp.diag(jnp.array([3.0, 1.0])))
    second = Gaussian(jnp.array([1.0, 2.0]), jnp.diag(jnp.array([1.0, 2.0])))
    return float(wasserstein_gaussian(first, second))


CHECKS = (
    Check(
        "gaussian_linear_flow",
        "arXiv:2606.07600 (1.1) with V = 0",
        "Without attention the flow is the matrix exponential of the affine generator.",
        0.0,
        1e-10,
        _linear,
    ),
    Check(
        "gaussian_blowup_time",
        "arXiv:2606.07600 (1.1), d = 1",
        "ℓ' = 2aℓ + 2cℓ² becomes infinite at ln(1 + a/(cℓ₀))/(2a).",
        GOLDEN_BLOWUP,
        1e-8,
        _blowup_time,
    ),
    Check(
        "gaussian_scalar_variance",
        "arXiv:2606.07600 (1.1), d = 1",
        "ℓ(2) of ℓ' = 2aℓ + 2cℓ² with a = 0.7, c = −1.3, ℓ₀ = 0.2, in closed form.",
        # aℓ₀e^{2at}/(a + cℓ₀(1 − e^{2at})) at t = 2.
        0.14 * np.exp(2.8) / (0.7 - 0.26 * (1 - np.exp(2.8))),
        1e-10,
        _variance,
    ),
    Check(
        "gaussian_scalar_closed_form",
        "arXiv:2606.07600 (1.1), d = 1",
        "The closed form at a = 0 is its limit ℓ₀/(1 − 2cℓ₀t).",
        0.5 / (1 - 2 * 0.4 * 0.5 * 1.0),
        1e-13,
        lambda: float(scalar_variance(0.0, 0.4, 0.5, 1.0)),
    ),
    Check(
        "gaussian_liouville",
        "derived: d log det Σ = 2 tr K dt",
        "The log-determinant grows by twice the integral of tr K.",
        0.0,
        1e-10,
        _logarithm_of_determinant,
    ),
    Check(
        "gaussian_hermite_tokens",
        "arXiv:2606.07600, Gaussian invariance",
        "12 × 12 weighted Gauss–Hermite tokens keep the moments of the exact flow.",
        0.0,
        1e-9,
        _nodes_follow_moments,
    ),
    Check(
        "gaussian_bures_distance",
        "Bhatia, Jain, Lim 2019",
        "Commuting covariances diag(9, 1), diag(1, 4), means (0, 0), (1, 2): W₂² = 5 + 4 + 1.",
        float(np.sqrt(10.0)),
        1e-14,
        _commuting_distance,
    ),
)
