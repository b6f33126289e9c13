"""The steering problems that everyone is given: rng([18870, d, i]), then μ₀, L₀, μ₁, L₁ in this order; and
how a thousand of them are run."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 17


def steering_problem(d, i, r=None):
    """μ₀, L₀, μ₁, L₁ of problem i in dimension d; for rank r < d the columns of L after the first r are zero, so that
    arrays of all ranks stack."""
    rng = np.random.default_rng([18870, d, i])
    data = []
    for _ in range(2):
        mean, L = rng.normal(size=d), rng.normal(size=(d, d)) / np.sqrt(d) + 0.2 * np.eye(d)
        L[:, d if r is None else r :] = 0
        data += [mean, L]
    return data


def thousand():
    """(d, [(i, r), ...]) with d = 2..16, every rank 1..d in turn: 67 problems each for d ≤ 11, 66 above."""
    return [(d, [(i, i % d + 1) for i in range(67 if d <= 11 else 66)]) for d in range(2, 17)]


def asked(first=None):
    """(d, data of its problems) for every dimension in DIMENSIONS of the environment, by default all; the first few."""
    wanted = os.environ.get("DIMENSIONS", ",".join(map(str, range(2, 17)))).split(",")
    return [
        (d, [steering_problem(d, i, r) for i, r in problems[:first]]) for d, problems in thousand() if str(d) in wanted
    ]


def batches(data):
    """(BATCH problems stacked, how many of them count): the last batch is filled up with problems seen before."""
    for at in range(0, len(data), BATCH):
        some = (data[at : at + BATCH] + data * BATCH)[:BATCH]
        yield [jnp.asarray(np.stack(x)) for x in zip(*some)], min(BATCH, len(data) - at)


def compiled_for(run, data, clock=time.perf_counter):
    """The program for batches of these, and the seconds that compiling took."""
    first, _ = next(batches(data))
    began = clock()
    return jax.jit(run).lower(*first).compile(), clock() - began


def timed(program, given, clock=time.perf_counter):
    """What it returns, and in how many seconds."""
    began = clock()
    return jax.block_until_ready(program(*given)), clock() - began
