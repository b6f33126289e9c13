"""Gauss–Newton on the manifold of Gaussians: the smallest change of the controls that moves the end the right way.

    J Δ = (μ* − μ, δL Lᵀ + L δLᵀ),   δL = L*R − L,   R = argmin |L − L*R|,   Δ = Jᵀ(JJᵀ + νI)^{-1}(…)

δL is the velocity of the Bures–Wasserstein geodesic from where the controls lead, N(μ, LLᵀ), to the target
N(μ*, L*L*ᵀ). It is tangent to the Gaussians of their rank, and near the target it is minus the residual: the iteration
is then Newton's. Far away a direct step would overshoot (the flow multiplies, and e^{99} is no 100): δL is shortened so
that no direction of L grows by more than its own length in one iteration. A step that does not reduce W₂ is halved; W₂
falls along δL to first order, so that this ends.

Where controls blow up on the way, or no part of a step helps (often so close to blow-up that J is wrong), the search
goes on from elsewhere: first from the geodesic's own A and b (in the middle of every constant piece), which all but
arrive, where A is free; after that from half its controls, because without attention nothing blows up.

"Smallest" is meant in the free numbers that a curve, its bounds and a free horizon have: coefficients c_j, y of
u = y/√(1 + |y|²/r²), and the parameter of T.

J comes from `rough_end`, W₂ and δL from `end_of`: an iteration converges to the precise answer, at a rate that is
the relative error of J.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxflow._typing import Count, Scalar
from jaxflow.control.geodesic import geodesic
from jaxflow.control.problem import Controls, Problem
from jaxflow.control.shoot import end_of, rough_end
from jaxflow.linalg import polar
from jaxflow.measures import Gaussian
from jaxflow.transport import wasserstein_squared

FARTHEST = 1.0
"""The largest relative change ‖δL L⁺‖₂ that one iteration asks for."""

HALVINGS = 8
"""How often a step is halved before it is given up."""

PROGRESS = 1e-3
"""The relative decrease of W₂² below which an iteration counts as stuck."""

SMALLEST, LARGEST = 1e-14, 1e2
"""Bounds of the damping ν, relative to the largest eigenvalue of JJᵀ."""


class NewtonMemory(NamedTuple):
    """What an iteration hands to the next: the step to try, W₂² where it starts, ν, and how often the search has gone
    on from elsewhere. Where W₂² is infinite the controls themselves are on trial."""

    step: Controls
    square: Scalar
    damping: Scalar
    restarts: Count


def first_memory(controls: Controls) -> NewtonMemory:
    """The first iteration tries no step: it looks where the start leads."""
    dtype = jax.tree.leaves(controls)[0].dtype
    still = jax.tree.map(jnp.zeros_like, controls)
    return NewtonMemory(still, jnp.asarray(jnp.inf, dtype), jnp.asarray(SMALLEST, dtype), jnp.asarray(0))


class _Trial(NamedTuple):
    """A point along the step: how far (halvings), where it leads, and W₂² there."""

    halvings: Array
    end: Gaussian
    square: Scalar


def newton_step(problem: Problem, controls: Controls, memory: NewtonMemory) -> tuple[Controls, Gaussian, NewtonMemory]:
    """One iteration: go along the step of the last one as far as W₂ falls, and work out the next.

    Returns: the controls reached, where they lead, and the next memory, whose W₂² is theirs (inf: they are on trial).
    """

    fresh = jnp.isinf(memory.square)
    enough = (1 - PROGRESS) * memory.square

    def at(halvings: Array) -> Controls:
        c = 0.5**halvings
        return jax.tree.map(lambda x, dx: jnp.where(fresh, c * x, x + c * dx), controls, memory.step)

    def look(halvings: Array) -> _Trial:
        end, arrived = end_of(problem.weights(at(halvings)), problem.start, problem.t1)
        square = wasserstein_squared(end, problem.target)
        return _Trial(halvings, end, jnp.where(arrived & jnp.isfinite(square), square, jnp.inf))

    def worse(trial: _Trial) -> Array:
        return ~(trial.square < enough) & (trial.halvings < HALVINGS)

    nowhere = _Trial(jnp.asarray(-1), problem.start, jnp.asarray(jnp.inf, memory.square.dtype))
    trial = jax.lax.while_loop(worse, lambda trial: look(trial.halvings + 1), nowhere)
    taken = trial.square < enough
    elsewhere = jax.tree.map(
        lambda x, y: jnp.where(memory.restarts == 0, x, y / 2), along_geodesic(problem, controls), controls
    )
    controls = jax.tree.map(lambda x, y: jnp.where(taken, x, y), at(trial.halvings), elsewhere)
    damping = jnp.where(trial.halvings == 0, memory.damping / 10, memory.damping)
    damping = jnp.where(trial.halvings > 2, jnp.maximum(damping * 10, 1e-9), damping)
    damping = jnp.clip(damping, SMALLEST, LARGEST)
    step = _direction(problem, controls, trial.end, damping)
    square = jnp.where(taken, trial.square, jnp.inf)
    return controls, trial.end, NewtonMemory(step, square, damping, memory.restarts + ~taken)


def along_geodesic(problem: Problem, controls: Controls) -> Controls:
    """A and b of the geodesic, as closely as curve and bounds can follow it, and the controls of a fresh search for
    what else is free; half of the given controls where A is not free."""
    if "A" not in controls:
        return jax.tree.map(lambda x: x / 2, controls)
    path = geodesic(problem.start, problem.target, t1=problem.t1)
    return problem.along(path.at, controls)


def _direction(problem: Problem, controls: Controls, end: Gaussian, damping: Scalar) -> Controls:
    """Δ, in coordinates where the end is N(·, I) on its range: they change no solution of JΔ = …, and JJᵀ is well
    conditioned in them for thin Gaussians too."""
    d = end.dim
    L = jnp.pad(end.factor, ((0, 0), (0, d - end.rank)))
    Q, s, Zt = jnp.linalg.svd(L)
    inside = s > d * jnp.finfo(s.dtype).eps * s[0]
    scale = jnp.where(inside, s, s[0])
    # Rows of W: s_i^{-1} q_i in the range, and units of s_1 across it.
    W = Q.T / scale[:, None]
    goal = jnp.pad(problem.target.factor, ((0, 0), (0, d - end.rank)))
    dL = goal @ polar(goal.T @ L) - L
    # K moves L by KL = δL, here in the frame Q.
    K = jnp.where(inside[None, :], (Q.T @ dL @ Zt.T) / scale[None, :], 0)
    X = _shortened(K, FARTHEST) * scale[None, :] / scale[:, None]
    rows, columns = np.tril_indices(d)
    kept = inside[columns].astype(s.dtype)
    wanted = jnp.concatenate([(problem.target.mean - end.mean) / s[0], kept * (X + X.T)[rows, columns]])

    flat, unravel = ravel_pytree(controls)

    def rough(flat: Array) -> tuple[Array, Array]:
        now = rough_end(problem.weights(unravel(flat)), problem.start, problem.t1, problem.rough_steps)
        return now.mean, now.factor

    # The derivatives of μ/s_1 and of (WΣWᵀ)_ij in μ and L; with Y = WL the latter are w_i Y_jᵀ + w_j Y_iᵀ.
    (_, factor), pull_back = jax.vjp(rough, flat)
    Y = W @ factor
    across = W[rows, :, None] * Y[columns, None, :]
    across = kept[:, None, None] * (across + W[columns, :, None] * Y[rows, None, :])
    none = jnp.zeros((len(rows), d), s.dtype)
    (J,) = jax.vmap(pull_back)(
        (
            jnp.concatenate([jnp.eye(d, dtype=s.dtype) / s[0], none]),
            jnp.concatenate([jnp.zeros((d, *factor.shape), s.dtype), across]),
        )
    )
    g, U = jnp.linalg.eigh(J @ J.T)
    # Rows across the range that no control can move to first order are zero in J and in what is wanted.
    weights = jnp.where(g > 1e-15 * g[-1], 1 / (jnp.maximum(g, 0) + damping * g[-1]), 0)
    return unravel(J.T @ (U @ (weights * (U.T @ wanted))))


def _shortened(X: Array, most: float) -> Array:
    """X with singular values of at most this."""
    U, s, Vt = jnp.linalg.svd(X)
    return (U * jnp.minimum(s, most)[None, :]) @ Vt
