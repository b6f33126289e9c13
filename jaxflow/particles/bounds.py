"""How far can two runs part? Explicit constants of the theorems of arXiv:2605.18870, §4, for ‖D_h‖ ≤ R and the sphere:

|v[μ](x) − v[ν](y)| ≤ L_x |x − y| + L_μ W₁(μ, ν),      W₂(μ_t, ν_t) ≤ e^{Lt} W₂(μ₀, ν₀),    L = L_x + L_μ
|v^{D+S}[μ](x) − v^D[μ](x)| ≤ K‖S‖,                    W₂(μ^S_t, μ_t) ≤ K‖S‖ (e^{Lt} − 1)/L
|E^{D+S}(μ) − E^D(μ)| ≤ ½ e^R (e^{‖S‖} − 1)            for every μ

law            L_x                  L_μ                       K
softmax        R² + 2R              e^{2R}(2R² + R)           1 + R
unnormalized   e^R(R² + 2R)         e^R(R² + R)               e^R(1 + R)
steepest       e^{2R}(2R² + 2R)     e^{2R}(R² + R) + e^{4R}R²  e^{2R}(1 + 2R)
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import is_concrete
from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.particles.flow import Law


def lipschitz_bound(norm: Real, *, law: Law = "softmax") -> Float[Array, ""]:
    """L such that W₂(μ_t, ν_t) ≤ e^{Lt} W₂(μ₀, ν₀) for any two clouds under the same tied heads.

    Args:
        norm: R ≥ max_{h,t} ‖D_h(t)‖₂, per unit of time; see `weights.largest_norm`. Heads of mass 1 together, as
            tied heads have unless told otherwise.
        law: "softmax", "unnormalized" or "steepest".

    Returns:
        L, per unit of time, for distances by chords and by angles alike, and for both directions.

    Raises:
        InputError: a norm below 0; the law "hardmax", whose velocity jumps.

    Domain: tokens on the sphere that all see each other, of any number, weighted or not. Admissible, and far from
    sharp: it grows like e^{2R}R² (e^{4R}R² for "steepest").

    Source: arXiv:2605.18870, §4 (that there is an L); the constants are this library's own, derived in tests/README.md.
    """
    R = _norm(norm, "norm")
    if law == "softmax":
        return R**2 + 2 * R + jnp.exp(2 * R) * (2 * R**2 + R)
    if law == "unnormalized":
        return jnp.exp(R) * (2 * R**2 + 3 * R)
    _check_smooth(law)
    return 3 * jnp.exp(2 * R) * (R**2 + R) + jnp.exp(4 * R) * R**2


def perturbation_bound(norm: Real, change: Real, t: Real, *, law: Law = "softmax") -> Float[Array, ""]:
    """K‖S‖(e^{Lt} − 1)/L ≥ W₂(μ^S_t, μ_t): clouds of one start under heads D_h and D_h + S_h.

    Args:
        norm: R ≥ ‖D_h(t)‖₂ and ‖D_h(t) + S_h‖₂, so that weight decay S = −δD needs no more than ‖D‖.
        change: ‖S‖ ≥ max_h ‖S_h‖₂.
        t: time since the common start.
        law: as for `lipschitz_bound`, whose raises, domain and source are these too.
    """
    R, S = _norm(norm, "norm"), _norm(change, "change")
    L = lipschitz_bound(norm, law=law)
    K = {"softmax": 1 + R, "unnormalized": jnp.exp(R) * (1 + R), "steepest": jnp.exp(2 * R) * (1 + 2 * R)}[law]
    # At R = 0 tokens do not answer each other, and part by Kt‖S‖.
    still = L == 0
    grown = jnp.where(still, jnp.asarray(t, L.dtype), jnp.expm1(L * t) / jnp.where(still, 1.0, L))
    return K * S * grown


def energy_gap_bound(norm: Real, change: Real) -> Float[Array, ""]:
    """½e^R(e^{‖S‖} − 1) ≥ |E^{D+S}(μ) − E^D(μ)| for every measure μ on the sphere.

    Args:
        norm: R ≥ ‖D_h‖₂.
        change: ‖S‖ ≥ max_h ‖S_h‖₂.

    Returns:
        A number in units of E. Equality for a Dirac at a common eigenvector of D and S with the eigenvalues R and ‖S‖.
        Minima differ by no more than this either: the functionals E^ε Γ-converge with ε.

    Raises:
        InputError: a number below 0.

    Source: arXiv:2605.18870, §4 (uniform convergence); the constant is derived in tests/README.md.
    """
    return 0.5 * jnp.exp(_norm(norm, "norm")) * jnp.expm1(_norm(change, "change"))


def _norm(x: Real, where: str) -> Float[Array, ""]:
    x = jnp.asarray(x, jnp.result_type(float))
    if is_concrete(x) and not x >= 0:
        raise InputError("must be a norm", where=where, got=float(x), expected="a number ≥ 0")
    return x


def _check_smooth(law: str) -> None:
    if law != "steepest":
        raise InputError(
            "has no Lipschitz constant: its velocity jumps where a token changes its leader",
            where="law",
            got=law,
            expected="softmax, unnormalized or steepest",
        )
