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
from jaxflow.errors import InputError
from jaxflow.weights import AbstractSchedule, Fourier, Function, Layer, Piecewise, Sampled, make_layer
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
        return _least_squares(lambda s: waves(s, self.modes, values.dtype), self.nodes(), values)

    def level(self, value: Array) -> Array:
        return jnp.zeros((self.size, *value.shape), value.dtype).at[0].set(value)

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> AbstractSchedule:
        return _bounded(Fourier(**parts, t1=t1), bounds, t1)


@final
class Network(AbstractCurve):
    """A small network of time: u(t) = C φ(t), φ = (tanh(W_l … tanh(W₁x + w₁) … + w_l), 1), x = 2t/t₁ − 1.

    Attributes:
        width, depth: neurons of a hidden layer, and how many such layers.
        seed: of the first W and w.
    """

    width: int = eqx.field(static=True, default=16)
    depth: int = eqx.field(static=True, default=2)
    seed: int = eqx.field(static=True, default=0)

    @property
    def steps(self) -> int:
        return 40

    @property
    def size(self) -> int:
        return self.width + 1

    def nodes(self) -> np.ndarray:
        return (np.arange(4 * self.size) + 0.5) / (4 * self.size)

    def fit(self, values: Array, extra: Any) -> Array:
        return _least_squares(lambda s: features(extra, s), self.nodes(), values)

    def level(self, value: Array) -> Array:
        return jnp.zeros((self.size, *value.shape), value.dtype).at[-1].set(value)

    def begin(self, dtype: Any) -> Any:
        keys = jax.random.split(jax.random.key(self.seed), (self.depth, 2))
        ins = [1] + [self.width] * (self.depth - 1)
        # Slopes of a few units: neurons that bend within [−1, 1], and at different places.
        scales = [3.0] + [2.0 / np.sqrt(self.width)] * (self.depth - 1)
        return [
            {
                "W": jnp.asarray(scale, dtype) * jax.random.normal(key[0], (self.width, n), dtype),
                "w": jax.random.uniform(key[1], (self.width,), dtype, -1.5, 1.5),
            }
            for key, n, scale in zip(keys, ins, scales)
        ]

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> AbstractSchedule:
        layers = make_layer(**parts, lead=1)
        if layers.mass is not None:
            layers = eqx.tree_at(lambda layer: layer.mass, layers, self.level(layers.mass[0]))
        return _bounded(Function(function=NetworkLayers(extra, layers, t1), edges=(0.0, t1)), bounds, t1)


def features(hidden: Any, s: Any) -> Float[Array, " n"]:
    """φ at the part s of the horizon."""
    x = (2 * jnp.asarray(s, hidden[0]["W"].dtype) - 1)[None]
    for layer in hidden:
        x = jnp.tanh(layer["W"] @ x + layer["w"])
    return jnp.concatenate([x, jnp.ones(1, x.dtype)])


@final
class NetworkLayers(eqx.Module):
    """t ↦ Σ_j φ_j(t) c_j."""

    hidden: Any
    layers: Layer
    t1: float = eqx.field(static=True)

    def __call__(self, t: Array) -> Layer:
        basis = features(self.hidden, t / self.t1)
        return jax.tree.map(lambda c: jnp.tensordot(basis, c, 1), self.layers)


def _bounded(schedule: AbstractSchedule, bounds: Bounds, t1: float) -> AbstractSchedule:
    """Where coefficients are no values of the control, the ball is entered at every time anew."""
    return Function(function=Bounded(schedule, bounds), edges=(0.0, t1)) if bounds else schedule


def _repeated(value: Array, n: int) -> Array:
    return jnp.tile(value[None], (n,) + (1,) * value.ndim)


def _least_squares(basis: Any, nodes: np.ndarray, values: Array) -> Array:
    phi = jax.vmap(basis)(jnp.asarray(nodes, values.dtype))
    return jnp.tensordot(jnp.linalg.pinv(phi), values, 1)


def curve_of(name: str, size: int | None) -> AbstractCurve:
    """The curve of this name, with so many pieces ("constant", "linear") or frequencies ("fourier").

    Raises:
        InputError: an unknown name, a size below 1, or a size for "mlp".
    """
    defaults: dict[str, int | None] = {"constant": 10, "linear": 10, "fourier": 3, "mlp": None}
    if name not in defaults:
        raise InputError("is not known", where="controls", got=repr(name), expected=", ".join(defaults))
    if name == "mlp":
        if size is not None:
            raise InputError(
                "does not apply to a network of time", where="segments", got=size,
                fix="leave it out, or pass controls=jf.control.Network(width=…, depth=…)",
            )  # fmt: skip
        return Network()
    size = defaults[name] if size is None else size
    assert size is not None
    if size < 1:
        raise InputError("must be at least 1", where="segments", got=size)
    return {"constant": Steps, "linear": Lines, "fourier": Waves}[name](size)
