"""What is watched along a run: values at saved times, and integrals over all time."""

import abc
from collections.abc import Callable
from typing import Any, TypeVar, final

import equinox as eqx
from jaxtyping import PyTree

from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.solve.flow import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer

F = TypeVar("F", bound=AbstractFlow)


class AbstractObservable(eqx.Module):
    """Quantities measured at saved times, and quantities integrated as extra components of the ODE, so that their
    error is that of the solver."""

    def prepare(self, flow: F, state: Any) -> F:
        """The flow with any extra terms switched on that this observable needs; refuses flows it has no meaning for."""
        return flow

    @abc.abstractmethod
    def measure(self, flow: Any, t: Real, state: Any, schedule: AbstractSchedule, noise: Any) -> PyTree:
        """Values at one saved time. At an edge of the schedule the layer that ends there is meant."""

    def rates(
        self, flow: Any, t: Real, state: Any, schedule: AbstractSchedule, noise: Any, velocity: Any, terms: Any
    ) -> PyTree:
        """The integrands, as a pytree of scalars; None for nothing to integrate."""
        return None

    def jump(self, flow: Any, t: Real, state: Any, before: Layer, after: Layer) -> PyTree:
        """What a sudden change of layer adds to the integrals (structure of `rates`)."""
        return None

    def kick(
        self, flow: Any, t: Real, state: Any, schedule: Any, noise: tuple[Any, Any], h: Real, terms: Any
    ) -> PyTree:
        """What the random part of the weights' step at t from noise[0] to noise[1] adds to the integrals."""
        return None

    def report(self, measured: PyTree, integrals: PyTree) -> PyTree:
        """What the user sees, from measurements and integrals at the saved times (leading axis t)."""
        return measured


def check_watched(flow: Any, kind: type[AbstractFlow], *, what: str, fix: str) -> None:
    """Raise InputError unless an observable of `what` is given a flow of its kind."""
    if not isinstance(flow, kind):
        raise InputError(f"watches {what}", where="observe", got=type(flow).__name__, expected=kind.__name__, fix=fix)


@final
class Observe(AbstractObservable):
    """Any function of (t, state), evaluated at the saved times."""

    function: Callable[[Any, Any], PyTree]

    def measure(self, flow: Any, t: Real, state: Any, schedule: AbstractSchedule, noise: Any) -> PyTree:
        return self.function(t, state)


@final
class Nothing(AbstractObservable):
    """Watches nothing."""

    def measure(self, flow: Any, t: Real, state: Any, schedule: AbstractSchedule, noise: Any) -> PyTree:
        return None
