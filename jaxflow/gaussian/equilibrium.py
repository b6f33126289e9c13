"""Where do mean and covariance come to rest, does the point attract, and which bias moves it where it is wanted?"""

from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxflow._checks import as_float, check_shape
from jaxflow.errors import InputError, NumericalError
from jaxflow.gaussian.bernoulli import bernoulli, growing, held_covariance
from jaxflow.gaussian.follow import follow
from jaxflow.gaussian.parts import Parts, check_fits, has_scalar_values, parts_of, slope
from jaxflow.gaussian.stability import covariance_spectrum, linearisation, mean_matrix, mean_spectrum, velocity
from jaxflow.gaussian.stability import symmetric_basis as basis_of
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

RESIDUAL = 1e-9
"""An equilibrium is accepted when |KΣ + ΣKᵀ| is below this times ‖K‖‖Σ‖ (or ‖A‖ where K vanishes)."""


@final
class Equilibrium(eqx.Module):
    """A point of rest of the moment flow.

    Attributes:
        covariance: Σ, (d, d).
        mean: μ with (A + ΣcV + ΣcVΣB)μ = −b, (d,); NaN-free: where that matrix is singular, the shortest such μ.
        mean_exists: whether such a μ exists.
        rank: of Σ.
        covariance_spectrum, mean_spectrum: eigenvalues of the two linearisations, by decreasing real part.
        covariance_stable, mean_stable: whether all real parts are negative. A covariance that is one of a family
            (A = 0) has zeros in its spectrum and is not called stable.
        residual: |KΣ + ΣKᵀ|, largest entry.
        how: "bernoulli", "held" (A = 0) or "newton".
    """

    covariance: Float[Array, "d d"]
    mean: Float[Array, " d"]
    mean_exists: bool = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    covariance_spectrum: Complex[np.ndarray, " m"]
    mean_spectrum: Complex[np.ndarray, " d"]
    covariance_stable: bool = eqx.field(static=True)
    mean_stable: bool = eqx.field(static=True)
    residual: float = eqx.field(static=True)
    how: Literal["bernoulli", "held", "newton"] = eqx.field(static=True)


def equilibrium(
    layer: Layer, start: Gaussian | None = None, *, direction: Direction | None = None, settle: float = 50.0
) -> Equilibrium:
    """The equilibrium that the moment flow approaches under a constant layer. Host only (it looks at the values).

    V_h = v_hI and A without imaginary eigenvalues: the attracting solution of the Bernoulli equation, from the layer
    alone (a start of deficient rank may go elsewhere: it then takes the third way). A = 0: the covariance that
    attention leaves of `start`. Anything else: the flow is followed from `start` until it barely moves, and Newton's
    method does the rest; d ≤ 64.

    Args:
        layer: any constant layer, any number of heads.
        start: where the flow comes from; needed for the second and third way.
        direction: for tied heads.
        settle: how long the flow is followed before Newton's method takes over.

    Raises:
        InputError: A has eigenvalues on the imaginary axis, V and B do not hold Σ back, or `start` is missing.
        NumericalError: the flow blows up, or does not come close to an equilibrium; advice says which.

    Derivatives: call `bernoulli`, or `newton_covariance` with this covariance as its guess.

    Source: arXiv:2606.07600, asymptotics; see tests/README.md for the mixed spectrum and the kernel.
    """
    parts = parts_of(layer, direction)
    if start is not None:
        check_fits(layer, start)
    d, scalar = layer.dim, has_scalar_values(parts)
    full = start is None or start.rank == d
    if scalar and full and (bool(jnp.any(parts.A != 0)) or parts.cV.shape[0] == 0):
        S, rank, how = bernoulli(layer, direction=direction), growing(parts.A), "bernoulli"
    else:
        if start is None:
            raise InputError(
                "is needed: this layer has no equilibrium that is the same for all starts",
                where="start",
                fix="gaussian.equilibrium(layer, start)",
            )
        if scalar and bool(jnp.all(parts.A == 0)):
            S, how = held_covariance(layer, start, direction=direction), "held"
        else:
            S, how = _follow(layer, start, direction, settle), "newton"
        rank = _rank(S)
    residual = float(jnp.max(jnp.abs(velocity(parts, S))))
    of_covariance = covariance_spectrum(layer, S, direction=direction)
    of_mean = mean_spectrum(layer, S, direction=direction)
    mean, exists = rest_of_mean(layer, S, direction=direction)
    return Equilibrium(
        covariance=S,
        mean=mean,
        mean_exists=bool(exists),
        rank=rank,
        covariance_spectrum=of_covariance,
        mean_spectrum=of_mean,
        covariance_stable=bool(np.real(of_covariance).max() < -STABLE * _size(parts, S)),
        mean_stable=bool(np.real(of_mean).max() < -STABLE * _size(parts, S)),
        residual=residual,
        how=how,
    )


STABLE = 1e-9
"""Real parts this close to zero, relative to the matrices, decide nothing."""


