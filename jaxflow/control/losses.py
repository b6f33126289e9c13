"""How far is N(μ, LLᵀ) from the target N(μ₁, L₁L₁ᵀ)? Three terminal losses of a search.

"w2"       W₂² = |μ − μ₁|² + |L|² + |L₁|² − 2‖LᵀL₁‖_*
"kl"       KL(N ‖ N₁) = ½(tr Σ₁⁻¹Σ − d − log det Σ₁⁻¹Σ + (μ₁ − μ)ᵀΣ₁⁻¹(μ₁ − μ)), full rank only
"moments"  |μ − μ₁|² + |Σ − Σ₁|²
"""

from typing import Literal

import jax.numpy as jnp

from jaxflow._typing import Scalar
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.transport import wasserstein_squared

Loss = Literal["w2", "kl", "moments"]
LOSSES: tuple[Loss, ...] = ("w2", "kl", "moments")


def check_loss(loss: str, target: Gaussian) -> None:
    """Refuse a loss that is not known, and KL below full rank."""
    if loss not in LOSSES:
        raise InputError("is not known", where="loss", got=repr(loss), expected=", ".join(LOSSES))
    if loss == "kl" and target.rank < target.dim:
        raise InputError(
            "is infinite below full rank: the measures live on different subspaces",
            where="loss",
            got=f'"kl" at rank {target.rank} in dimension {target.dim}',
            fix='take loss="w2" or "moments"',
        )


def kl_divergence(first: Gaussian, second: Gaussian) -> Scalar:
    """KL(first ‖ second) = ½(tr M − d − log det M + |L₁⁻¹(μ₁ − μ)|²), M = L₁⁻¹ΣL₁⁻ᵀ, for two Gaussians of full rank.

    Args:
        first: N(μ, LLᵀ). second: N(μ₁, L₁L₁ᵀ). Factors (d, d).

    Returns:
        KL ≥ 0; inf or NaN where a factor is singular.

    Raises:
        InputError: a factor is not square.

    With the eigenvalues 1 + e of M it is ½Σ(e − log(1 + e)) + ½|…|²: no difference of large numbers remains near
    coincidence, and the gradient there is 0. Relative accuracy about ε·cond(L₁)². Cost O(d³).
    """
    for where, gaussian in (("first", first), ("second", second)):
        if gaussian.rank < gaussian.dim:
            raise InputError("must have full rank", where=where, got=f"rank {gaussian.rank} in R^{gaussian.dim}")
    M = jnp.linalg.solve(second.factor, first.factor)
    shift = jnp.linalg.solve(second.factor, first.mean - second.mean)
    e = jnp.linalg.eigvalsh(M @ M.T - jnp.eye(first.dim, dtype=M.dtype))
    return 0.5 * (jnp.sum(e - jnp.log1p(e)) + jnp.sum(shift**2))


def moment_residual(first: Gaussian, second: Gaussian) -> Scalar:
    """|μ − μ₁|² + |Σ − Σ₁|² (Frobenius)."""
    gap = first.covariance - second.covariance
    return jnp.sum((first.mean - second.mean) ** 2) + jnp.sum(gap**2)


def terminal(loss: Loss, end: Gaussian, target: Gaussian) -> Scalar:
    """The loss of this name."""
    return {"w2": wasserstein_squared, "kl": kl_divergence, "moments": moment_residual}[loss](end, target)
