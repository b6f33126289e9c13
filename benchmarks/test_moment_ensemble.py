"""An ensemble of stable Gaussian systems to t = 5 at 1e-8, against SciPy's DOP853 one system at a time.

A = 0.3 N, B = GGᵀ/d + ½I, V = −(½ + u)I, b and μ₀ normal, Σ₀ = LLᵀ/d + 0.1 I.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interleave import medians, report
from scipy.integrate import solve_ivp

from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import Tsit5, solve
from jaxflow.weights import Constant

SYSTEMS, T1, TOLERANCE = 256, 5.0, 1e-8


def systems(d):
    """SYSTEMS random stable systems, every array with a leading axis."""
    rng = np.random.default_rng(d)
    G, L = rng.normal(size=(2, SYSTEMS, d, d))
    eye = np.eye(d)
    Sigma = np.einsum("sij,skj->sik", L, L) / d + 0.1 * eye
    return {
        "A": 0.3 * rng.normal(size=(SYSTEMS, d, d)),
        "B": np.einsum("sij,skj->sik", G, G) / d + 0.5 * eye,
        "V": -(0.5 + rng.uniform(size=(SYSTEMS, 1, 1))) * eye,
        "b": rng.normal(size=(SYSTEMS, d)),
        "mean": rng.normal(size=(SYSTEMS, d)),
        "factor": np.linalg.cholesky(Sigma),
    }


def scipy_one(A, B, V, b, mean, factor):
    """Equation (1.1) for Σ itself, by DOP853."""
    d = len(mean)

    def rhs(_, y):
        mu, Sigma = y[:d], y[d:].reshape(d, d)
        Q = V @ Sigma @ B
        K = A + Q
        return np.concatenate([(K + V) @ mu + b, (K @ Sigma + Sigma @ K.T).ravel()])

    start = np.concatenate([mean, (factor @ factor.T).ravel()])
    return solve_ivp(rhs, (0, T1), start, method="DOP853", rtol=TOLERANCE, atol=TOLERANCE).y[:, -1]


@pytest.mark.parametrize("d", [4, 16])
def test_ensemble(benchmark, d):
    data = systems(d)

    @eqx.filter_jit
    def ours(data):
        def one(A, B, V, b, mean, factor):
            flow = MomentFlow(Constant(A=A, B=B, V=V, b=b))
            sol = solve(flow, Gaussian(mean, factor), t1=T1, method=Tsit5(), rtol=TOLERANCE, atol=TOLERANCE)
            return jnp.concatenate([sol.final.mean, sol.final.covariance.ravel()])

        return jax.vmap(one)(*(data[name] for name in ("A", "B", "V", "b", "mean", "factor")))

    data = {name: jnp.asarray(x) for name, x in data.items()}
    began = time.perf_counter()
    compiled = ours.lower(data).compile()
    compile_seconds = time.perf_counter() - began
    few = 16
    host = [{name: np.asarray(x[i]) for name, x in data.items()} for i in range(few)]
    exact = np.stack([scipy_one(**system) for system in host])
    np.testing.assert_allclose(compiled(data)[:few], exact, atol=1e-5, rtol=1e-5)

    seconds = medians(
        {
            "jaxflow, vmap of Tsit5": lambda: jax.block_until_ready(compiled(data)),
            "SciPy DOP853, one by one": lambda: [scipy_one(**system) for system in host],
        },
        rounds=7,
    )
    per_system = {name: t / (few if "SciPy" in name else SYSTEMS) for name, t in seconds.items()}
    report(f"moments of {SYSTEMS} systems, d = {d}, per system (compile {compile_seconds:.1f} s)", per_system)
    benchmark.extra_info.update({**per_system, "compile": compile_seconds})
    benchmark.pedantic(lambda: jax.block_until_ready(compiled(data)), rounds=3)
