"""How is one cloud on the sphere followed, again and again under other heads or from another start?

What stability, perturbation, limits and jko share: tokens on the sphere, weights that are the same in every run, one
compiled program, and the worst outcome of all runs.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.experiments import build
from jaxflow.experiments.job import State
from jaxflow.experiments.schema import tokens as T
from jaxflow.experiments.schema import weights as W
from jaxflow.experiments.schema.solve import Solve
from jaxflow.experiments.tallies import OUTCOMES
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import AbstractObservable, make_grid, solve
from jaxflow.solve.solution import ADVICE
from jaxflow.weights import AbstractRandom, AbstractSchedule

VIOLATED = "violated"
"""Status of a run whose numbers break a bound that is proved."""

TIMES = 2001
"""So many times of every piece of the weights are asked for the largest norm of the heads."""


def tokens(table: T.Tokens, key: Any, *, folder: Path, precision: str) -> Cloud:
    """The cloud of a checked table, its points of length 1 to rounding."""
    cloud = build.cloud(table, key, folder=folder, precision=precision)
    return Cloud(Sphere().retract(cloud.points), cloud.log_weights)


def schedule(table: W.Weights, key: Any, *, dim: int, precision: str, times: Solve) -> AbstractSchedule:
    """The weights of a checked table; of random ones, one path on the steps of `times`, which every run then shares."""
    made = build.schedule(table, key, dim=dim, precision=precision)
    if not isinstance(made, AbstractRandom):
        return made
    assert times.dt is not None  # noisy weights are followed by fixed steps
    steps = make_grid(0.0, times.t1, dt=times.dt, edges=(), save_every=1, save_at=None).ts
    return made.sample(build.stream(key, "noise"), jnp.asarray(np.append(0.0, steps), precision))


def static(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The keyword arguments of `solve` in hashable form, so that they are part of the compiled program."""
    return tuple((name, tuple(x) if isinstance(x, list) else x) for name, x in options.items())


@eqx.filter_jit
def follow(flow: AttentionFlow, cloud: Cloud, options: Any, observe: AbstractObservable | None = None) -> Any:
    """`solve`, compiled once for all runs that differ in values alone."""
    return solve(flow, cloud, observe=observe, **dict(options))


def appended(state: State, **rows: Any) -> State:
    """The state with one more row at the end of each of these arrays."""
    new = {name: np.asarray(row)[None] for name, row in rows.items()}
    return {**state, **{name: np.concatenate([state[name], x]) if name in state else x for name, x in new.items()}}


def verdict(outcomes: np.ndarray, *, violations: int = 0) -> dict[str, str]:
    """`status`, and `advice` where there is something to do: the worst outcome, or that a bound was broken."""
    worst = OUTCOMES[int(np.max(outcomes))]
    if worst == "done" and violations:
        advice = "a proved bound was broken: shorten solve.dt (or tighten solve.rtol); if it stays, report the config"
        return {"status": VIOLATED, "advice": advice}
    return {"status": worst, **({"advice": ADVICE[worst]} if worst in ADVICE else {})}


def curves(points: np.ndarray, cloud: Cloud) -> Cloud:
    """Saved points (t, n, d) with the weights of `cloud` at every time."""
    log_w = cloud.log_weights
    lead = jnp.asarray(points)
    return Cloud(lead, None if log_w is None else jnp.broadcast_to(log_w, lead.shape[:2]))


def root(seed: int) -> Any:
    """The key from which all streams of a run come."""
    return jax.random.key(seed)
