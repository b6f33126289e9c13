"""How may a control depend on time? A curve turns free numbers into a schedule of layers.

Every curve here is linear in its coefficients, u(t) = Σ_j φ_j(t) c_j: indicators of pieces, hats at knots, cosines and
sines, or the last hidden layer of a small network. The coefficients c_j of all controls share the φ_j.
"""

import abc
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.control.limits import Bounded, Bounds, into_ball
from jaxflow.weights import AbstractSchedule, Fourier, Function, Piecewise, Sampled, make_layer
from jaxflow.weights.fourier import waves

Parts = dict[str, Array]
"""Coefficients by name, each with a leading axis of length `size`."""


class AbstractCurve(eqx.Module):
    """A family of functions on [0, t₁]."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Coefficients of one entry of a control."""

    @property
    def pieces(self) -> int:
        """Stretches between which an integration starts afresh."""
        return 1

    @property
    def steps(self) -> int:
        """RK4 steps in all that a rough integration with these controls takes."""
        return 20

    @abc.abstractmethod
    def nodes(self) -> Float[np.ndarray, " m"]:
        """Times, as parts of t₁, at which `fit` wants to know a control."""

    @abc.abstractmethod
    def fit(self, values: Float[Array, "m ..."], extra: Any) -> Float[Array, "n ..."]:
        """Coefficients of the curve through these values at the nodes, or closest to them."""

    @abc.abstractmethod
    def level(self, value: Array) -> Array:
        """Coefficients of the control that has this value at all times."""

    @abc.abstractmethod
    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> AbstractSchedule:
        """The layers on [0, t1] with these coefficients, each bounded control in its ball at every time."""

    def begin(self, dtype: Any) -> Any:
        """The first parameters of the φ_j; None if they have none."""
        return None


def _inside(parts: Parts, bounds: Bounds) -> Parts:
    """Every coefficient in its ball. Balls are convex: a straight line between two of them stays inside."""
    return parts | {name: into_ball(parts[name], r, lead=1) for name, r in bounds}


@final
class Steps(AbstractCurve):
    """Constant on k equal pieces."""

    k: int = eqx.field(static=True)

    @property
    def pieces(self) -> int:
        return self.k

    @property
    def size(self) -> int:
        return self.k

    def nodes(self) -> np.ndarray:
        return (np.arange(self.k) + 0.5) / self.k

    def fit(self, values: Array, extra: Any) -> Array:
        return values

    def level(self, value: Array) -> Array:
        return _repeated(value, self.k)

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> Piecewise:
        inside: dict[str, Any] = _inside(parts, bounds)
        return Piecewise(**inside, t1=t1)


@final
class Lines(AbstractCurve):
    """Straight lines between k + 1 equispaced knots, continuous; integrations restart at the knots."""

    k: int = eqx.field(static=True)

    @property
    def pieces(self) -> int:
        return self.k

    @property
    def size(self) -> int:
        return self.k + 1

    def nodes(self) -> np.ndarray:
        return np.linspace(0, 1, self.k + 1)

    def fit(self, values: Array, extra: Any) -> Array:
        return values

    def level(self, value: Array) -> Array:
        return _repeated(value, self.k + 1)

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> Sampled:
        layers = make_layer(**_inside(parts, bounds), lead=1)
        knots = np.linspace(0, t1, self.k + 1)
        return Sampled(ts=jnp.asarray(knots, layers.dtype), layers=layers, edges=tuple(knots.tolist()))


@final
class Waves(AbstractCurve):
    """Trigonometric polynomials with m frequencies, c₀ + Σ c_j cos(2πjt/t₁) + s_j sin(2πjt/t₁): smooth, and the same
    at both ends."""

    modes: int = eqx.field(static=True)

    @property
    def steps(self) -> int:
        return max(20, 12 * self.modes)

    @property
    def size(self) -> int:
        return 2 * self.modes + 1

    def nodes(self) -> np.ndarray:
        return (np.arange(4 * self.size) + 0.5) / (4 * self.size)

    def fit(self, values: Array, extra: Any) -> Array:
        return least_squares(lambda s: waves(s, self.modes, values.dtype), self.nodes(), values)

    def level(self, value: Array) -> Array:
        return jnp.zeros((self.size, *value.shape), value.dtype).at[0].set(value)

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> AbstractSchedule:
        return bounded(Fourier(**parts, t1=t1), bounds, t1)


def bounded(schedule: AbstractSchedule, bounds: Bounds, t1: float) -> AbstractSchedule:
    """Where coefficients are no values of the control, the ball is entered at every time anew."""
    return Function(function=Bounded(schedule, bounds), edges=(0.0, t1)) if bounds else schedule


def _repeated(value: Array, n: int) -> Array:
    return jnp.tile(value[None], (n,) + (1,) * value.ndim)


def least_squares(basis: Any, nodes: np.ndarray, values: Array) -> Array:
    """The c_j for which Σ_j φ_j c_j is closest to these values at the nodes."""
    phi = jax.vmap(basis)(jnp.asarray(nodes, values.dtype))
    return jnp.tensordot(jnp.linalg.pinv(phi), values, 1)
