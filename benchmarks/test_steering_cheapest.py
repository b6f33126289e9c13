"""Least effort with caps on the way: ours against CasADi and IPOPT, problem by problem in alternation.

rng([18870, d, i]); k = 10 equal segments on [0, 1], A, B, V, b free; minimise the mean over segments of
|A|² + |B|² + |V|² + |b|² subject to the exact target and diag Σ ≤ 2·max(diag Σ₀, diag Σ₁) at the nodes. The residual
is that of SciPy's DOP853 at 1e-12, for both. How many: STEERING_PROBLEMS="2:10,4:10,8:3,16:1" in the environment.
"""

import os
import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from ipopt import MultipleShooting
from problems import steering_problem
from test_steering_thousand import true_residual

from jaxflow.control import cheapest
from jaxflow.measures import Gaussian

CAP, SEGMENTS = 2.0, 10
PROBLEMS = dict(map(int, item.split(":")) for item in os.environ.get("STEERING_PROBLEMS", "2:10,4:10").split(","))
PEER_DIMENSIONS = (2, 4)


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
        data = [steering_problem(d, i) for i in range(count)]
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
            line = f"d {d} problem {i}: effort {cost:.5f}, residual {residual:.1e}, room {row[2]:.1e}, {seconds:.2f} s"
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
