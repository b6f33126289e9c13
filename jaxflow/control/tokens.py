"""steer_tokens(start, target, ...) -> TokenPlan: clouds carried to clouds by one control."""

from collections.abc import Sequence
from typing import Literal, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow._checks import check_positive, is_concrete
from jaxflow._typing import Count, PRNGKey, Real, Scalar
from jaxflow.control.problem import effort as effort_of
from jaxflow.control.stop import Stop, name_of
from jaxflow.control.token_checks import check_pairs, check_tokens_reachable
from jaxflow.control.token_problem import Loss, TokenProblem, distances_of
from jaxflow.control.token_search import TOKEN_METHODS, TokenMethod, TokenSearch, advance_tokens, begin_tokens
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.measures import Cloud
from jaxflow.solve import RK4
from jaxflow.solve.methods import AbstractFixed
from jaxflow.weights import Piecewise

TOKEN_ITERATIONS = {"adam": 500, "lbfgs": 200}
"""Iterations allowed when none are given."""


@final
class TokenPlan(eqx.Module):
    """Layers that steer clouds, and how well: the best that the search has seen.

    Attributes:
        weights: h-headed layers; hand them to `AttentionFlow`.
        ends: where the clouds end under them.
        distances: √loss of every pair, re-integrated with half the step, (p,): the sliced distance, the square root of
            the energy distance, or the root of the Sinkhorn divergence; inf where tokens do not stay finite.
        effort: ∫ |A|² + Σ_h |B_h|² + |V_h|² + |b|² dt.
        history: (objective, distance of the worst pair) for every iteration, (iterations, 2).
        iterations: steps taken.
        converged: whether every distance is ≤ tolerance.
        stop: a `Stop`.
    """

    weights: Piecewise
    ends: tuple[Cloud, ...]
    distances: Float[Array, " p"]
    effort: Scalar
    history: Float[Array, "i 2"]
    iterations: Count
    converged: Bool[Array, ""]
    stop: Stop

    @property
    def distance(self) -> Scalar:
        """That of the worst pair."""
        return jnp.max(self.distances)

    @property
    def reason(self) -> str:
        """The name of `stop`, on the host: "tolerance", "iterations", "stalled" or "nonfinite"."""
        return name_of(self.stop)


