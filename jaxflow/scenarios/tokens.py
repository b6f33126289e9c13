"""Exact answers about tokens on the sphere."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from jaxflow.attention import Chunked, Dense
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, energy, equiangular, uniform
from jaxflow.scenarios.check import Check
from jaxflow.solve import RK4, Dopri8, solve
from jaxflow.weights import Constant, Oscillating, random_heads

TIGHT = {"method": Dopri8(), "rtol": 1e-12, "atol": 1e-12}

COSINE, TOKENS, BETA = 0.1, 4, 2.0


def _equiangular(law: str, beta: float) -> float:
    """The common cosine at t = 1 of tokens that start equiangular; V = I, B = βI."""
    flow = AttentionFlow(Constant(B=beta * np.eye(TOKENS), V=np.eye(TOKENS)), law=law)  # pyright: ignore[reportArgumentType]
    final = solve(flow, equiangular(n=TOKENS, dim=TOKENS, cosine=COSINE), t1=1.0, **TIGHT).final
    return float(final.points[0] @ final.points[1])


def _cosine_by_ode() -> float:
    """ρ' = 2e^{βρ}(1−ρ)((n−1)ρ+1)/(e^β+(n−1)e^{βρ})."""
    n, beta = TOKENS, BETA

    def rhs(_: float, rho: np.ndarray) -> np.ndarray:
        e = np.exp(beta * rho)
        return 2 * e * (1 - rho) * ((n - 1) * rho + 1) / (np.exp(beta) + (n - 1) * e)

    return float(solve_ivp(rhs, (0, 1), [COSINE], method="DOP853", rtol=1e-13, atol=1e-13).y[0, -1])


def _cosine_at_zero_beta() -> float:
    """ρ = (Ce^{2t} − 1)/(Ce^{2t} + n − 1), C = (1 + (n−1)ρ₀)/(1 − ρ₀), at t = 1."""
    C = (1 + (TOKENS - 1) * COSINE) / (1 - COSINE)
    return float((C * np.exp(2) - 1) / (C * np.exp(2) + TOKENS - 1))


def _dirac_energy() -> float:
    D = jnp.diag(jnp.array([1.3, -0.4, 0.2]))
    flow = AttentionFlow(Constant(D=D), direction="descend")
    return float(energy(flow, Cloud(jnp.array([[1.0, 0.0, 0.0]])), flow.weights.at(0.0)))


def _cross_speed() -> float:
    """Largest speed of the four tokens (±a, ±b) with tanh(a²) = q tanh(q(1−a²)), D = diag(1, q)."""
    q = 0.9
    a2 = float(brentq(lambda s: np.tanh(s) - q * np.tanh(q * (1 - s)), 0.0, 1.0, xtol=1e-15))  # pyright: ignore[reportArgumentType]
    a, b = np.sqrt(a2), np.sqrt(1 - a2)
    cross = Cloud(jnp.array([[a, b], [-a, b], [a, -b], [-a, -b]]))
    flow = AttentionFlow(Constant(D=np.diag([1.0, q])), direction="descend")
    velocity, _ = flow.field(0.0, cross, flow.weights.at(0.0))
    return float(jnp.max(jnp.abs(velocity)))


def _balance_of_unlike_heads() -> float:
    """Residual of the energy balance with R over the energy drop: five different heads, softmax law."""
    heads = random_heads(jax.random.key(1), heads=5, dim=3)
    flow = AttentionFlow(Constant(D=heads), direction="descend")
    tokens = uniform(jax.random.key(2), n=40, dim=3)
    report = solve(flow, tokens, t1=1.0, observe=balance, method=Dopri8(), rtol=1e-10, atol=1e-10).observables
    return float(report.residual[-1] / (report.energy[-1] - report.energy[0]))


RISING, ANGLE, TIME = np.array([[[3.0, 0.0], [0.0, 0.0]], [[-4.0, 0.0], [0.0, 0.0]]]), 1.4, 10.0


def _rising_energy() -> float:
    """E at t = 10 of one token that descends under the softmax law with heads diag(3, 0), diag(−4, 0)."""
    flow = AttentionFlow(Constant(D=RISING), direction="descend")
    token = Cloud(jnp.array([[np.cos(ANGLE), np.sin(ANGLE)]]))
    final = solve(flow, token, t1=TIME, **TIGHT).final
    return float(energy(flow, final, flow.weights.at(0.0)))


