"""Controls in closed form.

C1, full rank: one constant linear layer. With T the optimal transport map between the covariances,
    T = Σ₀^{−½}(Σ₀^{½}Σ₁Σ₀^{½})^{½}Σ₀^{−½},   A = log(T)/t₁,   b = (∫₀^{t₁} e^{As}ds)^{-1} (μ₁ − T μ₀).
"""

import jax.numpy as jnp

from jaxflow.control.reachability import check_reachable
from jaxflow.errors import InputError
from jaxflow.linalg import sqrtm, symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Piecewise


def constant_linear(start: Gaussian, target: Gaussian, *, t1: float, segments: int = 1) -> Piecewise:
    """The constant layer (A symmetric, b) that carries start to target exactly in time t1, on `segments` equal pieces.

    Full rank only. Accuracy is that of the symmetric square root, about ε·cond(Σ₀). Cost O(d³).

    Raises:
        UnreachableError: ranks or dimensions differ. InputError: the common rank is not full.

    Source: arXiv:2606.07600, reachability for full rank.
    """
    check_reachable(start, target, "ABVb")
    d = start.dim
    if start.rank < d:
        raise InputError(
            "applies to full rank only",
            where="method",
            got=f"constructive with rank {start.rank} in dimension {d}",
            fix='take method="gauss-newton" or "lbfgs"',
        )
    root = sqrtm(start.covariance)
    middle = sqrtm(root @ target.covariance @ root)
    T = symmetrize(jnp.linalg.solve(root, jnp.linalg.solve(root, middle).T))
    tau, U = jnp.linalg.eigh(T)
    a = jnp.log(tau) / t1
    # ∫₀^{t₁} e^{as} ds = t₁ (e^{x} − 1)/x with x = a t₁ = log τ.
    x = jnp.where(jnp.abs(a * t1) < 1e-8, 1.0, a * t1)
    weight = t1 * jnp.where(jnp.abs(a * t1) < 1e-8, 1.0, jnp.expm1(x) / x)
    A = (U * a[None, :]) @ U.T
    b = U @ ((U.T @ (target.mean - T @ start.mean)) / weight)
    return Piecewise(A=jnp.tile(A, (segments, 1, 1)), b=jnp.tile(b, (segments, 1)), t1=t1)
