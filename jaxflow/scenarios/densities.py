"""Exact answers about densities on S¹ and S²: infinitely many tokens."""

import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm
from scipy.special import iv

from jaxflow.meanfield import Density, DensityFlow, InfiniteDensityFlow, balance
from jaxflow.particles import OrnsteinUhlenbeckLimit
from jaxflow.scenarios.check import Check
from jaxflow.solve import RK4, solve
from jaxflow.weights import Constant

AXIS = np.array([0.36, 0.48, 0.8])
A = np.array([[0.2, -0.5, 0.1], [0.3, 0.0, 0.2], [-0.1, 0.1, -0.1]])
WAVE, T1 = 1e-8, 0.2


def _energy_floor() -> float:
    """E of a density after t = 60 under infinitely many resting heads, σ² = 2, that descend."""
    kernel = OrnsteinUhlenbeckLimit(noise_var=2.0, stationary=True)
    start = Density.from_function(lambda x: jnp.exp(0.5 * (x @ AXIS)), dim=3, degree=12, normalize=True)
    flow = InfiniteDensityFlow(kernel, dim=3, direction="descend")
    return float(solve(flow, start, t1=60.0, method=RK4(), dt=0.2, observe=balance).observables.energy[-1])


def _growth_rate() -> float:
    """Measured growth of a wave of degree 3 on S¹ under B = 4I, V = I, law `unnormalized`."""
    u = Density.uniform(dim=2, degree=8)
    start = Density(u.coefficients.at[5].add(WAVE), 2)
    flow = DensityFlow(Constant(B=4 * np.eye(2), V=np.eye(2)), law="unnormalized")
    final = solve(flow, start, t1=T1, method=RK4(), dt=0.01).final
    return float(np.log(final.coefficients[5] / WAVE) / T1)


def _poisson(w: float) -> float:
    """((1 − w²)/|x − w c|²)²/4π at x = c, the top of Poisson's kernel on S²."""
    return ((1 + w) / (1 - w)) ** 2 / (4 * np.pi)


def _poisson_exact() -> float:
    """The same at t = 0.8: ẇ = ½(1 − w²)Z(w), Z the mean of the kernel."""

    def mean(w: float) -> float:
        return quad(lambda s: s * (1 - w**2) ** 2 / 2 / (1 + w**2 - 2 * w * s) ** 2, -1, 1, epsabs=1e-14)[0]

    w = solve_ivp(lambda _, w: 0.5 * (1 - w**2) * mean(w[0]), (0, 0.8), [0.2], rtol=1e-12, atol=1e-13).y[0, -1]
    return float(_poisson(w))


def _poisson_kernel() -> float:
    """The density at c, t = 0.8, under B = 0, V = I, started from Poisson's kernel with w = 0.2."""
    start = Density.from_function(
        lambda x: (0.96 / (1.04 - 0.4 * (x @ AXIS))) ** 2 / (4 * np.pi), dim=3, degree=24, normalize=True
    )
    flow = DensityFlow(Constant(B=np.zeros((3, 3)), V=np.eye(3)))
    final = solve(flow, start, t1=0.8, method=RK4(), dt=0.02).final
    return float(final(jnp.asarray(AXIS)[None])[0])


def _angular_gaussian() -> float:
    """The density at c, t = 1, under feed-forward A alone, started from the uniform one."""
    start = Density.uniform(dim=3, degree=24)
    final = solve(DensityFlow(Constant(A=A)), start, t1=1.0, method=RK4(), dt=0.02).final
    return float(final(jnp.asarray(AXIS)[None])[0])


def _angular_gaussian_exact() -> float:
    """1/(4π det L |L^{-1}c|³), L = e^A."""
    L = expm(A)
    return float(1 / (4 * np.pi * np.linalg.det(L) * np.linalg.norm(np.linalg.solve(L, AXIS)) ** 3))


CHECKS = (
    Check(
        "density_energy_floor",
        "arXiv:2605.18870 §5, infinitely many heads",
        "Under infinitely many Ornstein–Uhlenbeck heads the energy on S² falls to ¼∫₋₁¹ exp(s + (1 + s²)/4) ds.",
        0.8309227507871672,
        1e-8,
        _energy_floor,
    ),
    Check(
        "density_growth_rate",
        "arXiv:2410.06833; derived in tests/README.md",
        "Waves of degree 3 on the uniform density of S¹ grow at the rate 9 I₃(4)/4 (relative 1e-6).",
        float(9 * iv(3, 4) / 4),
        7e-6,
        _growth_rate,
    ),
    Check(
        "density_poisson_kernel",
        "derived in tests/README.md: Möbius maps of the sphere",
        "Attention without temperature keeps Poisson's kernel on S², with ẇ = ½(1 − w²)Z.",
        _poisson_exact(),
        1e-8,
        _poisson_kernel,
    ),
    Check(
        "density_angular_gaussian",
        "derived in tests/README.md",
        "Feed-forward alone carries the uniform density of S² to 1/(4π det L |L⁻¹x|³), L = e^{At}.",
        _angular_gaussian_exact(),
        1e-8,
        _angular_gaussian,
    ),
)
