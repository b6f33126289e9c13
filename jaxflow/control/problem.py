"""The steering problem: minimise  W₂²(N_{t₁}, target) + λ ∫₀^{t₁} |A|² + |B|² + |V|² + |b|² dt
over layers that are constant on k equal segments, where N_t follows the moment flow from the start.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow._typing import Flag, Scalar
from jaxflow.errors import InputError
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import AbstractMethod, Dopri8, Solution, Status, Tsit5, solve
from jaxflow.transport import wasserstein_squared
from jaxflow.weights import Piecewise

Controls = dict[str, Array]
"""The free controls by name: A, V, B (k, d, d) and b (k, d)."""


def effort(weights: Piecewise) -> Scalar:
    """∫ |A|² + |B|² + |V|² + |b|² dt with Frobenius norms."""
    durations = jnp.diff(jnp.asarray(weights.edges))
    layer = weights.layers
    controls = [x for x in (layer.A, layer.B, layer.V, layer.b) if x is not None]
    parts = [durations.astype(x.dtype) @ jnp.sum(x**2, axis=tuple(range(1, x.ndim))) for x in controls]
    return jnp.sum(jnp.stack(parts))


def check_allow(allow: str) -> None:
    """Refuse a set of controls that is empty, repeats itself, or names something else than A, B, V, b."""
    if not allow or not set(allow) <= set("ABVb") or len(set(allow)) != len(allow):
        raise InputError(
            "must name at least one control", where="allow", got=repr(allow), expected='letters of "ABVb", each once'
        )


@final
class Problem(eqx.Module):
    """Start, target, and what may be used to get from one to the other.

    Attributes:
        allow: which of "ABVb" are free; the others are zero.
        effort_weight: λ ≥ 0.
        method, rtol, atol, dt: how moments are integrated (see `solve`).
    """

    start: Gaussian
    target: Gaussian
    segments: int = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    allow: str = eqx.field(static=True)
    effort_weight: Array
    method: AbstractMethod = Tsit5()
    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    dt: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_allow(self.allow)
        if self.segments < 1:
            raise InputError("must be at least 1", where="segments", got=self.segments)
        check_positive(self.t1, "t1")
        check_same_dtype({"start": self.start, "target": self.target})

    @property
    def rough_steps(self) -> int:
        """RK4 steps on each piece that Gauss–Newton's Jacobian is worked out with: twenty or more in all. With ten,
        targets thinner than the Jacobian's error (σ_min/σ_max below 1e-3) were not always reached."""
        return max(1, -(-20 // self.segments))

    def zero_controls(self) -> Controls:
        """Where a search begins: every control zero, except B = I/10 so that V has something to act through."""
        k, d, dtype = self.segments, self.start.dim, self.start.mean.dtype
        shapes = {"A": (k, d, d), "B": (k, d, d), "V": (k, d, d), "b": (k, d)}
        controls = {name: jnp.zeros(shapes[name], dtype) for name in sorted(self.allow)}
        if "B" in controls:
            controls["B"] = jnp.tile(0.1 * jnp.eye(d, dtype=dtype), (k, 1, 1))
        return controls

    def weights(self, controls: Controls) -> Piecewise:
        """The controls as layers, ready for moments and for tokens."""
        parts: dict[str, Any] = dict(controls)
        if set(self.allow) & {"B", "V"}:
            k, d, dtype = self.segments, self.start.dim, self.start.mean.dtype
            parts = {"B": jnp.zeros((k, d, d), dtype), "V": jnp.zeros((k, d, d), dtype), **parts}
        return Piecewise(**parts, t1=self.t1)

    def simulate(self, controls: Controls, **options: Any) -> Solution:
        """The moment flow under these controls."""
        options = {"method": self.method, "rtol": self.rtol, "atol": self.atol, "dt": self.dt, **options}
        return solve(MomentFlow(self.weights(controls)), self.start, t1=self.t1, **options)

    def arrive(self, controls: Controls) -> tuple[Gaussian, Flag]:
        """The Gaussian at t₁, and whether it got there (else the last finite one before blow-up)."""
        sol = self.simulate(controls, save_at=[self.t1])
        return sol.final, sol.status == Status.done

    def loss(self, controls: Controls, effort_weight: Scalar) -> tuple[Scalar, Scalar]:
        """(objective with this λ, W₂² at t₁)."""
        final, arrived = self.arrive(controls)
        return self.objective(controls, final, arrived, effort_weight)

    def objective(
        self, controls: Controls, final: Gaussian, arrived: Flag, effort_weight: Scalar
    ) -> tuple[Scalar, Scalar]:
        """The same of a given end. Where the moments blow up on the way the objective is a constant plus the effort,
        so that its gradient leads back to smaller controls, and W₂² is inf."""
        distance = wasserstein_squared(final, self.target)
        spent = effort(self.weights(controls))
        return (
            jnp.where(arrived, distance + effort_weight * spent, 1e6 + spent),
            jnp.where(arrived, distance, jnp.inf),
        )

    def verify(self, controls: Controls, **options: Any) -> Solution:
        """The moment flow under these controls, integrated more finely than the search did and by another method."""
        tolerance = 1e-13 if self.start.mean.dtype == jnp.float64 else 1e-6
        return self.simulate(controls, method=Dopri8(), dt=None, rtol=tolerance, atol=tolerance, **options)


def with_controls(problem: Problem, weights: Piecewise) -> Controls:
    """The free controls of a given schedule, as a start for a search (one head)."""
    layer = weights.layers
    found = {"A": layer.A, "B": layer.B, "V": layer.V, "b": layer.b}
    zero = problem.zero_controls()
    return {name: zero[name] if (x := found[name]) is None else jnp.reshape(x, zero[name].shape) for name in zero}


def tree_where(condition: Flag, x: Any, y: Any) -> Any:
    """x where the condition holds, else y, leaf by leaf."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), x, y)
