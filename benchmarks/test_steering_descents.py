"""Adam and L-BFGS beside Gauss–Newton on the same steering problems: how near do they come, and in what time?

The first problems of full rank of each dimension, ten segments, A, B, V, b free, no weight on the effort, from zero
controls; all problems of a dimension side by side (vmap). The residual is the largest error in mean and covariance
after the layers are integrated again by Dopri8 at 1e-13. How many: DESCENTS="2:10,4:10" in the environment.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from problems import steering_problem

from jaxflow.control import steer
from jaxflow.measures import Gaussian

PROBLEMS = dict(map(int, item.split(":")) for item in os.environ.get("DESCENTS", "2:10,4:10").split(","))
METHODS = {"gauss-newton": 100, "lbfgs": 300, "adam": 2000}


def test_descents_beside_gauss_newton(benchmark):
    lines = []
    for d, count in PROBLEMS.items():
        data = [jnp.asarray(np.stack(x)) for x in zip(*(steering_problem(d, i) for i in range(count)))]
        for method, iterations in METHODS.items():

            def search(mean0, L0, mean1, L1, method=method, iterations=iterations):
                plan = steer(
                    Gaussian(mean0, L0), Gaussian(mean1, L1), method=method, iterations=iterations, effort=0.0,
                    tolerance=1e-11, rtol=1e-10, atol=1e-10,
                )  # fmt: skip
                return plan.error, plan.residual, plan.iterations

            began = time.perf_counter()
            compiled = jax.jit(jax.vmap(search)).lower(*data).compile()
            built = time.perf_counter()
            error, residual, taken = jax.block_until_ready(compiled(*data))
            seconds = time.perf_counter() - built
            line = (
                f"d {d} {method}: residual ≤ 1e-10 {int((residual <= 1e-10).sum())} of {count}, W₂ ≤ 1e-3 "
                f"{int((error <= 1e-3).sum())}, residual median {float(jnp.median(residual)):.1e} worst "
                f"{float(residual.max()):.1e}, iterations median {int(jnp.median(taken))}, {seconds / count:.2f} s a "
                f"problem, compile {built - began:.0f} s"
            )
            print(line, flush=True)
            lines.append(line)
            if method == "gauss-newton":
                assert (residual <= 1e-10).all()
    benchmark.extra_info.update(lines=lines)
    benchmark.pedantic(lambda: None, rounds=1)