def newton_covariance(
    layer: Layer, guess: Float[Array, "d d"], *, direction: Direction | None = None, steps: int = 8
) -> Float[Array, "d d"]:
    """Newton's method for KΣ + ΣKᵀ = 0 from `guess`, on symmetric matrices; shortest steps where the linearisation is
    singular. Works under jit; differentiable once in the layer (implicit function theorem). d ≤ 64, cost O(d⁶) a step.
    """
    parts = parts_of(layer, direction)
    basis = jnp.asarray(basis_of(guess.shape[0]), guess.dtype)

    def step(S: Array, J: Array) -> Array:
        residual = jnp.einsum("aij,ij->a", basis, velocity(parts, S))
        return S - jnp.einsum("a,aij->ij", jnp.linalg.pinv(J, rtol=1e-11) @ residual, basis)

    S = jax.lax.stop_gradient(symmetrize(guess))
    held = jax.lax.stop_gradient(parts)
    for _ in range(steps):
        S = jax.lax.stop_gradient(step(S, linearisation(held, S)))
    return step(S, jax.lax.stop_gradient(linearisation(held, S)))


def rest_of_mean(
    layer: Layer, covariance: Float[Array, "d d"], *, direction: Direction | None = None
) -> tuple[Float[Array, " d"], Bool[Array, ""]]:
    """The shortest μ with (A + ΣcV + ΣcVΣB)μ = −b at this covariance, and whether there is one."""
    M, b = mean_matrix(layer, covariance, direction=direction), parts_of(layer, direction).b
    mu = -jnp.linalg.pinv(M) @ b
    return mu, jnp.linalg.norm(M @ mu + b) <= 1e-9 * (1 + jnp.linalg.norm(b))


@final
class TunedMean(eqx.Module):
    """A bias that puts the resting mean where it is wanted.

    Attributes:
        b: −(A + ΣcV + ΣcVΣB)μ*, (d,).
        stable: whether the mean goes there by itself; if not, every disturbance grows.
        spectrum: eigenvalues that decide it, by decreasing real part.
        advice: one sentence.
    """

    b: Float[Array, " d"]
    stable: bool = eqx.field(static=True)
    spectrum: Complex[np.ndarray, " d"]
    advice: str = eqx.field(static=True)


def tune_mean(
    layer: Layer,
    target: Float[Array, " d"],
    *,
    covariance: Float[Array, "d d"] | None = None,
    direction: Direction | None = None,
) -> TunedMean:
    """The bias b for which μ* = `target` is at rest at the equilibrium covariance, and whether it attracts. Host only.

    b = −(A + ΣcV + ΣcVΣ∞B)μ*; the layer's own b is ignored.

    Args:
        layer: any constant layer.
        target: μ*, (d,).
        covariance: Σ∞; default: that of `equilibrium(layer)`.
        direction: for tied heads.

    Raises:
        InputError: target of another shape; and as `equilibrium`, if no covariance is given.

    Source: arXiv:2606.07600, tuning of the mean; the instability for V > 0 > B is derived in tests/README.md.
    """
    target = as_float(target, "target", layer.dtype)
    check_shape(target, (layer.dim,), "target")
    S = equilibrium(layer, direction=direction).covariance if covariance is None else covariance
    b = -mean_matrix(layer, S, direction=direction) @ target
    spectrum = mean_spectrum(layer, S, direction=direction)
    top = float(np.real(spectrum)[0])
    stable = top < -STABLE * _size(parts_of(layer, direction), S)
    advice = (
        f"the mean goes to the target by itself, at rate {-top:.4g}"
        if stable
        else f"the target is at rest but repels at rate {top:.4g}: a mean off by ε is off by ε·e^{{{top:.3g}t}} later. "
        "Take V < 0 < B instead of V > 0 > B, or steer b(t) along the way"
    )
    return TunedMean(b, stable, spectrum, advice)


def _size(parts: Parts, S: Array) -> float:
    Q = slope(parts, S) - parts.A
    return float(jnp.linalg.norm(parts.A) + jnp.linalg.norm(Q) + jnp.linalg.norm(parts.cV.sum(0)))


def _rank(S: Array) -> int:
    values = np.linalg.eigvalsh(np.asarray(S))
    return int((values > 1e-9 * max(values[-1], np.finfo(float).tiny)).sum())


def _follow(layer: Layer, start: Gaussian, direction: Direction | None, settle: float) -> Array:
    """The covariance after `settle`, made exact by Newton's method."""
    parts = parts_of(layer, direction)
    sol = follow(layer, start, direction=direction, t1=settle, rtol=1e-10)
    if sol.outcome != "done":
        raise NumericalError(
            f"the moment flow does not reach t = {settle:g} (it ends at t = {float(sol.t_end):g})",
            status=sol.outcome,
            advice="there is nothing to settle to if it blows up; otherwise choose a shorter settle",
        )
    before = sol.final.covariance
    S = newton_covariance(layer, before, direction=direction)
    moved = float(jnp.linalg.norm(S - before)) / max(float(jnp.linalg.norm(before)), np.finfo(float).tiny)
    residual = float(jnp.max(jnp.abs(velocity(parts, S))))
    size = _size(parts, S) * max(float(jnp.max(jnp.abs(S))), np.finfo(float).tiny)
    lowest = float(jnp.linalg.eigvalsh(S)[0])
    sound = residual <= RESIDUAL * size and lowest >= -RESIDUAL * float(jnp.max(jnp.abs(S)))
    if not (sound and moved < 0.5):
        raise NumericalError(
            f"the covariance is not near an equilibrium at t = {settle:g}: Newton's method would move it by "
            f"{100 * moved:.2g} % (residual {residual:.1e})",
            status="unsettled",
            advice="choose a longer settle; if it keeps turning, there is a cycle and no equilibrium to go to",
        )
    return S
