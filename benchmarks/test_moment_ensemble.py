"""4096 stable Gaussian systems to t = 5 at a true error of 1e-8, forward and with gradients, and in closed form.

A = 0.3 N, B = GGᵀ/d + ½I, V = −(½ + u)I, b and μ₀ normal, Σ₀ = LLᵀ/d + 0.1 I. Every contestant runs at the loosest
tolerance among 1e-8, 3e-9, 1e-9, ... at which its worst entry, over all systems it is given, is right to 1e-8.
"""

import functools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interleave import medians, report
from scipy.integrate import solve_ivp
from torchdiffeq import odeint

from jaxflow.gaussian import MomentFlow, ensemble, riccati
from jaxflow.measures import Gaussian
from jaxflow.solve import Tsit5, solve
from jaxflow.weights import Constant, make_layer

SYSTEMS, T1, ERROR = 4096, 5.0, 1e-8
TOLERANCES = [1e-8, 3e-9, 1e-9, 3e-10, 1e-10, 3e-11]
NAMES = ("A", "B", "V", "b", "mean", "factor")
FEW = {"one by one": 32, "vmap": 512, "torchdiffeq": 512, "stacked": {4: 4096, 16: 64}}
"""How many of the systems a peer is given; times are per system. Stacked SciPy is fastest so, of 16, 32, ... 4096."""


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


def pick(data, n):
    return {name: x[:n] for name, x in data.items()}


def joined(mean, covariance):
    """Mean and covariance of every system in one row."""
    return np.concatenate([mean, np.asarray(covariance).reshape(len(mean), -1)], 1)


def row(end):
    return joined(np.asarray(end.mean), end.covariance)


def scipy_stacked(data, tolerance):
    """Equation (1.1) for Σ itself, all systems in one state, by DOP853."""
    n, d = data["mean"].shape

    def right(_, y):
        mu, Sigma = y[: n * d].reshape(n, d, 1), y[n * d :].reshape(n, d, d)
        K = data["A"] + data["V"] @ Sigma @ data["B"]
        KS = K @ Sigma
        dmu = (K + data["V"]) @ mu + data["b"][:, :, None]
        return np.concatenate([dmu.ravel(), (KS + np.swapaxes(KS, 1, 2)).ravel()])

    Sigma = data["factor"] @ np.swapaxes(data["factor"], 1, 2)
    start = np.concatenate([data["mean"].ravel(), Sigma.ravel()])
    y = solve_ivp(right, (0, T1), start, method="DOP853", rtol=tolerance, atol=tolerance).y[:, -1]
    return joined(y[: n * d].reshape(n, d), y[n * d :].reshape(n, d, d))


def scipy_one_by_one(data, tolerance):
    """The same, a system at a time."""
    n = len(data["mean"])
    return np.concatenate([scipy_stacked({k: x[i : i + 1] for k, x in data.items()}, tolerance) for i in range(n)])


def torch_end(data, tolerance):
    """The same batch by torchdiffeq's dopri8, made to step on t = 5: its interpolation there would cost 3 digits."""

    def right(_, state):
        mu, Sigma = state
        K = data["A"] + data["V"] @ Sigma @ data["B"]
        KS = K @ Sigma
        return ((K + data["V"]) @ mu[..., None])[..., 0] + data["b"], KS + KS.transpose(1, 2)

    start = data["mean"], data["factor"] @ data["factor"].transpose(1, 2)
    ts = torch.tensor([0.0, T1], dtype=torch.float64)
    options = {"step_t": ts[1:]}
    mu, Sigma = odeint(right, start, ts, method="dopri8", rtol=tolerance, atol=tolerance, options=options)
    return mu[-1], Sigma[-1]


def torch_forward(data, tolerance):
    with torch.no_grad():
        mu, Sigma = torch_end(data, tolerance)
    return joined(mu.numpy(), Sigma.numpy())


def torch_gradient(data, tolerance):
    """Of the sum of squares of everything at t = 5, through the steps of the solver."""
    leaves = {name: x.clone().requires_grad_() for name, x in data.items()}
    mu, Sigma = torch_end(leaves, tolerance)
    ((mu**2).sum() + (Sigma**2).sum()).backward()
    return leaves["A"].grad.numpy()


def ours(data, tolerance):
    layers = make_layer(**{name: data[name] for name in ("A", "B", "V", "b")}, lead=1)
    starts = Gaussian(data["mean"], data["factor"])
    return ensemble(layers, starts, t1=T1, rtol=tolerance, atol=tolerance, devices=jax.devices()).final


def vmapped(data, tolerance):
    def one(A, B, V, b, mean, factor):
        flow = MomentFlow(Constant(A=A, B=B, V=V, b=b))
        return solve(flow, Gaussian(mean, factor), t1=T1, method=Tsit5(), rtol=tolerance, atol=tolerance).final

    return jax.vmap(one)(*(data[name] for name in NAMES))


