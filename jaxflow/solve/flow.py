"""What a flow must offer to be solved: a velocity on a state, driven by a schedule of layers."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from jaxflow._typing import Flag, PRNGKey, Real, Scalar
from jaxflow.solve.methods import AbstractMethod
from jaxflow.weights import AbstractSchedule, Layer


class AbstractFlow(eqx.Module):
    """ẏ = velocity(y; layer(t)). A state (a Cloud, a Gaussian) splits into what moves and what rests."""

    weights: eqx.AbstractVar[AbstractSchedule]

    @property
    def random(self) -> bool:
        """Whether a run needs a key."""
        return self.weights.random

    def check_method(self, method: AbstractMethod) -> None:
        """Raise InputError unless this method can integrate this flow; most flows take every method."""
        return

    def shake(self, y: PyTree, h: Real, key: PRNGKey) -> PyTree | None:
        """The noise of the flow itself over one of Euler's steps, added before retraction; None where there is none."""
        return None

    @abc.abstractmethod
    def check(self, state: Any) -> None:
        """Raise InputError unless this flow can start from this state."""

    def settle(self, state: Any, t0: float, t1: float) -> "AbstractFlow":
        """This flow with everything chosen that was left open until a run is known; for most flows the flow itself."""
        return self

    def facts(self, state: Any) -> dict[str, Any]:
        """What a settled flow adds to `Solution.stats`."""
        return {}

    @abc.abstractmethod
    def split(self, state: Any) -> tuple[PyTree, PyTree]:
        """The moving part y of a state and the resting part."""

    @abc.abstractmethod
    def join(self, y: PyTree, rest: PyTree) -> Any:
        """The state of these two parts."""

    @abc.abstractmethod
    def field(self, t: Real, state: Any, layer: Layer) -> tuple[PyTree, Any]:
        """The velocity of y, and the terms it was computed from (observables need them and should not pay twice)."""

    @property
    @abc.abstractmethod
    def retraction(self) -> Callable[[PyTree], PyTree] | None:
        """Puts y back on its space after a step has left it by the size of its error; None where y cannot leave."""

    @abc.abstractmethod
    def time_left(self, state: Any, terms: Any) -> Scalar | None:
        """An estimate of the time until finite-time blow-up, exact to first order near it; inf where none is in sight.

        None says that this flow cannot blow up, and saves the test.
        """

    def lost(self, state: Any) -> Flag | None:
        """Whether a step has led to a state that no longer describes anything: the run then ends as `unresolved`.

        None says that no state of this flow does that, and saves the test.
        """
        return None
