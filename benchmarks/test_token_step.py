"""One Euler–Maruyama step of the S² experiment with every term of the energy balance, against plain PyTorch.

n = 200 tokens, d = 3, float64, Ornstein–Uhlenbeck heads; the peer materialises the (paths, heads, n, n) array, as
published scripts do. It is given 1, 2, 5 and 10 paths at once, and compared at its fastest. jaxflow runs one path by
itself, and ten, one after the other on every device. pairs = paths · heads · n².
"""

import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interleave import medians, report
from jax.sharding import Mesh, PartitionSpec

from jaxflow.particles import AttentionFlow, balance, octahedral
from jaxflow.particles.energy import ito, work
from jaxflow.solve import Euler, begin, make_grid, march
from jaxflow.weights import OrnsteinUhlenbeck, random_heads

torch = pytest.importorskip("torch", reason="the peer is PyTorch: pip install -e '.[bench]'")

N, DIM, DT, STEPS = 200, 3, 5e-3, 10
PATHS = 10


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


def ensemble_run(run, flow, first):
    """PATHS equal paths, dealt to the devices, which take them one after the other."""
    count = max(k for k in range(1, len(jax.devices()) + 1) if PATHS % k == 0)
    mesh, over = Mesh(np.array(jax.devices()[:count]), ("paths",)), PartitionSpec("paths")
    carries = jax.tree.map(lambda x: jnp.stack([x] * PATHS), first)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=over, out_specs=over, check_vma=False)
    def several(carries):
        return jax.lax.map(lambda carry: run(flow, carry), carries)

    return several, carries


@pytest.mark.parametrize("heads", [10, 100])
def test_step_with_all_diagnostics(benchmark, heads):
    run, flow, first = jaxflow_run(heads)
    began = time.perf_counter()
    compiled = run.lower(flow, first).compile()
    compile_seconds = time.perf_counter() - began
    several, carries = ensemble_run(run, flow, first)

    x, D = torch.tensor(np.asarray(first.y))[None], torch.tensor(np.asarray(first.noise))[None]
    state = flow.join(first.y, None)
    energy, slope, rate, *_ = balance.measure(flow, 0.0, state, flow.weights, first.noise)
    terms = flow.field(0.0, state, flow.weights.at(0.0, first.noise))[1]
    drift = flow.weights.drift(0.0, first.noise)
    ours = [energy, rate, slope, work(state, terms, drift), ito(state, terms, flow.weights.noise_var)]
    _, _, peer = torch_step(x, D, torch.zeros_like(D))
    np.testing.assert_allclose([float(y.squeeze()) for y in peer[:5]], ours, rtol=1e-12)

    def theirs(paths, steps):
        y, E = x.repeat(paths, 1, 1), D.repeat(paths, 1, 1, 1)
        with torch.no_grad():
            for _ in range(steps):
                y, E, _ = torch_step(y, E, torch.randn_like(E) * DT**0.5)

    few = {paths: 1 if paths * heads > 100 else STEPS for paths in (1, 2, 5, 10)}
    contestants = {
        "jaxflow, one path": lambda: jax.block_until_ready(compiled(flow, first)),
        f"jaxflow, {PATHS} paths on {len(jax.devices())} devices": lambda: jax.block_until_ready(several(carries)),
        **{f"PyTorch, {paths} at once": partial(theirs, paths, steps) for paths, steps in few.items()},
    }
    done = [STEPS, STEPS * PATHS, *(paths * steps for paths, steps in few.items())]
    seconds = medians(contestants, rounds=15 if heads < 100 else 7)
    per_step = {name: value / n for (name, value), n in zip(seconds.items(), done, strict=True)}
    report(f"token step, H = {heads}, per path (compile {compile_seconds:.1f} s)", per_step)
    alone, together, *peers = per_step.values()
    ours_best = min(alone, together)
    pairs = heads * N * N / ours_best
    print(f"  jaxflow: {1 / ours_best:.0f} steps/s of a path, {pairs / 1e6:.0f} million pairs/s")
    print(
        f"  ratio to PyTorch at its fastest {min(peers) / ours_best:.1f}, at {PATHS} paths {peers[-1] / ours_best:.1f}"
    )
    benchmark.extra_info.update({**per_step, "compile": compile_seconds, "pairs_per_second": pairs})
    benchmark.pedantic(contestants["jaxflow, one path"], rounds=3)
