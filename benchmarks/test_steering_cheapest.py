"""Least effort with caps on the way: ours against CasADi and IPOPT, problem by problem in alternation.

rng([18870, d, i]); k = 10 equal segments on [0, 1], A, B, V, b free; minimise the mean over segments of
|A|² + |B|² + |V|² + |b|² subject to the exact target and diag Σ ≤ 2·max(diag Σ₀, diag Σ₁) at the nodes. The residual
is that of SciPy's DOP853 at 1e-12, for both. How many: STEERING_PROBLEMS="2:10,4:10,8:3,16:1" in the environment, from
number STEERING_FIRST on, IPOPT in the dimensions STEERING_PEER="2,4". Then batches, dealt to all devices:
STEERING_BATCH="4:64".
"""

import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from ipopt import MultipleShooting
from problems import steering_problem
from test_steering_thousand import true_residual

from jaxflow.control import Stop, cheapest
from jaxflow.measures import Gaussian
from jaxflow.solve.spread import spread

CAP, SEGMENTS = 2.0, 10


def sizes(name, default):
    """{dimension: how many} from the environment."""
    return dict(map(int, item.split(":")) for item in os.environ.get(name, default).split(","))


PROBLEMS, BATCHES = sizes("STEERING_PROBLEMS", "2:10,4:10"), sizes("STEERING_BATCH", "4:64")
FIRST = int(os.environ.get("STEERING_FIRST", "0"))
PEER_DIMENSIONS = [int(d) for d in os.environ.get("STEERING_PEER", "2,4").split(",")]


def search(mean0, L0, mean1, L1):
    plan = cheapest(Gaussian(mean0, L0), Gaussian(mean1, L1), segments=SEGMENTS, cap=CAP, tolerance=1e-4)
    layers = plan.weights.layers
    controls = {"A": layers.A, "B": layers.B[:, 0], "V": layers.V[:, 0], "b": layers.b}
    return controls, plan.cost, plan.room, plan.stop, plan.iterations


def residual_of(controls, data):
    try:
        return true_residual(controls, *data)
    except (ValueError, FloatingPointError, IndexError):
        return np.inf


def test_least_effort_under_caps(benchmark):
    lines = []
    for d, count in PROBLEMS.items():
        data = [steering_problem(d, FIRST + i) for i in range(count)]
        began = time.perf_counter()
        compiled = eqx.filter_jit(search).lower(*map(jnp.asarray, data[0])).compile()
        compile_seconds = time.perf_counter() - began
        peer = None
        if d in PEER_DIMENSIONS:
            peer = MultipleShooting(d, SEGMENTS, cap=CAP)
        rows = []
        for i, problem in enumerate(data):
            began = time.perf_counter()
            controls, cost, room, _, iterations = compiled(*map(jnp.asarray, problem))
            cost = float(cost)
            seconds = time.perf_counter() - began
            residual = residual_of({name: np.asarray(x) for name, x in controls.items()}, problem)
            row = [residual, cost, float(room), seconds, int(iterations)]
            line = f"d {d} problem {FIRST + i}: effort {cost:.5f}, residual {residual:.1e}, room {row[2]:.1e}, "
            line += f"{seconds:.2f} s"
            if peer is not None:
                theirs, effort, says, peer_seconds = peer.solve(*problem)
                row += [residual_of(theirs, problem), effort, says, peer_seconds]
                word = "done" if says else "not done"
                line += f" | IPOPT {effort:.5f}, {word}, residual {row[5]:.1e}, {peer_seconds:.2f} s"
            print(line, flush=True)
            rows.append(row)
        table = np.array(rows, float)
        hits = (table[:, 0] <= 1e-8) & (table[:, 2] > 0)
        ours = np.median(table[:, 3])
        line = f"d {d}: {hits.sum()} of {count} truly solved, {ours:.2f} s median, compile {compile_seconds:.0f} s"
        if peer is not None:
            truly = (table[:, 5] <= 1e-8) & (table[:, 7] > 0)
            line += (
                f"; IPOPT {int(table[:, 7].sum())} by its own word, {truly.sum()} truly, "
                f"{np.median(table[:, 8]):.2f} s; ratio of times, median {np.median(table[:, 8] / table[:, 3]):.1f}"
            )
            assert (table[truly, 1] <= 1.01 * table[truly, 6]).all()
        print(line, flush=True)
        lines.append(line)
        assert hits.all()
    benchmark.extra_info.update(lines=lines)
    benchmark.pedantic(lambda: None, rounds=1)


def test_a_batch_under_caps(benchmark):
    """Every device solves its share one after the other: `vmap` of `cheapest` is a loop on a CPU."""
    lines = []
    for d, count in BATCHES.items():
        data = [steering_problem(d, i) for i in range(count)]
        stacked = [jnp.asarray(np.stack(x)) for x in zip(*data)]

        def several(rows):
            return jax.vmap(lambda row: search(*row))(rows)

        began = time.perf_counter()
        compiled = jax.jit(lambda rows, several=several: spread(several, rows, jax.devices())).lower(stacked).compile()
        compile_seconds, seconds = time.perf_counter() - began, []
        for _ in range(3):
            began = time.perf_counter()
            controls, _, room, stop, iterations = jax.block_until_ready(compiled(stacked))
            seconds.append(time.perf_counter() - began)
        controls = [{name: np.asarray(x[i]) for name, x in controls.items()} for i in range(count)]
        residual = np.array([residual_of(*pair) for pair in zip(controls, data)])
        hits = (residual <= 1e-8) & (np.asarray(room) > 0)
        line = (
            f"d {d}, batch of {count} on {len(jax.devices())} devices: {hits.sum()} truly solved, residual worst "
            f"{residual.max():.1e}, {int((stop == Stop.minimum).sum())} minima, iterations median "
            f"{np.median(iterations):.0f}, {np.median(seconds) / count:.3f} s a problem, "
            f"compile {compile_seconds:.0f} s"
        )
        print(line, flush=True)
        lines.append(line)
        assert hits.all()
    benchmark.extra_info.update(lines=lines)
    benchmark.pedantic(lambda: None, rounds=1)