def steer_tokens(
    start: Cloud | Sequence[Cloud],
    target: Cloud | Sequence[Cloud],
    *,
    segments: int = 10,
    t1: float = 1.0,
    heads: int = 1,
    allow: str = "ABVb",
    loss: Loss = "sliced",
    epsilon: float = 0.05,
    effort: Real = 1e-3,
    method: TokenMethod = "lbfgs",
    geometry: AbstractGeometry | None = None,
    law: Literal["softmax", "unnormalized"] = "softmax",
    tolerance: float = 1e-2,
    iterations: int | None = None,
    learning_rate: float = 0.05,
    key: PRNGKey | None = None,
    warm_start: Piecewise | None = None,
    integrator: AbstractFixed | None = None,
    dt: float | None = None,
) -> TokenPlan:
    """Fit one multi-head layer, constant on equal segments of [0, t1], that carries every start to its target.

    Minimises the mean over pairs of loss(cloud at t1, target) plus effort·∫|A|²+Σ_h|B_h|²+|V_h|²+|b|² dt by gradient
    descent through the particle flow, whose memory is O(√steps) clouds. Each cloud is a measure of its own and attends
    to itself; it is attention that lets one control act differently on two clouds. The weight of the effort fades to
    zero over the iterations.

    Args:
        start, target: one Cloud each, or as many of one as of the other; n and m may differ.
        segments: k. heads: h, of B and V.
        allow: which controls are free; the others are zero.
        loss: "sliced" (SW₂² along fixed lines; the quickest), "energy", or "sinkhorn" (`epsilon`; extra `ot`).
        effort: its weight λ.
        geometry: None or `Sphere()`; `Euclidean()`.
        tolerance: stop once the distance, √loss, of every pair is ≤ tolerance. n samples of one and the same measure
            are about n^{-1/2} apart: less is a match of samples.
        iterations: at most so many (default 500 for adam, 200 for lbfgs).
        learning_rate: of Adam; decays to a hundredth over `iterations`.
        key: draws the heads' first B, without which several heads would stay equal. Needed for heads > 1 unless
            `warm_start` is given; vmap over keys for restarts.
        warm_start: a schedule with the same segments and heads to begin from.
        integrator, dt: fixed steps (default `RK4()` with twenty in all, or one a segment).

    Returns:
        A TokenPlan, also when the tolerance was not met: look at `converged` and `stop`.

    Raises:
        UnreachableError: equal starts with different targets: one control cannot separate equal measures. Without b,
            mirror images whose targets are none.
        InputError: different numbers of starts and targets, clouds that cannot be compared, tokens off the sphere, a
            horizon that is not positive, unknown controls, several heads without B or without a key.

    Validity: the flow is invertible, so that distinct tokens keep their weights: a target with other weights, or
    another number of tokens, is approached and not hit. Non-convex: a plan may be a local minimum.
    Cost: per iteration one flow of every cloud and its gradient, O(p h n² d · steps), about four times that for RK4;
    compiling takes 10 to 20 s. Works under jit and vmap.
    Source: Geshkovski, Rigollet, Ruiz-Balet, arXiv:2411.04551 (which measures can be matched by one transformer).
    """
    space = Sphere() if geometry is None else geometry
    starts, targets = check_pairs(start, target, space)
    check_positive(tolerance, "tolerance")
    check_positive(learning_rate, "learning_rate")
    if is_concrete(effort) and not (np.isfinite(effort) and effort >= 0):
        raise InputError("must not be negative", where="effort", got=effort)
    if method not in TOKEN_METHODS:
        raise InputError("is not known", where="method", got=method, expected=", ".join(TOKEN_METHODS))
    weight = jnp.asarray(effort, starts[0].points.dtype)
    how = (loss, float(epsilon), space, law, integrator or RK4(), dt)
    problem = TokenProblem(starts, targets, segments, float(t1), allow, heads, weight, *how)
    check_tokens_reachable(starts, targets, allow)
    controls = first_controls(problem, key, warm_start)
    total = TOKEN_ITERATIONS[method] if iterations is None else iterations
    check_positive(total, "iterations")
    options = {"method": method, "learning_rate": learning_rate, "iterations": total}
    search = begin_tokens(problem, controls, **options)
    search, history = advance_tokens(problem, search, steps=total, tolerance=tolerance, **options)
    return make_token_plan(problem, search, history, tolerance=tolerance)


def first_controls(problem: TokenProblem, key: PRNGKey | None, warm_start: Piecewise | None) -> dict[str, Array]:
    """Where the search begins.

    Raises:
        InputError: several heads with neither a key nor a warm start; both.
    """
    if warm_start is not None:
        if key is not None:
            raise InputError(
                "does not apply: the search begins from warm_start", where="key", got=key, fix="leave one of them out"
            )
        return problem.controls_of(warm_start)
    if problem.heads > 1 and key is None:
        raise InputError(
            "is needed: several heads that start equal stay equal",
            where="key",
            got=f"None with heads = {problem.heads}",
            fix="pass key=jax.random.key(0)",
        )
    return problem.first_controls(key)


def make_token_plan(
    problem: TokenProblem, search: TokenSearch, history: Float[Array, "i 2"], *, tolerance: float
) -> TokenPlan:
    """The plan of the best controls, with its distances measured on a flow of half the step."""
    ends, losses, arrived = problem.arrive(search.best, refine=2)
    distances = jnp.where(arrived, distances_of(losses), jnp.inf)
    converged = jnp.max(distances) <= tolerance
    lost = ~jnp.isfinite(jnp.max(distances))
    stop = Stop.where(search.stalled, Stop.stalled, Stop.iterations)
    stop = Stop.where(converged | (search.distance <= tolerance), Stop.tolerance, stop)
    weights = problem.weights(search.best)
    return TokenPlan(
        weights=weights,
        ends=tuple(ends),
        distances=distances,
        effort=effort_of(weights),
        history=history,
        iterations=search.iteration,
        converged=converged,
        stop=Stop.where(lost, Stop.nonfinite, stop),
    )
