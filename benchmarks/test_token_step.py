"""One Euler–Maruyama step of the S² experiment with every term of the energy balance, against plain PyTorch.

n = 200 tokens, d = 3, float64, Ornstein–Uhlenbeck heads; the peer materialises the (paths, heads, n, n) array, as
published scripts do. pairs = paths · heads · n².
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interleave import medians, report

from jaxflow.particles import AttentionFlow, balance, octahedral
from jaxflow.solve import Euler, begin, make_grid, march
from jaxflow.weights import OrnsteinUhlenbeck, random_heads

torch = pytest.importorskip("torch", reason="the peer is PyTorch: pip install -e '.[bench]'")

N, DIM, DT, STEPS = 200, 3, 5e-3, 10


def jaxflow_run(heads):
    """A compiled function that takes STEPS steps of one path, and its first carry."""
    weights = OrnsteinUhlenbeck(initial=random_heads(jax.random.key(0), heads=heads, dim=DIM), mean=jnp.eye(DIM))
    flow = AttentionFlow(weights, direction="descend")
    cloud = octahedral(jax.random.key(1), n=N)
    flow = balance.prepare(flow, cloud)
    key = jax.random.key(2)
    grid = make_grid(0.0, STEPS * DT, dt=DT)
    first = begin(flow, cloud, t0=0.0, observable=balance, key=key)

    @eqx.filter_jit
    def run(flow, carry):
        return march(flow, carry, grid, method=Euler(), observable=balance, key=key)[0]

    return run, flow, first


def torch_step(x, D, noise):
    """The same step and diagnostics in plain PyTorch: x (p, n, d), D (p, h, d, d)."""
    w = 1 / x.shape[1]
    e = torch.exp(torch.einsum("phij,pnj,pmi->phnm", D, x, x).transpose(-1, -2))
    m = e.mean(-1)
    a = torch.einsum("phnm,pmd->phnd", e, x) * w / m[..., None]
    Da = torch.einsum("phij,phnj->phni", D, a)

    def project(u):
        return u - (u * x).sum(-1, keepdim=True) * x

    v = project(-Da.mean(1))
    g = project((m[..., None] * Da).mean(1))
    rate = -(g * v).sum(-1).mean(-1)
    slope = ((v * v).sum(-1) / (1 / m).mean(1)).mean(-1)
    energy = 0.5 * m.mean((1, 2))
    drift = torch.eye(x.shape[-1], dtype=x.dtype) - D
    cosine = torch.einsum("pnd,pmd->pnm", x, x)
    work = 0.5 * (torch.einsum("pnd,phde,phne->phn", x, drift, a) * m).mean((1, 2))
    ito = 0.25 * torch.einsum("phnm,pnm->", e, 1 + cosine**2) * w**2 / D.shape[1] / D.shape[0]
    new = x + DT * v
    dD = DT * drift + noise
    martingale = 0.5 * (torch.einsum("pnd,phde,phne->phn", x, noise, a) * m).mean((1, 2))
    return new / new.norm(dim=-1, keepdim=True), D + dD, (energy, rate, slope, work, ito, martingale)


@pytest.mark.parametrize("heads", [10, 100])
def test_step_with_all_diagnostics(benchmark, heads):
    run, flow, first = jaxflow_run(heads)
    began = time.perf_counter()
    compiled = run.lower(flow, first).compile()
    compile_seconds = time.perf_counter() - began

    x, D = torch.tensor(np.asarray(first.y))[None], torch.tensor(np.asarray(first.noise))[None]
    state = flow.join(first.y, None)
    energy, slope, rate, *_ = balance.measure(flow, 0.0, state, flow.weights, first.noise)
    _, _, peer = torch_step(x, D, torch.zeros_like(D))
    np.testing.assert_allclose([float(y[0]) for y in peer[:3]], [energy, rate, slope], rtol=1e-12)

    def ours():
        jax.block_until_ready(compiled(flow, first))

    def theirs():
        y, E = x, D
        with torch.no_grad():
            for _ in range(STEPS):
                y, E, _ = torch_step(y, E, torch.randn_like(E) * DT**0.5)

    seconds = medians({"jaxflow": ours, "PyTorch": theirs})
    per_step = {name: value / STEPS for name, value in seconds.items()}
    report(f"token step, H = {heads}, one path (compile {compile_seconds:.1f} s)", per_step)
    pairs = heads * N * N / per_step["jaxflow"]
    print(f"  jaxflow: {1 / per_step['jaxflow']:.0f} steps/s, {pairs / 1e6:.0f} million pairs/s")
    benchmark.extra_info.update({**per_step, "compile": compile_seconds, "pairs_per_second": pairs})
    benchmark.pedantic(ours, rounds=3)
