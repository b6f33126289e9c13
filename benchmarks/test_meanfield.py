"""A 200-step run of a density on S² at degree 32, with its energy balance, beside the same steps of tokens; and the
error of densities against their degree.

No library known to us solves this equation: the peer is this library's own particle flow, with as many weighted tokens
as the density's grid has points (the cheapest cloud of that resolution) and with direct sums over pairs.
"""

import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.linalg import expm

from jaxflow.meanfield import Density, DensityFlow, balance, coefficients
from jaxflow.meanfield.waves import waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import solve
from jaxflow.weights import Constant

DEGREE, STEPS, T1 = 32, 200, 2.0


def heads(h, norm):
    Z = np.random.default_rng(h).normal(size=(h, 3, 3))
    D = Z + Z.swapaxes(1, 2)
    return D * (norm / np.linalg.norm(D, 2, axis=(1, 2)))[:, None, None]


@pytest.mark.benchmark(group="meanfield: S2, degree 32, 200 RK4 steps")
@pytest.mark.parametrize(("h", "norm"), [(1, 2.0), (2, 2.0), (8, 4.0)])
def test_two_hundred_steps_on_the_sphere(benchmark, h, norm):
    start = Density.from_function(
        lambda x: jnp.exp(x @ jnp.array([0.8, -0.4, 0.6])) + 0.3 * jnp.exp(2 * x[:, 0] * x[:, 2]),
        dim=3,
        degree=DEGREE,
        normalize=True,
    )
    weights = Constant(D=heads(h, norm))
    flow = DensityFlow(weights, direction="descend").settle(start, 0.0, T1)
    run = eqx.filter_jit(lambda start: solve(flow, start, t1=T1, dt=T1 / STEPS, observe=balance))
    began = time.perf_counter()
    sol = jax.block_until_ready(run(start))
    first = time.perf_counter() - began
    assert sol.outcome == "done"
    assert int(sol.stats["steps"]) == STEPS
    assert abs(float(sol.observables.residual[-1])) < 1e-6 * abs(float(sol.observables.rate_integral[-1]))

    W = waves(3, 1, flow.grid_degree(start))
    x = jnp.asarray(W.points)
    cloud = Cloud.from_weights(x, jnp.asarray(W.weights) * start(x))
    tokens = AttentionFlow(weights, direction="descend")
    few = eqx.filter_jit(lambda cloud: solve(tokens, cloud, t1=T1 / STEPS, dt=T1 / STEPS).final)
    one = eqx.filter_jit(lambda start: solve(flow, start, t1=T1 / STEPS, dt=T1 / STEPS).final)
    gap = coefficients(few(cloud), 8) - one(start).at_degree(8).coefficients
    assert float(jnp.max(jnp.abs(gap))) < 1e-8
    began = time.perf_counter()
    jax.block_until_ready(few(cloud))
    peer = (time.perf_counter() - began) * STEPS

    result = benchmark.pedantic(lambda: jax.block_until_ready(run(start)), rounds=3)
    seconds = benchmark.stats.stats.median if benchmark.stats is not None else float("nan")
    print(f"\nS² density, degree {DEGREE}, {h} heads of norm {norm:g}: {seconds:.2f} s, first call {first:.1f} s")
    print(f"  {len(W.points)} tokens by direct sums, without balance, {STEPS} such steps: {peer:.0f} s")
    benchmark.extra_info.update(first_call=first, tokens=len(W.points), tokens_seconds=peer)
    assert result.outcome == "done"


def final(flow, start, x):
    """The density at t = 1 in the points x."""
    return np.asarray(eqx.filter_jit(lambda start: solve(flow, start, t1=1.0, dt=0.01).final)(start)(jnp.asarray(x)))


def attended(A, degree, x):
    """A bump on its way to a cluster."""
    flow = DensityFlow(Constant(D=A + A.T + np.eye(len(A))), direction="ascend")
    bump = Density.from_function(lambda x: jnp.exp(2 * x[:, 0]), dim=len(A), degree=degree, normalize=True)
    return final(flow, bump, x)


def test_error_against_degree(benchmark):
    """On a log plot: benchmarks/density.png. ẋ = P_x A x from the uniform density, whose exact solution is
    ρ = 1/(|S| det L |L⁻¹x|^d), L = e^{At}; and a density under attention against itself at degree 40."""
    degrees = list(range(4, 33, 4))
    figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    rng = np.random.default_rng(0)
    for dim, area, name in ((2, 2 * np.pi, "S¹"), (3, 4 * np.pi, "S²")):
        A, x = 0.25 * rng.normal(size=(dim, dim)), rng.normal(size=(200, dim))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        L = expm(A)
        exact = 1 / (area * np.linalg.det(L) * np.linalg.norm(x @ np.linalg.inv(L).T, axis=1) ** dim)
        feed_forward = DensityFlow(Constant(A=A))
        linear = [np.abs(final(feed_forward, Density.uniform(dim=dim, degree=N), x) - exact).max() for N in degrees]
        finest = attended(A, 40, x)
        attention = [np.abs(attended(A, N, x) - finest).max() for N in degrees]
        for law, errors in (("feed-forward, exact solution", linear), ("attention, against degree 40", attention)):
            ax.semilogy(degrees, errors, "o-", label=f"{name}, {law}")
            print(f"\n{name}, {law}:", {n: f"{e:.1e}" for n, e in zip(degrees, errors, strict=True)})
            assert errors[-1] < 1e-7
    ax.set(xlabel="degree", ylabel="largest error of ρ at t = 1", title="Densities converge spectrally")
    ax.set_ylim(top=1e6)  # room for the legend
    ax.legend(loc="upper right")
    figure.savefig(os.path.join(os.path.dirname(__file__), "density.png"), dpi=120, pil_kwargs={"optimize": True})
    benchmark.pedantic(lambda: None, rounds=1)
