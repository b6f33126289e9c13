"""One path of random weights, with steps of its own, along a Brownian path that does not depend on them.

    dD = f(t, D) dt + g(t, D) dW_sym,      W_sym = (W + Wᵀ)/2

W is a virtual Brownian tree: its values are fixed by the key alone, so that halving dt refines one and the same path.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array

from jaxflow._checks import check_positive
from jaxflow._typing import PRNGKey
from jaxflow.errors import InputError
from jaxflow.weights import AbstractRandom, Sampled
from jaxflow.weights.diffusion import over_heads
from jaxflow.weights.random import path_of, symmetric_part

FINEST = 2.0**-18
"""The resolution of the Brownian path, as a part of the whole time."""


def sample_weights(weights: AbstractRandom, key: PRNGKey, ts: Sequence[float] | np.ndarray, *, dt: float) -> Sampled:
    """One path of these weights on the times ts, by diffrax's Euler–Maruyama method with steps ≤ dt.

    Args:
        weights: a `Diffusion` or an `OrnsteinUhlenbeck`, which starts from its initial heads at ts[0].
        key: fixes the Brownian path. It is another path than the one a run with this key would draw step by step.
        ts: increasing times, known before tracing.
        dt: largest step.

    Returns:
        A deterministic schedule: give it to a flow and solve by any method. Between times of ts heads go straight.

    Raises:
        InputError: times that do not increase, or a dt below 2^{−16} of the whole time.

    Strong order 1 in dt if g does not depend on D, ½ otherwise. Derivatives, vmap over keys: as for `solve`.
    """
    times = np.asarray(ts, float)
    if times.ndim != 1 or times.size < 2 or not (np.diff(times) > 0).all():
        raise InputError("must be at least two increasing times", where="ts", got=times.tolist())
    check_positive(dt, "dt")
    span = float(times[-1] - times[0])
    if dt < 4 * FINEST * span or np.diff(times).min() < 4 * FINEST * span:
        raise InputError(
            "is finer than the Brownian path",
            where="dt",
            got=min(dt, float(np.diff(times).min())),
            expected=f"steps of at least {4 * FINEST * span:.3g}",
            fix="sample a shorter stretch of time, or take a larger step",
        )
    D0 = weights.begin(None)
    grid = [
        np.linspace(start, end, int(np.ceil((end - start) / dt * (1 - 1e-12))) + 1)[:-1]
        for start, end in itertools.pairwise(times)
    ]
    steps = jnp.asarray(np.append(np.concatenate(grid), times[-1]), D0.dtype)
    shape = jax.ShapeDtypeStruct(D0.shape, D0.dtype)
    brownian = diffrax.VirtualBrownianTree(steps[0], steps[-1], tol=FINEST * span, shape=shape, key=key)

    def noise(t: Any, D: Array, args: Any) -> lx.AbstractLinearOperator:
        g = over_heads(weights.amplitude(t, D), D)
        return lx.FunctionLinearOperator(lambda W: g * symmetric_part(W), shape)

    sol = diffrax.diffeqsolve(
        diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, D, args: weights.drift(t, D)),  # pyright: ignore[reportArgumentType]
            diffrax.ControlTerm(noise, brownian),  # pyright: ignore[reportArgumentType]
        ),
        diffrax.Euler(),
        steps[0],
        steps[-1],
        None,
        D0,
        saveat=diffrax.SaveAt(ts=jnp.asarray(times, D0.dtype)),
        stepsize_controller=diffrax.StepTo(ts=steps),
        max_steps=len(steps),
        throw=False,
    )
    assert sol.ys is not None
    return path_of(weights, jnp.asarray(times, D0.dtype), sol.ys)
