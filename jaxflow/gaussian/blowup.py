"""When does the covariance become infinite? Exactly, between bounds, or from the ODE."""

from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._checks import check_positive
from jaxflow._typing import Scalar
from jaxflow.errors import NumericalError
from jaxflow.gaussian.closed import scalar_blowup_time
from jaxflow.gaussian.commuting import common_spectrum, commuting_blowup_times
from jaxflow.gaussian.follow import follow
from jaxflow.gaussian.parts import Parts, check_fits, has_scalar_values, parts_of
from jaxflow.gaussian.riccati import riccati_blowup_time
from jaxflow.linalg import sqrtm, symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

How = Literal["commuting", "riccati", "ode"]


@final
class BlowUp(eqx.Module):
    """The blow-up time t*, and what is known of it without solving anything.

    Attributes:
        time: t*; inf where there is none (`how` = "commuting"), or none up to the horizon.
        lower, upper: lower ≤ t* ≤ upper. upper is inf where no theorem gives one.
        how: "commuting" (exact, scalar by scalar), "riccati" (exact, V = vI: first zero of det X) or "ode" (the
            event of the moment flow, integrated at 1e-12).
    """

    time: Scalar
    lower: Scalar
    upper: Scalar
    how: How = eqx.field(static=True)


def blowup_time(layer: Layer, start: Gaussian, *, direction: Direction | None = None, horizon: float = 100.0) -> BlowUp:
    """The blow-up time of the covariance under a constant layer; never NaN. Host only (it looks at the values).

    Where derivatives or jit are needed, call `scalar_blowup_time`, `riccati_blowup_time` or `blowup_bounds` directly.

    Args:
        layer: any layer.
        start: any rank.
        direction: for tied heads.
        horizon: how far to look, for layers without a closed form and for V = vI.

    Raises:
        InputError: the start does not fit the layer, or the horizon is not positive.
        NumericalError: the ODE could be followed neither to the horizon nor to a blow-up.
    """
    check_positive(horizon, "horizon")
    check_fits(layer, start)
    lower, upper = blowup_bounds(layer, start, direction=direction)
    spectrum = common_spectrum(layer, start, direction=direction)
    if spectrum is not None:
        return BlowUp(jnp.min(commuting_blowup_times(spectrum)), lower, upper, "commuting")
    if has_scalar_values(parts_of(layer, direction)):
        time = riccati_blowup_time(layer, start, direction=direction, horizon=horizon)
        return BlowUp(time, lower, upper, "riccati")
    sol = follow(layer, start, direction=direction, t1=horizon, rtol=1e-12)
    if sol.outcome not in ("done", "blow_up"):
        raise NumericalError(
            f"the covariance was followed to t = {float(sol.t_end):g} only, without a blow-up",
            status=sol.outcome,
            advice=f"give a horizon below {float(sol.t_end):g}",
        )
    time = sol.t_end if sol.outcome == "blow_up" else jnp.asarray(jnp.inf, sol.t_end.dtype)
    return BlowUp(time, lower, upper, "ode")


def blowup_bounds(layer: Layer, start: Gaussian, *, direction: Direction | None = None) -> tuple[Scalar, Scalar]:
    """lower ≤ t* ≤ upper, from scalar Riccati inequalities. Works under jit and vmap; cost O(h d³).

    Below, for every layer: σ = λmax(Σ) obeys σ' ≤ 2ασ + 2γσ², with α = λmax(sym A) and γ = Σ_h ‖c_hV_h‖‖B_h‖.
    Above, for one head with V symmetric definite and V, B of one sign: with s = sign V, y = tr(|V|^{-1}Σ) obeys
    y' ≥ 2κy + (2/d) b v² y², κ = λmin(sym(|V|^{-½}A|V|^{½})), b = λmin(s·sym B) > 0, v = λmin(|V|).
    Both are solved by `scalar_blowup_time`. For A = 0 they read 1/(2‖V‖‖B‖λmax(Σ₀)) ≤ t* ≤ d/(2bv²y₀).

    Source: arXiv:2606.07600, the estimate for sign-definite V, here with A.
    """
    A, _, cV, B = parts_of(layer, direction)
    Sigma = start.covariance
    sigma = jnp.linalg.eigvalsh(Sigma)[-1]
    gamma = jnp.sum(_norm(cV) * _norm(B)) if cV.shape[0] else jnp.zeros((), Sigma.dtype)
    lower = scalar_blowup_time(jnp.linalg.eigvalsh(symmetrize(A))[-1], gamma, sigma)
    if cV.shape[0] != 1:
        return lower, jnp.asarray(jnp.inf, Sigma.dtype)
    kappa, rate, y0, definite = lyapunov_rates(Parts(A, jnp.zeros_like(start.mean), cV, B), Sigma, sign=1.0)
    upper = scalar_blowup_time(kappa, rate, y0)
    return lower, jnp.where(definite, upper, jnp.inf)


def lyapunov_rates(parts: Parts, Sigma: Array, *, sign: float) -> tuple[Array, Array, Array, Array]:
    """For one head, V definite, sign·s·sym B > 0, s = sign V: κ, bv²/d, y₀ = tr(|V|^{-1}Σ), and whether it is so.

    sign = 1 (V and B alike): κ is the smallest eigenvalue, y' ≥ 2κy + 2(bv²/d)y². sign = −1 (opposite): κ is the
    largest one, y' ≤ 2κy − 2(bv²/d)y².
    """
    (V,), (B,) = parts.cV, parts.B
    d = V.shape[0]
    values = jnp.linalg.eigvalsh(symmetrize(V))
    s = jnp.where(values[0] > 0, 1.0, -1.0)
    v = jnp.min(jnp.abs(values))
    tolerance = 1e-12 if V.dtype == jnp.float64 else 1e-6
    symmetric = jnp.max(jnp.abs(V - V.T)) <= tolerance * jnp.max(jnp.abs(V))
    b = jnp.linalg.eigvalsh(sign * s * symmetrize(B))[0]
    definite = symmetric & (values[0] * values[-1] > 0) & (b > 0)
    root = sqrtm(jnp.where(definite, s * symmetrize(V), jnp.eye(d, dtype=V.dtype)))
    stretched = jnp.linalg.eigvalsh(symmetrize(jnp.linalg.solve(root, parts.A @ root)))
    kappa = stretched[0] if sign > 0 else stretched[-1]
    y0 = jnp.trace(jnp.linalg.solve(root, jnp.linalg.solve(root, Sigma)))
    return kappa, b * v**2 / d, y0, definite


def _norm(X: Array) -> Array:
    """‖X_h‖₂ of each matrix, zeros where there are none."""
    return jax.vmap(lambda M: jnp.linalg.norm(M, ord=2))(X)