def _rising_energy_exact() -> float:
    """E = ¼(e^{3c²} + e^{−4c²}), c = cos θ(t), with tan θ(t) = e^{−t/2} tan θ(0)."""
    c2 = 1 / (1 + (np.exp(-TIME / 2) * np.tan(ANGLE)) ** 2)
    return float((np.exp(3 * c2) + np.exp(-4 * c2)) / 4)


def _oscillating_equation() -> float:
    """Largest entry of Ḋ − (F − D) at t = 1.7 for four spread heads in d = 3."""
    heads = Oscillating(initial=random_heads(jax.random.key(0), heads=4, dim=3), phase="spread")
    D = heads.at(1.7).B
    assert D is not None
    return float(jnp.max(jnp.abs(heads.drift(1.7) - (heads.forcing(1.7) - D))))


def _chunked_minus_dense() -> float:
    cloud = uniform(jax.random.key(3), n=257, dim=3)
    q = jnp.einsum("hij,nj->hni", random_heads(jax.random.key(4), heads=3, dim=3), cloud.points)
    dense, chunked = (kernel(q, cloud.points, cloud.log_w) for kernel in (Dense(), Chunked(block=64)))
    gaps = jax.tree.map(lambda x, y: jnp.max(jnp.abs(x - y)), dense, chunked)
    return float(max(jax.tree.leaves(gaps)))


def _causal_first_token() -> float:
    """How far the first token moves under a causal mask with V = I."""
    cloud = uniform(jax.random.key(5), n=12, dim=3)
    flow = AttentionFlow(Constant(B=np.eye(3), V=np.eye(3)), causal=True)
    final = solve(flow, cloud, t1=5.0, method=RK4(), dt=0.05).final
    return float(jnp.max(jnp.abs(final.points[0] - cloud.points[0])))


CHECKS = (
    Check(
        "tokens_equiangular_softmax",
        "arXiv:2312.10794, equiangular dynamics",
        "The common cosine of equiangular tokens follows a scalar equation (β = 2, n = 4, t = 1).",
        _cosine_by_ode(),
        1e-9,
        lambda: _equiangular("softmax", BETA),
    ),
    Check(
        "tokens_equiangular_unnormalized",
        "arXiv:2312.10794, equiangular dynamics",
        "At β = 0 the cosine is (Ce^{2t} − 1)/(Ce^{2t} + n − 1).",
        _cosine_at_zero_beta(),
        1e-9,
        lambda: _equiangular("unnormalized", 0.0),
    ),
    Check(
        "tokens_dirac_energy",
        "arXiv:2605.18870, interaction energy",
        "A Dirac mass at a unit eigenvector of D with eigenvalue λ has energy e^λ/2.",
        float(np.exp(1.3) / 2),
        1e-14,
        _dirac_energy,
    ),
    Check(
        "tokens_cross_at_rest",
        "derived: four tokens on S¹",
        "The tokens (±a, ±b) rest when tanh(a²) = q tanh(q(1 − a²)).",
        0.0,
        1e-14,
        _cross_speed,
    ),
    Check(
        "tokens_balance_five_heads",
        "arXiv:2605.18870 §4, corrected rate",
        "The energy drop of five unlike heads is the integral of R = −⟨g, v⟩ (relative residual).",
        0.0,
        1e-7,
        _balance_of_unlike_heads,
    ),
    Check(
        "tokens_energy_rises",
        "derived: one token, two unlike heads on S¹",
        "Under the softmax law the energy can rise while tokens `descend`: here from 0.495 to 5.003 (closed form).",
        _rising_energy_exact(),
        1e-9,
        _rising_energy,
    ),
    Check(
        "tokens_oscillating_heads",
        "arXiv:2605.18870 §5",
        "The closed form of the oscillating heads solves Ḋ = F − D.",
        0.0,
        1e-13,
        _oscillating_equation,
    ),
    Check(
        "tokens_chunked_attention",
        "definition of the attention mean",
        "Attention by blocks of queries equals attention over all pairs at once.",
        0.0,
        1e-13,
        _chunked_minus_dense,
    ),
    Check(
        "tokens_causal_first",
        "arXiv:2411.04990, causal attention",
        "Under a causal mask with V = I the first token never moves.",
        0.0,
        1e-13,
        _causal_first_token,
    ),
)
