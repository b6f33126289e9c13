"""The steering problem for tokens: minimise

    mean over pairs p of  loss(μ_p(t₁), target_p) + λ ∫₀^{t₁} |A|² + Σ_h |B_h|² + |V_h|² + |b|² dt

over layers that are constant on k equal segments, where every cloud μ_p follows the same layers from its own start and
attends to itself alone.
"""

from collections.abc import Callable
from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_positive, check_shape
from jaxflow._typing import Flag, PRNGKey, Scalar
from jaxflow.control.problem import Controls, check_allow, effort
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import RK4, Status, solve
from jaxflow.solve.methods import AbstractFixed
from jaxflow.transport import energy_distance, sinkhorn_divergence, sliced_wasserstein_squared
from jaxflow.weights import Piecewise

Loss = Literal["sliced", "energy", "sinkhorn"]
LOSSES: tuple[Loss, ...] = ("sliced", "energy", "sinkhorn")
STEPS = 20
"""Steps of RK4 in all, or one a segment if there are more, when no dt is given."""


@final
class TokenProblem(eqx.Module):
    """Pairs of clouds, and what may be used to get from the first of each to the second.

    Attributes:
        starts, targets: as many clouds each.
        allow: which of "ABVb" are free; the others are zero.
        heads: h, of B and V.
        effort_weight: λ ≥ 0.
        loss: "sliced", "energy" or "sinkhorn", with `epsilon` in squared units of length.
        method, dt: how tokens are moved, by fixed steps.
    """

    starts: tuple[Cloud, ...]
    targets: tuple[Cloud, ...]
    segments: int = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    allow: str = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    effort_weight: Array
    loss: Loss = eqx.field(static=True, default="sliced")
    epsilon: float = eqx.field(static=True, default=0.05)
    geometry: AbstractGeometry = Sphere()
    law: Literal["softmax", "unnormalized"] = eqx.field(static=True, default="softmax")
    method: AbstractFixed = RK4()
    dt: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_allow(self.allow)
        for name in ("segments", "heads"):
            if getattr(self, name) < 1:
                raise InputError("must be at least 1", where=name, got=getattr(self, name))
        check_positive(self.t1, "t1")
        check_positive(self.epsilon, "epsilon")
        if self.dt is not None:
            check_positive(self.dt, "dt")
        self._check_heads()
        for name, known in (("loss", LOSSES), ("law", ("softmax", "unnormalized"))):
            if getattr(self, name) not in known:
                raise InputError("is not known", where=name, got=getattr(self, name), expected=", ".join(known))
        if not isinstance(self.method, AbstractFixed):
            raise InputError(
                "must take fixed steps, whose gradient is checkpointed",
                where="integrator",
                got=type(self.method).__name__,
                expected="Euler(), Heun() or RK4()",
            )

    def _check_heads(self) -> None:
        if "B" in self.allow and "V" not in self.allow:
            raise InputError(
                "moves nothing by attention: B acts only through V",
                where="allow",
                got=repr(self.allow),
                fix="add V, or leave B out",
            )
        if self.heads > 1 and "B" not in self.allow:
            raise InputError(
                "does not apply: without B all heads are one",
                where="heads",
                got=f"{self.heads} with allow = {self.allow!r}",
                expected="1",
            )

    @property
    def dim(self) -> int:
        """d."""
        return self.starts[0].points.shape[1]

    @property
    def dtype(self) -> Any:
        """The floating type of everything."""
        return self.starts[0].points.dtype

    @property
    def step(self) -> float:
        """The longest step."""
        return min(self.t1, self.t1 / STEPS if self.dt is None else self.dt)

    def first_controls(self, key: PRNGKey | None) -> Controls:
        """Where a search begins: every control zero except B, the same on all segments. With a key the entries of every
        B_h are N(0, 1/d): heads that start equal would stay equal. Without one B = I/10."""
        k, h, d, dtype = self.segments, self.heads, self.dim, self.dtype
        shapes = {"A": (k, d, d), "B": (k, h, d, d), "V": (k, h, d, d), "b": (k, d)}
        controls = {name: jnp.zeros(shapes[name], dtype) for name in sorted(self.allow)}
        if "B" in controls:
            one = 0.1 * jnp.eye(d, dtype=dtype)[None]
            if key is not None:
                one = jax.random.normal(key, (h, d, d), dtype) / jnp.sqrt(jnp.asarray(d, dtype))
            controls["B"] = jnp.broadcast_to(one[None], (k, h, d, d))
        return controls

    def controls_of(self, weights: Piecewise) -> Controls:
        """The free controls of a given schedule with the same segments and heads."""
        found = {name: getattr(weights.layers, name) for name in "ABVb"}
        controls = {}
        for name, zero in self.first_controls(None).items():
            if found[name] is None:
                controls[name] = jnp.zeros_like(zero)
            else:
                check_shape(found[name], zero.shape, f"warm_start.{name}")
                controls[name] = jnp.asarray(found[name], self.dtype)
        return controls

    def weights(self, controls: Controls) -> Piecewise:
        """The controls as layers."""
        parts: dict[str, Any] = dict(controls)
        if "V" in parts and "B" not in parts:
            parts["B"] = jnp.zeros_like(parts["V"])
        return Piecewise(**parts, t1=self.t1)

    def arrive(self, controls: Controls, *, refine: int = 1) -> tuple[list[Cloud], Float[Array, " p"], Flag]:
        """Where every cloud ends, its loss, and whether all of them got there; with steps `refine` times shorter."""
        weights, dt = self.weights(controls), self.step / refine

        def one(start: Cloud, target: Cloud) -> tuple[Cloud, Scalar, Flag]:
            flow = AttentionFlow(weights, law=self.law, geometry=self.geometry)
            sol = solve(flow, start, t1=self.t1, method=self.method, dt=dt, save_at=[self.t1])
            return sol.final, self.mismatch(sol.final, target), sol.status == Status.done

        ends, losses, arrived = zip(*each(one, self.starts, self.targets))
        losses = jnp.stack(losses)
        # Tokens may be finite, and their squares not.
        return list(ends), losses, jnp.all(jnp.stack(arrived)) & jnp.all(jnp.isfinite(losses))

    def mismatch(self, end: Cloud, target: Cloud) -> Scalar:
        """The loss of one pair."""
        if self.loss == "energy":
            return energy_distance(end, target)
        if self.loss == "sinkhorn":
            return sinkhorn_divergence(end, target, epsilon=self.epsilon)
        return sliced_wasserstein_squared(end, target)

    def objective(self, controls: Controls, effort_weight: Scalar) -> tuple[Scalar, Float[Array, " p"]]:
        """(objective with this λ, distances). Where tokens do not stay finite the objective is a large constant plus
        the effort, and the distances are inf."""
        _, losses, arrived = self.arrive(controls)
        spent = effort(self.weights(controls))
        value = jnp.where(arrived, jnp.mean(losses) + effort_weight * spent, 1e6 + spent)
        return value, jnp.where(arrived, distances_of(losses), jnp.inf)


def distances_of(losses: Float[Array, " p"]) -> Float[Array, " p"]:
    """√loss: SW₂, the square root of the energy distance (a metric), √S_ε. Rounding below zero counts as zero."""
    return jnp.sqrt(jnp.maximum(losses, 0.0))


def each(one: Callable[..., Any], starts: tuple[Cloud, ...], targets: tuple[Cloud, ...]) -> list[Any]:
    """one(start, target) for every pair: traced once where all pairs have the same shapes."""

    def alike(clouds: tuple[Cloud, ...]) -> bool:
        return len({(str(jax.tree.structure(c)), c.points.shape) for c in clouds}) == 1

    if len(starts) == 1 or not (alike(starts) and alike(targets)):
        return [one(start, target) for start, target in zip(starts, targets)]
    stacked = [jax.tree.map(lambda *xs: jnp.stack(xs), *clouds) for clouds in (starts, targets)]
    together = jax.vmap(one)(*stacked)
    return [jax.tree.map(lambda x, p=p: x[p], together) for p in range(len(starts))]
