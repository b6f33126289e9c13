"""How large do heads become: max_h,t ‖B_h(t)‖₂."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from jaxflow._checks import is_concrete
from jaxflow.weights.random import AbstractRandom
from jaxflow.weights.schedules import AbstractSchedule, Sampled

TIMES = 65


def largest_norm(weights: AbstractSchedule, t0: float, t1: float, *, times: int = TIMES) -> float | None:
    """An estimate of the largest ‖B_h(t)‖₂ (largest singular value) for t0 ≤ t ≤ t1, from so many times in every piece.

    Random schedules are estimated by one path of their own, half again as large. It is for choices of method whose
    errors are watched: a bound it is where B does not depend on t, or convexly, as relaxing and sampled heads do.

    Returns:
        None where the weights are not known yet (under `jit`), or have no heads.
    """
    if not all(is_concrete(leaf) for leaf in jax.tree.leaves(weights)):
        return None
    with jax.ensure_compile_time_eval():
        if weights.at(0.0).B is None:
            return None
        ts = np.linspace(t0, t1, times)
        if isinstance(weights, AbstractRandom):
            path = weights.sample(jax.random.key(0), jnp.asarray(ts))
            return 1.5 * max(_norm(path, ts), _norm(weights, np.array([t0])))
        if isinstance(weights, Sampled):
            ts = np.union1d([t0, t1], np.clip(np.asarray(weights.ts), t0, t1))
            return _norm(weights, ts)
        inner = [t for t in weights.edges if t0 < t < t1]
        return max(_norm(weights, np.linspace(a, b, times)) for a, b in pairwise([t0, *inner, t1]))


def _norm(weights: AbstractSchedule, ts: np.ndarray) -> float:
    """max_h ‖B_h(t)‖₂ over these times."""
    B = jax.vmap(lambda t: weights.at(t).B)(jnp.asarray(ts))
    return float(np.linalg.norm(np.asarray(B), 2, axis=(-2, -1)).max())