def closed(data):
    """Covariances by one matrix exponential each: V is a multiple of the identity here."""

    def one(A, B, V, b, mean, factor):
        return riccati(make_layer(A=A, B=B, V=V), Gaussian(mean, factor), T1, substeps=4).covariance

    return jax.vmap(one)(*(data[name] for name in NAMES))


def squares(end):
    return jnp.sum(end.mean**2) + jnp.sum(end.covariance**2)


def loosest(run, exact):
    """The loosest tolerance at which `run` is right, and its worst error there."""
    for tolerance in TOLERANCES:
        error = float(np.abs(run(tolerance) - exact).max())
        if error <= ERROR:
            return tolerance, error
    raise AssertionError(f"no tolerance reaches {ERROR}: {error}")


@pytest.mark.parametrize("d", [4, 16])
def test_ensemble(benchmark, d):
    host = systems(d)
    data = {name: jnp.asarray(x) for name, x in host.items()}
    tensors = {name: torch.from_numpy(x) for name, x in host.items()}
    forward, vmap = eqx.filter_jit(ours), eqx.filter_jit(vmapped)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda data, tolerance: squares(ours(data, tolerance))))

    reference = forward(data, 1e-13)
    exact = row(reference)
    few = pick(host, 8)
    np.testing.assert_allclose(exact[:8], scipy_one_by_one(few, 1e-13), atol=1e-11)
    np.testing.assert_allclose(np.asarray(closed(data)).reshape(SYSTEMS, -1), exact[:, d:], atol=1e-11)

    runs = {
        "jaxflow ensemble": lambda tol: row(forward(data, tol)),
        "jaxflow, vmap of Tsit5": lambda tol: row(vmap(pick(data, FEW["vmap"]), tol)),
        "SciPy DOP853, one by one": lambda tol: scipy_one_by_one(pick(host, FEW["one by one"]), tol),
        "torchdiffeq dopri8, batched": lambda tol: torch_forward(pick(tensors, FEW["torchdiffeq"]), tol),
        "SciPy DOP853, stacked": lambda tol: scipy_stacked(pick(host, FEW["stacked"][d]), tol),
    }
    count = {name: len(run(1e-8)) for name, run in runs.items()}
    tolerance = {name: loosest(run, exact[: count[name]]) for name, run in runs.items()}
    print(f"\nd = {d}: tolerance and worst error", {name: (t, f"{e:.1e}") for name, (t, e) in tolerance.items()})

    tol = tolerance["jaxflow ensemble"][0]
    began = time.perf_counter()
    compiled = eqx.filter_jit(functools.partial(ours)).lower(data, tol).compile()
    compile_seconds = time.perf_counter() - began
    closed_form = jax.jit(closed)
    jax.block_until_ready(closed_form(data))
    contestants = {
        "jaxflow ensemble": lambda: jax.block_until_ready(compiled(data, tol)),
        **{
            name: (lambda run=run, t=tolerance[name][0]: run(t))
            for name, run in runs.items()
            if name != "jaxflow ensemble"
        },
        "jaxflow closed form, covariance": lambda: jax.block_until_ready(closed_form(data)),
    }
    count["jaxflow closed form, covariance"] = SYSTEMS
    seconds = medians(contestants, rounds=5)
    per_system = {name: t / count[name] for name, t in seconds.items()}
    report(f"moments, d = {d}, per system (compile {compile_seconds:.1f} s)", per_system)

    torch_tol = tolerance["torchdiffeq dopri8, batched"][0]
    some = pick(tensors, FEW["torchdiffeq"])
    mine = np.asarray(gradient(data, tol)["A"][: FEW["torchdiffeq"]])
    np.testing.assert_allclose(mine, torch_gradient(some, torch_tol), atol=1e-5)
    seconds = medians(
        {
            "jaxflow ensemble": lambda: jax.block_until_ready(gradient(data, tol)),
            "torchdiffeq dopri8, batched": lambda: torch_gradient(some, torch_tol),
        },
        rounds=3,
    )
    with_gradient = {
        "jaxflow ensemble": seconds["jaxflow ensemble"] / SYSTEMS,
        "torchdiffeq dopri8, batched": seconds["torchdiffeq dopri8, batched"] / FEW["torchdiffeq"],
    }
    report(f"with gradients in all matrices and the start, d = {d}, per system", with_gradient)
    benchmark.extra_info.update({**per_system, "compile": compile_seconds, "gradient": with_gradient})
    benchmark.pedantic(lambda: jax.block_until_ready(compiled(data, tol)), rounds=3)
