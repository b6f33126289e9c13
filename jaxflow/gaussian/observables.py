"""What to watch along a moment flow: Σ, its eigenvalues, log det, rank and the validity number κ_eff."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxflow._typing import Real, Scalar
from jaxflow.gaussian.flow import MomentFlow, Terms
from jaxflow.measures import Gaussian
from jaxflow.solve import AbstractFlow, AbstractObservable
from jaxflow.solve.observe import check_watched
from jaxflow.weights import AbstractSchedule, Layer


@final
class MomentReport(eqx.Module):
    """Along the saved times t.

    Attributes:
        covariance: Σ, (t, d, d).
        eigenvalues: of Σ restricted to its range, ascending, (t, r).
        kappa: κ_eff = max_h ‖LᵀB_hL‖₂ = ‖Σ^½B_hΣ^½‖₂, (t,). The Gaussian closure describes finitely many tokens
            well up to about 1 (measured gain over ideal at 4000 tokens: 0.93 at κ = 1.5, 0.78 at κ = 2.5).
        log_det_growth: log det Σ_t − log det Σ_0 = 2∫tr K, (t,), for full rank.
        rank: numerical rank of L, (t,).
    """

    covariance: Float[Array, "*t d d"]
    eigenvalues: Float[Array, "*t r"]
    kappa: Float[Array, "*t"]
    log_det_growth: Float[Array, "*t"]
    rank: Int[Array, "*t"]


def kappa_eff(layer: Layer, state: Gaussian) -> Scalar:
    """κ_eff = max_h ‖LᵀB_hL‖₂ = max_h ‖Σ^½B_hΣ^½‖₂: finitely many tokens follow the moments while it is below about
    1."""
    L = state.factor
    if layer.B is None:
        return jnp.zeros((), L.dtype)
    return jnp.max(jnp.linalg.svd(L.T @ layer.B @ L, compute_uv=False))


@final
class Moments(AbstractObservable):
    """The observable behind `moments`."""

    def measure(self, flow: AbstractFlow, t: Real, state: Gaussian, schedule: AbstractSchedule, noise: Any) -> Any:
        L = state.factor
        layer = schedule.at(t, noise)
        s = jnp.linalg.svd(L, compute_uv=False)
        kappa = kappa_eff(layer, state)
        rank = jnp.sum(s > L.shape[0] * jnp.finfo(L.dtype).eps * s[0])
        return L @ L.T, s[::-1] ** 2, kappa, rank

    def rates(
        self,
        flow: AbstractFlow,
        t: Real,
        state: Gaussian,
        schedule: AbstractSchedule,
        noise: Any,
        velocity: Any,
        terms: Terms,
    ) -> Any:
        return 2 * jnp.trace(terms.K)

    def prepare(self, flow: Any, state: Any) -> Any:
        check_watched(flow, MomentFlow, what="moment flows", fix="use jf.particles.balance for tokens")
        return flow

    def report(self, measured: Any, integrals: Any) -> MomentReport:
        covariance, eigenvalues, kappa, rank = measured
        return MomentReport(covariance, eigenvalues, kappa, integrals, rank)


moments = Moments()
"""Observe Σ, its eigenvalues, κ_eff, log det and rank: `jf.solve(flow, start, t1=1.0, observe=jf.gaussian.moments)`."""
