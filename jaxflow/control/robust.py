"""steer_many(starts, targets) -> ManyPlan: one control for many Gaussians, and how near it comes where it cannot hit.

    minimise  Σ_i |m_i|² + ¼|S_i − I|²,   m_i = W_i(μ_i − μ_i*),   S_i = W_iΣ_iW_iᵀ   over controls u,   W_iΣ_i*W_iᵀ = I

with W_i scaled to the target as in a Gauss–Newton step (units of its largest deviation across the range). Near the
targets this is Σ W₂², every one in units of its target. Levenberg–Marquardt: with c the residuals and J = ∂c/∂u

    Δ = −Jᵀ(JJᵀ + νI)^{-1} c

the smallest step as ν → 0. It is taken only where the sum of squares of the precise ends falls; ν falls after good
steps and grows after refused ones. J comes from `rough_end`, c from `end_of`. Four searches run side by side, from zero
controls, from the geodesic between the mean start and the mean target, and from two points drawn around it; the best is
kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxflow._checks import check_positive
from jaxflow._typing import Count, Flag, Scalar
from jaxflow.control.frame import frame_of
from jaxflow.control.geodesic import geodesic
from jaxflow.control.plan import misses
from jaxflow.control.problem import Problem, check_allow
from jaxflow.control.running import effort
from jaxflow.control.separate import check_pairs_reachable
from jaxflow.control.shoot import end_of, rough_end
from jaxflow.control.stop import Stop
from jaxflow.errors import InputError
from jaxflow.gaussian import MomentFlow
from jaxflow.linalg import factor_of
from jaxflow.measures import Gaussian
from jaxflow.solve import Dopri8, solve
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Piecewise

PATIENCE = 12
"""After so many steps in a row that were refused, or gained next to nothing, the search gives up."""

GAIN = 1e-8
"""The relative decrease of the sum of squares below which a step gained next to nothing."""

SMALLEST, LARGEST = 1e-15, 1e6
"""Bounds of the damping ν, relative to the largest eigenvalue of JJᵀ."""


DRAWN, SPREAD = 2, 0.4
"""How many searches begin at random controls around those of the geodesic, and how far away (always the same ones)."""


@final
class ManyPlan(eqx.Module):
    """One control for n pairs, and how well it does. Errors are integrated again, more finely than the search did.

    Attributes:
        weights: the layers on [0, t1].
        errors: W₂ of every pair, (n,); inf where the flow blows up.
        residuals: largest absolute error in mean and covariance of every pair, likewise.
        objective: the sum of squares that was minimised, Σ_i |m_i|² + ¼|S_i − I|²: where no control hits, the smallest
            found.
        effort: ∫ |A|² + |B|² + |V|² + |b|² dt.
        iterations: steps tried.
        converged: whether every error is ≤ tolerance.
        stop: a `Stop`, why the search ended: tolerance, stalled (a minimum), iterations, blow_up.
    """

    weights: Piecewise
    errors: Float[Array, " n"]
    residuals: Float[Array, " n"]
    objective: Scalar
    effort: Scalar
    iterations: Count
    converged: Bool[Array, ""]
    stop: Any

    @property
    def error(self) -> Scalar:
        """W₂ of the worst pair."""
        return jnp.max(self.errors)

    @property
    def residual(self) -> Scalar:
        """That of the worst pair."""
        return jnp.max(self.residuals)


def steer_many(
    starts: Sequence[Gaussian],
    targets: Sequence[Gaussian],
    *,
    segments: int = 10,
    t1: float = 1.0,
    allow: str = "ABVb",
    tolerance: float = 1e-9,
    iterations: int = 200,
) -> ManyPlan:
    """Fit one control, constant on equal segments of [0, t1], that carries every start to its own target.

    Attention acts on each Gaussian through its own covariance, K = A + VΣB, and so one control can move several
    Gaussians to several targets, as long as it has more free numbers than there are moments, n·d(d+3)/2. Linear layers
    (A, b) move all by one affine map. Where the targets cannot be hit the plan is the nearest found, in the sum of
    squared residuals, each in units of its target (see the head of this file): read `errors`, `objective` and `stop`.

    Args:
        starts, targets: n ≥ 1 Gaussians each, all of one dimension and rank.
        segments: equal pieces.
        t1: the horizon.
        allow: which of A, B, V, b are free; the others are zero.
        tolerance: stop once W₂ of every pair is ≤ tolerance.
        iterations: Levenberg–Marquardt steps tried at most.

    Returns:
        A ManyPlan, also when the tolerance was not met: look at `converged` and `stop`.

    Raises:
        UnreachableError: a pair that `steer` would refuse; two starts of one covariance whose targets have two, and
            two equal starts whose targets differ. Σ̇ = KΣ + ΣKᵀ knows nothing of the mean, and equal measures stay
            equal.
        InputError: different numbers of starts and targets, or none; unknown controls, mixed precisions, a horizon or
            a tolerance that is not positive.

    Validity: the problem is not convex; a plan with `Stop.stalled` is a local minimum. Different starts with one
    common target are approached and never hit: flows are invertible.
    Cost: per iteration and pair one precise flow and d(d+3)/2 pull-backs, twice, and a symmetric eigenproblem of the
    size of all residuals or all free numbers, whichever are fewer. Works under jit and vmap. Not differentiable.
    """
    check_allow(allow)
    check_positive(tolerance, "tolerance")
    check_positive(iterations, "iterations")
    starts, targets = list(starts), list(targets)
    if len(starts) != len(targets) or not starts:
        raise InputError(
            "must have one target for every start", where="starts, targets",
            got=f"{len(starts)} starts and {len(targets)} targets", expected="as many of one as of the other",
        )  # fmt: skip
    check_pairs_reachable(starts, targets, allow)
    many = jax.lax.stop_gradient(make_many(starts, targets, segments=segments, t1=t1, allow=allow))
    search = search_many(many, tolerance=tolerance, iterations=iterations)
    best = jnp.argmin(search.square)
    u, square, idle = (x[best] for x in (search.u, search.square, search.idle))
    weights = many.weights(u)
    finest = 1e-13 if u.dtype == jnp.float64 else 1e-6

    def measured(start: Gaussian, target: Gaussian) -> tuple[Scalar, Scalar]:
        run = solve(
            MomentFlow(weights), start, t1=float(t1), method=Dopri8(), rtol=finest, atol=finest, save_at=[float(t1)]
        )
        return misses(run, target)

    errors, residuals = jax.vmap(measured)(many.starts, many.targets)
    stop = Stop.where(idle >= PATIENCE, Stop.stalled, Stop.iterations)
    stop = Stop.where(jnp.isinf(square), Stop.blow_up, stop)
    return ManyPlan(
        weights=weights,
        errors=errors,
        residuals=residuals,
        objective=square,
        effort=effort(weights),
        iterations=search.tried,
        converged=jnp.max(errors) <= tolerance,
        stop=Stop.where(search.distance[best] <= tolerance, Stop.tolerance, stop),
    )


@final
class Many(eqx.Module):
    """n pairs and one control, whose free numbers u are those of `middle`, the problem of the mean pair.

    Attributes:
        starts, targets: with a leading axis n.
        W: W_iΣ_i*W_iᵀ = I on the range of Σ_i*, units of its largest deviation across it, (n, d, d).
    """

    middle: Problem
    starts: Gaussian
    targets: Gaussian
    W: Array

    def weights(self, u: Array) -> Any:
        return self.middle.weights(ravel_pytree(self.middle.zero_controls())[1](u))

    def residuals(self, W: Array, end: Gaussian, target: Gaussian) -> Array:
        """(m, (S − I)/2 as a vector of the same norm) of one pair, (d(d+3)/2,)."""
        d = target.dim
        rows, columns = np.tril_indices(d)
        weight = jnp.asarray(np.where(rows == columns, 0.5, np.sqrt(0.5)), W.dtype)
        E = W @ (end.factor @ end.factor.T - target.factor @ target.factor.T) @ W.T
        return jnp.concatenate([W @ (end.mean - target.mean), weight * E[rows, columns]])

    def precise(self, u: Array) -> tuple[Array, Scalar, Scalar]:
        """All residuals, their sum of squares and the largest W₂, both inf where a flow does not arrive."""
        weights = self.weights(u)

        def one(W: Array, start: Gaussian, target: Gaussian) -> tuple[Array, Scalar, Flag]:
            end, arrived = end_of(weights, start, self.middle.t1)
            return self.residuals(W, end, target), wasserstein_gaussian(end, target), arrived

        c, distances, arrived = jax.vmap(one)(self.W, self.starts, self.targets)
        c, square, distance = c.ravel(), jnp.sum(c**2), jnp.max(distances)
        fine = jnp.all(arrived) & jnp.isfinite(square)
        return jnp.where(fine, c, 0), jnp.where(fine, square, jnp.inf), jnp.where(fine, distance, jnp.inf)

    def jacobian(self, u: Array) -> Array:
        """∂c/∂u from a few RK4 steps, (n·d(d+3)/2, size of u)."""
        # Twice those of a single target: here directions that hardly move anything are needed too.
        steps = 2 * self.middle.rough_steps

        def one(W: Array, start: Gaussian, target: Gaussian) -> Array:
            def c(u: Array) -> Array:
                end = rough_end(self.weights(u), start, self.middle.t1, steps)
                return self.residuals(W, end, target)

            return jax.jacrev(c)(u)

        J = jax.vmap(one)(self.W, self.starts, self.targets)
        return J.reshape(-1, u.size)


def make_many(starts: Sequence[Gaussian], targets: Sequence[Gaussian], *, segments: int, t1: float, allow: str) -> Many:
    """The pairs as one problem."""
    first, last = (jax.tree.map(lambda *x: jnp.stack(x), *gaussians) for gaussians in (starts, targets))
    middle = Problem(_mean(first), _mean(last), segments, float(t1), allow, jnp.zeros((), first.mean.dtype))
    return Many(middle, first, last, jax.vmap(frame_of)(last).W)


def _mean(gaussians: Gaussian) -> Gaussian:
    """The Gaussian of their rank nearest to the mean of means and the mean of covariances."""
    return Gaussian(jnp.mean(gaussians.mean, 0), factor_of(jnp.mean(gaussians.covariance, 0), gaussians.rank))


class ManySearch(NamedTuple):
    """Searches under way, with a leading axis: controls, residuals, sum of squares and largest W₂ there, ν relative to
    the largest eigenvalue of the Gram matrix, steps without gain; and how many steps were tried."""

    u: Array
    c: Array
    square: Array
    distance: Array
    damping: Array
    idle: Array
    tried: Count


def search_many(many: Many, *, tolerance: float, iterations: int) -> ManySearch:
    """Levenberg–Marquardt from zero controls, from the geodesic of the mean pair and from around it, until one search
    arrives or none gets on."""
    middle = many.middle
    zero = middle.zero_controls()
    along = middle.along(geodesic(middle.start, middle.target, t1=middle.t1).at, zero)
    u = jnp.stack([ravel_pytree(x)[0] for x in (zero, along)])
    # Attention that is no multiple of I, and not the same everywhere, has more ways to tell Gaussians apart.
    Z = np.random.default_rng(0).normal(size=(DRAWN, u.shape[1]))
    u = jnp.concatenate([u, u[1:] + jnp.asarray(SPREAD * Z, u.dtype)])

    def step(u: Array, c: Array, square: Array, distance: Array, damping: Array, idle: Array) -> tuple[Array, ...]:
        # Where even the first controls blow up there is no residual to go by: halve them.
        J = many.jacobian(u)
        lost = jnp.isinf(square)
        trial = jnp.where(lost, u / 2, u - _step(J, c, damping))
        c_new, square_new, distance_new = many.precise(trial)
        taken = square_new < square
        gained = square_new < (1 - GAIN) * square
        # How much of what the linear model promises for the plain step was had.
        good = square_new < 0.25 * square
        damping = jnp.where(taken, damping / jnp.where(good, 10, 3), damping * 4)
        new = (trial, c_new, square_new, distance_new)
        old = (jnp.where(lost, trial, u), c, square, distance)
        kept = jax.tree.map(lambda x, y: jnp.where(taken, x, y), new, old)
        return *kept, jnp.clip(damping, SMALLEST, LARGEST), jnp.where(gained, 0, idle + 1)

    def going(now: ManySearch) -> Flag:
        return (now.tried < iterations) & jnp.all(now.distance > tolerance) & jnp.any(now.idle < PATIENCE)

    def go(now: ManySearch) -> ManySearch:
        return ManySearch(*jax.vmap(step)(*now[:-1]), now.tried + 1)  # pyright: ignore[reportCallIssue]

    first = ManySearch(
        u, *jax.vmap(many.precise)(u), jnp.full(len(u), 1e-3, u.dtype), jnp.zeros(len(u), int), jnp.asarray(0)
    )
    return jax.lax.while_loop(going, go, first)


def _step(J: Array, c: Array, damping: Array) -> Array:
    """Jᵀ(JJᵀ + νI)^{-1} c = (JᵀJ + νI)^{-1}Jᵀ c, by the smaller of the two; ν relative to the largest eigenvalue."""
    wide = J.shape[0] <= J.shape[1]
    g, U = jnp.linalg.eigh(J @ J.T if wide else J.T @ J)
    share = jnp.where(g > 1e-15 * g[-1], 1 / (jnp.maximum(g, 0) + damping * jnp.maximum(g[-1], 1e-300)), 0)
    rhs = c if wide else J.T @ c
    z = U @ (share * (U.T @ rhs))
    return J.T @ z if wide else z
