"""Adam and L-BFGS on the thousand problems of `test_steering_thousand.py`: how near do they come, and in what time?

k = 10 segments, A, B, V, b free, no weight on the effort, from zero controls, moments at 1e-12 during the search. The
residual is the largest error in mean and covariance after Dopri8 at 1e-13 has integrated the layers again. Problems
are worked on one after the other, because side by side all would wait for the slowest; times are those of the
processor. A part of them: DIMENSIONS="11,12" in the environment; ITERATIONS="adam:1000" for other methods and numbers
of iterations; FIRST="17" for so many problems of each dimension.
"""

import os
import time

import jax
import numpy as np
from problems import BATCH, asked, batches, compiled_for, timed

from jaxflow.control import steer
from jaxflow.measures import Gaussian

ITERATIONS = [item.split(":") for item in os.environ.get("ITERATIONS", "lbfgs:300,adam:500").split(",")]
FIRST = int(os.environ.get("FIRST", "67"))


def search_of(method, iterations):
    def search(given):
        mean0, L0, mean1, L1 = given
        plan = steer(
            Gaussian(mean0, L0), Gaussian(mean1, L1), method=method, iterations=iterations, effort=0.0,
            tolerance=1e-11, rtol=1e-12, atol=1e-12,
        )  # fmt: skip
        return plan.residual, plan.error, plan.iterations

    return search


def test_descents_on_the_thousand(benchmark):
    lines = []
    for method, iterations in ITERATIONS:
        search = search_of(method, int(iterations))

        def run(*given, search=search):
            return jax.lax.map(search, given)

        for d, data in asked(FIRST):
            compiled, compile_seconds = compiled_for(run, data, time.process_time)
            seconds, found = [], []
            for some, count in batches(data):
                values, spent = timed(compiled, some, time.process_time)
                # A last batch that was filled up has taken the time of a whole one.
                seconds.append(spent / BATCH)
                found += list(zip(*(np.asarray(x)[:count] for x in values)))
            residual, error, taken = (np.array(x) for x in zip(*found))
            line = (
                f"d {d:2d} {method:5s}: residual ≤ 1e-10 {int((residual <= 1e-10).sum())} of {len(found)}, W₂ ≤ 1e-3 "
                f"{int((error <= 1e-3).sum())}, residual median {np.median(residual):.1e} worst {residual.max():.1e}, "
                f"iterations median {np.median(taken):.0f} (at most {iterations}), "
                f"{np.mean(seconds):.3f} s a problem, compile {compile_seconds:.0f} s"
            )
            print(line, flush=True)
            lines.append(line)
    benchmark.extra_info.update(lines=lines)
    benchmark.pedantic(lambda: None, rounds=1)
