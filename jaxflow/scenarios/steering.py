"""Exact answers about steering one Gaussian to another."""

import jax.numpy as jnp

from jaxflow.control import check_reachable, steer
from jaxflow.errors import UnreachableError
from jaxflow.measures import Gaussian
from jaxflow.scenarios.check import Check


def _start() -> Gaussian:
    return Gaussian(jnp.array([-1.0, 0.2]), jnp.array([[0.8, 0.0], [0.3, 0.5]]))


def _target() -> Gaussian:
    return Gaussian(jnp.array([0.7, 1.1]), jnp.array([[0.3, 0.4], [-0.2, 0.6]]))


def _constructive() -> float:
    return float(steer(_start(), _target(), method="constructive", tolerance=1e-10).residual)


def _gauss_newton() -> float:
    return float(steer(_start(), _target(), method="gauss-newton", segments=1, tolerance=1e-11).residual)


def _rank_named() -> float:
    """1 if a target of another rank is refused with the invariant named."""
    line = Gaussian(jnp.zeros(2), jnp.array([[1.0], [0.5]]))
    try:
        check_reachable(_start(), line, "ABVb")
    except UnreachableError as error:
        return float("rank" in str(error))
    return 0.0


CHECKS = (
    Check(
        "steering_constant_layer",
        "arXiv:2606.07600 §3, full rank",
        "One constant layer A = log(T)/t₁ with a bias hits the target exactly (largest error in mean and covariance).",
        0.0,
        1e-10,
        _constructive,
    ),
    Check(
        "steering_gauss_newton",
        "arXiv:2606.07600 §3, exact reachability",
        "A layer A, B, V, b found by Gauss–Newton hits the target (largest error in mean and covariance).",
        0.0,
        1e-9,
        _gauss_newton,
    ),
    Check(
        "steering_rank_invariant",
        "arXiv:2606.07600 §3, invariance of the rank",
        "A target of another rank is refused beforehand, and the message names the rank.",
        1.0,
        0.0,
        _rank_named,
    ),
)
