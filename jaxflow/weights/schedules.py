"""How a layer changes with depth t: constant, piecewise constant, sampled, or any function of t."""

import abc
import collections.abc
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey, Real, Scalar
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer, make_layer


class AbstractSchedule(eqx.Module):
    """t ↦ Layer, smooth between the times in `edges`, possibly random.

    A random schedule keeps a state of its own (`begin`, `advance`), which fixed-step solvers carry along; for
    the others that state is None.
    """

    edges: eqx.AbstractVar[tuple[float, ...]]
    """Times between which the schedule is smooth, first and last included; empty: smooth everywhere."""

    random: ClassVar[bool]
    """Whether a key is needed."""

    @abc.abstractmethod
    def at(self, t: Real, state: Any = None) -> Layer:
        """The layer at depth t."""

    @abc.abstractmethod
    def piece(self, i: Any) -> "AbstractSchedule":
        """The schedule between edges i and i+1, as a schedule without edges."""

    @abc.abstractmethod
    def drift(self, t: Real, state: Any = None) -> Float[Array, "h d d"]:
        """Ḃ_h, for random schedules the drift part of dB_h."""

    @abc.abstractmethod
    def begin(self, key: PRNGKey | None) -> Any:
        """The random state at t = 0."""

    @abc.abstractmethod
    def advance(self, state: Any, h: Real, key: PRNGKey | None, t: Real = 0.0) -> Any:
        """The random state at t + h, given that at t."""


class AbstractDeterministic(AbstractSchedule):
    """A schedule without randomness."""

    random = False

    def drift(self, t: Real, state: None = None) -> Float[Array, "h d d"]:
        t = jnp.asarray(t, self.at(0.0).dtype)
        return jax.jvp(lambda t: self.at(t).B, (t,), (jnp.ones_like(t),))[1]

    def begin(self, key: PRNGKey | None) -> None:
        return None

    def advance(self, state: None, h: Real, key: PRNGKey | None, t: Real = 0.0) -> None:
        return None


@final
class Held(AbstractDeterministic):
    """One layer, already checked, at every depth."""

    layer: Layer
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def at(self, t: Real, state: None = None) -> Layer:
        return self.layer

    def piece(self, i: Any) -> "Held":
        return self


@final
class Constant(AbstractDeterministic):
    """The same layer at every depth.

    Args:
        D: tied heads, (h, d, d) or (d, d), symmetric; the flow's direction gives V = ∓D.
        B, V: free heads, (h, d, d) or (d, d).
        A, b: feed-forward, (d, d) and (d,).
        mass: c_h, (h,); default 1/h for tied heads, 1 for free heads.

    Raises:
        InputError: see `make_layer`.
    """

    layer: Layer
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, *, D: Any = None, B: Any = None, V: Any = None, A: Any = None, b: Any = None, mass: Any = None):
        self.layer = make_layer(D=D, B=B, V=V, A=A, b=b, mass=mass)
        self.edges = ()

    def at(self, t: Real, state: None = None) -> Layer:
        return self.layer

    def piece(self, i: Any) -> "Constant":
        return self


@final
class Piecewise(AbstractDeterministic):
    """k layers, one after the other: the depth of a transformer. Layer i acts on [edges[i], edges[i+1]).

    Args:
        D, B, V, A, b, mass: as for `Constant`, each with a leading axis of length k.
        t1: the end of the last layer, when all last equally long.
        durations: k positive times, instead of t1.

    Raises:
        InputError: as for `Constant`; or both or neither of `t1` and `durations`; or a duration that is not positive.
    """

    layers: Layer
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        *,
        D: Any = None,
        B: Any = None,
        V: Any = None,
        A: Any = None,
        b: Any = None,
        mass: Any = None,
        t1: float | None = None,
        durations: collections.abc.Sequence[float] | None = None,
    ):
        self.layers = make_layer(D=D, B=B, V=V, A=A, b=b, mass=mass, lead=1)
        k = jax.tree.leaves(self.layers)[0].shape[0]
        if (t1 is None) == (durations is None):
            raise InputError("needs exactly one of t1 and durations", where="Piecewise", got=f"t1={t1}, {durations=}")
        lengths = np.full(k, float(t1) / k) if t1 is not None else np.asarray(durations, float)
        if lengths.shape != (k,) or not (lengths > 0).all():
            raise InputError(
                "must be one positive time per layer", where="durations", got=lengths.tolist(), expected=f"{k} of them"
            )
        ends = np.linspace(0, float(t1), k + 1) if t1 is not None else np.concatenate([[0], np.cumsum(lengths)])
        self.edges = tuple(ends.tolist())

    def at(self, t: Real, state: None = None) -> Layer:
        """The layer at t; each layer owns its left end, the last one both ends."""
        i = jnp.searchsorted(jnp.asarray(self.edges[1:-1]), t, side="right")
        return self.piece(i).at(t)

    def piece(self, i: Any) -> Held:
        return Held(layer=jax.tree.map(lambda x: x[i], self.layers))


@final
class Sampled(AbstractDeterministic):
    """Layers given at increasing times, joined by straight lines: a recorded path, such as one of a random schedule.

    Args:
        ts: m times, (m,). Outside them the first and last layer hold.
        layers: a Layer whose arrays have a leading axis m.
    """

    ts: Float[Array, " m"]
    layers: Layer
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def at(self, t: Real, state: None = None) -> Layer:
        i = jnp.clip(jnp.searchsorted(self.ts, t, side="right") - 1, 0, self.ts.shape[0] - 2)
        c = jnp.clip((t - self.ts[i]) / (self.ts[i + 1] - self.ts[i]), 0, 1)
        return jax.tree.map(lambda x: (1 - c) * x[i] + c * x[i + 1], self.layers)

    def piece(self, i: Any) -> "Sampled":
        return self


@final
class Function(AbstractDeterministic):
    """Any smooth function of t that returns a Layer. The function may be an `eqx.Module` with parameters.

    Args:
        function: t ↦ Layer. Build the layer with `jf.weights.make_layer` or `Layer(...)`.
    """

    function: collections.abc.Callable[[Scalar], Layer]
    edges: tuple[float, ...] = eqx.field(static=True, default=())

    def at(self, t: Real, state: None = None) -> Layer:
        return self.function(jnp.asarray(t))

    def piece(self, i: Any) -> "Function":
        return self
