"""The Wasserstein distance weighted by the mobility of attention (arXiv:2605.18870, §4):

    W_{m,2}²(μ⁰, μ¹; Θ) = inf over paths μ_s with velocity v_s of ∫₀¹∫ b̂_{μ_s}(x)|v_s(x)|² dμ_s ds

by descent over paths of particles on the sphere. b̂ depends on the whole cloud: where it falls as mass spreads, it pays
to split a particle on the way, so that the number of particles per unit of mass is refined along with the time steps.
"""

import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import check_same_dtype
from jaxflow._typing import Count, PRNGKey, Scalar
from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.transport.exact import optimal_plan
from jaxflow.transport.paths import Problem, search_path, unit
from jaxflow.weights import Layer, make_layer

LEAST_MASS = 1e-12
"""Entries of a transport plan below this are rounding of the linear program."""


@final
class WeightedDistance(eqx.Module):
    """W_{m,2} between two clouds, and the path that has it.

    Attributes:
        value: the length √A of the path in the weighted metric, extrapolated to Δs → 0. In radians times √b̂.
        error: an estimate of what is left of the refinement: a third of the last change of √A in the time steps (second
            order, so that this is the extrapolation) plus the whole last change in the number of particles.
        wasserstein: W₂, with angles as distances.
        lower, upper: e^{−R/2}W₂ ≤ W_{m,2} ≤ e^{R/2}W₂, R = max_h ‖D_h‖₂.
        ts: times of the path, (t,), from 0 to 1.
        clouds: the path itself, a Cloud with a leading axis t, of n particles; consecutive ones carry the masses of
            one pair of the optimal plan.
        actions: the least discrete action found with 1, 2, 4, … particles per pair at half the steps, which never
            rises, and in the end with all particles at all steps, (levels + 1,).
        optimality: norm of the gradient of A/A₀ at the end, A₀ the action of the geodesics, in coordinates in which
            the Hessian is of order one: the value is off by about its square.
        iterations: Newton steps of all levels.
        status: an `Ended`, of the last level.
        antipodal: whether a matched pair is antipodal, so that geodesics start in a direction drawn at random.
    """

    value: Scalar
    error: Scalar
    wasserstein: Scalar
    lower: Scalar
    upper: Scalar
    ts: Float[Array, " t"]
    clouds: Cloud
    actions: Float[Array, " levels"]
    optimality: Scalar
    iterations: Count
    status: Any
    antipodal: bool


