"""What does steering cost? Kinetic energy, ∫∫|ẋ|² dμ_t dt = ∫ tr(KΣKᵀ) + |μ̇|² dt, never below W₂²(N₀, N₁)/t₁.

Along the moment flow a token moves by ẋ = K(x − μ) + μ̇, and tr(KΣKᵀ) = |KL|² = |L̇|².
"""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real, Scalar
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import AbstractFlow, AbstractMethod, AbstractObservable, Dopri8, Status, solve
from jaxflow.solve.observe import check_watched
from jaxflow.weights import AbstractSchedule


@final
class Kinetic(AbstractObservable):
    """The observable behind `kinetic`."""

    def measure(self, flow: AbstractFlow, t: Real, state: Any, schedule: AbstractSchedule, noise: Any) -> Any:
        return None

    def rates(
        self, flow: AbstractFlow, t: Real, state: Any, schedule: AbstractSchedule, noise: Any, velocity: Any, terms: Any
    ) -> Any:
        dmu, dL = velocity
        return jnp.sum(dmu**2) + jnp.sum(dL**2)

    def prepare(self, flow: Any, state: Any) -> Any:
        check_watched(flow, MomentFlow, what="moment flows", fix="use jf.particles.balance for tokens")
        return flow

    def report(self, measured: Any, integrals: Any) -> Float[Array, "*t"]:
        return integrals


kinetic = Kinetic()
"""Observe ∫₀ᵗ tr(KΣKᵀ) + |μ̇|² ds at the saved times: `jf.solve(flow, start, t1=1.0, observe=jf.control.kinetic)`."""


def kinetic_energy(
    weights: AbstractSchedule,
    start: Gaussian,
    *,
    t1: float,
    method: AbstractMethod | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Scalar:
    """∫₀^{t₁} tr(KΣKᵀ) + |μ̇|² dt, K = A + Σ_h c_hV_hΣB_h: the mean square speed of tokens, integrated.

    Args:
        weights: any deterministic schedule of free heads and feed-forward layers.
        start: the Gaussian it starts from.
        t1: the horizon.
        method, rtol, atol: as for `solve`; default Dopri8 at 1e-12 in float64.

    Returns:
        The energy; inf where the moments blow up before t1.

    At least W₂²(N₀, N_{t₁})/t₁ whatever the layers; equal to it along `geodesic`. Cost: one moment flow.
    Source: Benamou and Brenier, Numerische Mathematik 84 (2000) 375.
    """
    default = 1e-12 if start.mean.dtype == jnp.float64 else 1e-6
    sol = solve(
        MomentFlow(weights), start, t1=t1, method=method or Dopri8(), rtol=default if rtol is None else rtol,
        atol=default if atol is None else atol, observe=kinetic,
    )  # fmt: skip
    return jnp.where(sol.status == Status.done, sol.observables[-1], jnp.inf)
