"""What a solve returns, and how it says that something happened."""

from typing import Any, NamedTuple, final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxflow._typing import Scalar
from jaxflow.errors import NumericalError


class Status(eqx.Enumeration):
    """How a run ended. Compare with `==`; works under jit and vmap."""

    done = "reached t1"
    blow_up = "the covariance becomes infinite at the reported time"
    max_steps = "the adaptive solver used up its steps"
    nonfinite = "the state stopped being finite"
    unresolved = "the density became negative: it is finer than its degree resolves"


ADVICE = {
    "max_steps": "raise max_steps, loosen rtol, or take Kvaerno5() if the layer is stiff",
    "nonfinite": "shorten the step dt, lower the norms of the weights, or use an adaptive method; a"
    " Harmonic kernel gives NaN where its error exceeds the tolerance: take Auto() or Chunked()",
    "unresolved": "raise the degree of the density (its last coefficients, Density.power, should be small), shorten the"
    " step dt, end the run earlier (clusters become points), or follow a cloud of tokens",
}


class Saved(NamedTuple):
    """What a back-end hands over, one entry per saved time after t0."""

    state: PyTree
    measured: PyTree
    integrals: PyTree
    valid: Bool[Array, "*t"]


class End(NamedTuple):
    """How a back-end's run ended."""

    status: Any
    t_end: Scalar
    stats: dict[str, Any]


@final
class Solution(eqx.Module):
    """States and observables at the saved times.

    Attributes:
        ts: saved times, (t,).
        states: the states there, every array with a leading axis t. After the end of a run that stopped early the
            last finite state is repeated, so that nothing is NaN; `valid` says which entries were reached.
        observables: what `observe` reported, with the same leading axis.
        valid: whether the run reached each saved time, (t,).
        status: a `Status`.
        t_end: t1; or the blow-up time; or the time of the last finite state.
        final: the last state reached, which is that of t1 when status is done.
        stats: numbers of steps taken and rejected; for tokens under attention `harmonic_degree`, the degree of
            `attention.Harmonic`, 0 for direct sums; for densities `harmonic_degree`, that of the attention kernel, and
            `grid_degree`.
    """

    ts: Float[Array, " t"]
    states: PyTree
    observables: PyTree
    valid: Bool[Array, " t"]
    status: Any
    t_end: Scalar
    final: PyTree
    stats: dict[str, Any]

    @property
    def outcome(self) -> str:
        """The name of the status, on the host: "done", "blow_up", "max_steps", "nonfinite" or "unresolved"."""
        return status_name(self.status)

    def raise_if_failed(self) -> "Solution":
        """Itself, or NumericalError for the statuses that are failures (blow-up is a result). Host only."""
        name = self.outcome
        if name in ADVICE:
            raise NumericalError(
                f"the solve stopped at t = {float(self.t_end):g}: {Status[self.status]}",
                status=name,
                advice=ADVICE[name],
            )
        return self


def status_name(status: Any) -> str:
    """ "done", "blow_up", ... for a concrete Status."""
    value = int(np.asarray(status._value))
    names = ("done", "blow_up", "max_steps", "nonfinite", "unresolved")
    return next(name for name in names if int(np.asarray(getattr(Status, name)._value)) == value)