def weighted_distance(
    start: Cloud,
    target: Cloud,
    heads: Layer | Float[Array, "h d d"] | Float[Array, "d d"],
    *,
    steps: int = 32,
    split: int = 4,
    key: PRNGKey | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 200,
) -> WeightedDistance:
    """W_{m,2}(start, target; heads) on the sphere. Host only: for measuring, not for differentiating.

    Minimises A = Σ_k Δs Σ_i w_i b̂_{μ_{k+½}}(x_i^{k+½}) d(x_i^k, x_i^{k+1})²/Δs² over paths of particles, by Newton's
    method in a trust region, from geodesics between the pairs of the optimal plan of W₂ with a random push, first with
    one particle per pair, then with 2, 4, …, `split`.

    Args:
        start, target: clouds of any sizes and weights, of unit vectors, (n, d) and (m, d).
        heads: tied heads D_h, (h, d, d) or (d, d), symmetric; or a tied `Layer`, whose masses c_h weigh the harmonic
            mean.
        steps: K, even: the path has K + 1 clouds. 32 leaves about 1e-5 after extrapolation.
        split: particles per pair of the plan, a power of two. With 1 nothing is known about the error that is
            left in their number, and `error` covers the time steps alone.
        key: of the random push; None: always the same.
        tolerance: of `optimality`.
        max_iterations: Newton steps of each level.

    Returns:
        A `WeightedDistance`. Look at `status` and `error`.

    Raises:
        InputError: see `check_pair`; traced values; points off the sphere; heads that are free, not symmetric or of
            another dimension; an odd number of steps, or below 4; split that is no power of two.

    Domain: every path is an upper bound up to O(K⁻²), so that what can go wrong is a value too high: the matching of
    start and target is that of W₂ (mass in the way takes part in a relay, although going around it may cost less), and
    descent finds local minima. The problem is not convex where b̂ falls as mass spreads (D > 0): refine `split` until
    `error` is small, and try other keys. There the value commonly falls like const + 1/split.

    Cost: O(K h (n·split)² d) for the action; some ten Newton steps a level, each up to 100 times that. Two programs per
    shape, some seconds each to compile.

    Source: arXiv:2605.18870, §4 (metric and bounds); the discretisation is this library's own.
    """
    layer = _layer(heads, start)
    _check_knobs(steps, split)
    w2_squared, rows, columns, mass = optimal_plan(start, target, geometry=Sphere(), where="weighted_distance")
    check_same_dtype({"start": start, "heads": layer})
    rows, columns, mass = (np.repeat(part[mass > LEAST_MASS], split) for part in (rows, columns, mass))
    dtype = start.points.dtype
    w2 = jnp.asarray(np.sqrt(w2_squared), dtype)
    R = float(np.linalg.norm(np.asarray(layer.B), 2, axis=(-2, -1)).max())
    problem = Problem(
        layer=layer,
        x=jnp.asarray(unit(np.asarray(start.points)[rows]), dtype),
        y=jnp.asarray(unit(np.asarray(target.points)[columns]), dtype),
        log_w=jnp.asarray(np.log(mass / mass.sum()), dtype),
        length=w2,
        tolerance=jnp.asarray(tolerance, dtype),
        max_iterations=jnp.asarray(max_iterations),
    )
    search = search_path(problem, steps, split, jax.random.key(0) if key is None else key)
    finest, before, coarser = search.actions[-1], search.actions[-2], search.actions[-3:-1]
    extrapolated = finest + (finest - before) / 3
    left = jnp.abs(finest - before) / 3 + jnp.abs(coarser[-1] - coarser[0])
    value = jnp.sqrt(jnp.maximum(extrapolated, 0.0))
    return WeightedDistance(
        value=value,
        error=left / (2 * jnp.where(value > 0, value, 1.0)),
        wasserstein=w2,
        lower=math.exp(-R / 2) * w2,
        upper=math.exp(R / 2) * w2,
        ts=jnp.asarray(np.linspace(0, 1, steps + 1), dtype),
        clouds=Cloud(search.path, jnp.broadcast_to(problem.log_w, search.path.shape[:2])),
        actions=search.actions,
        optimality=search.optimality,
        iterations=search.iterations,
        status=search.status,
        antipodal=search.antipodal,
    )


def _layer(heads: Any, start: Cloud) -> Layer:
    """Tied heads as a Layer, of the dimension of the cloud."""
    layer = heads if isinstance(heads, Layer) else make_layer(D=heads)
    if not layer.tied or layer.B is None:
        raise InputError(
            "must be tied: only they have a mobility that weighs a metric",
            where="heads",
            got="free heads B, V" if layer.B is not None else "a layer without attention",
            fix="give symmetric D, (h, d, d)",
        )
    d = start.points.shape[-1]
    if layer.B.ndim != 3 or layer.dim != d:
        raise InputError(
            "do not fit the points", where="heads", got=layer.B.shape, expected=f"(h, {d}, {d})", fix="one layer only"
        )
    return layer


def _check_knobs(steps: int, split: int) -> None:
    if steps < 4 or steps % 2:
        raise InputError(
            "must be even and at least 4: half of it is the coarser path", where="steps", got=steps, fix="take 32"
        )
    if split < 1 or split & (split - 1):
        raise InputError("must be a power of two", where="split", got=split, expected="1, 2, 4, 8, …")
