"""The steering problem: minimise  W₂²(N_T, target) + λ ∫₀ᵀ |u|² dt + σ ∫₀ᵀ |u̇|² dt + ωT,  u = (A, B, V, b),
over a family of layers in time, where N_t follows the moment flow from the start.
"""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxflow._checks import check_positive, check_same_dtype, is_concrete
from jaxflow._typing import Flag, Scalar
from jaxflow.control.adjoint import end_of_pieces
from jaxflow.control.curves import AbstractCurve, Steps
from jaxflow.control.limits import Bounds, Faster, faster, out_of_ball, reached
from jaxflow.control.losses import Loss, check_loss, terminal
from jaxflow.control.running import effort, smoothness
from jaxflow.errors import InputError
from jaxflow.gaussian import MomentFlow
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian
from jaxflow.solve import AbstractMethod, Dopri8, Solution, Status, Tsit5, solve
from jaxflow.transport import wasserstein_squared
from jaxflow.weights import AbstractSchedule, Function, Layer, Piecewise

Controls = dict[str, Any]
"""The free numbers: for each allowed letter the coefficients of its curve, A, V, B (n, d, d) and b (n, d), or B and V
(n, h, d, d) with several heads; where there are any, `hidden`, the parameters of the curve itself, and `time`, that of
a free horizon."""


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
        segments: equal pieces with constant controls, where no `curve` is given.
        t1: the horizon; 1 where it is free.
        allow: which of "ABVb" are free; the others are zero.
        effort_weight: λ ≥ 0.
        method, rtol, atol, dt: how moments are integrated (see `solve`). Without a method: Dopri8 with an adjoint of
            its own for constant pieces (`adjoint.py`), 5 (d = 2) to 30 times (d = 16) as fast; Tsit5 for other curves.
        curve: how controls depend on time; None: constant on the segments.
        heads: h; B and V of one head have no head axis among the controls.
        symmetric_B: B is replaced by (B + Bᵀ)/2.
        bounds: largest Frobenius norms, (name, r) in order of names.
        loss: what measures the mismatch at the end.
        smoothness_weight, time_weight: of ∫|u̇|² dt and of a free horizon T; None: not looked at.
        horizon: (lowest, highest) free horizon T. Everything then runs in the time s = t/T on [0, 1], with T·A, T·V,
            T·b and B: `weights` are those layers, and `layers_in_time` the ones on [0, T].
        prices: what multiplies the terms of the effort, by name; None: 1.
    """

    start: Gaussian
    target: Gaussian
    segments: int = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    allow: str = eqx.field(static=True)
    effort_weight: Array
    method: AbstractMethod | None = None
    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    dt: float | None = eqx.field(static=True, default=None)
    curve: AbstractCurve | None = None
    heads: int = eqx.field(static=True, default=1)
    symmetric_B: bool = eqx.field(static=True, default=False)
    bounds: Bounds = eqx.field(static=True, default=())
    loss_name: Loss = eqx.field(static=True, default="w2")
    smoothness_weight: Array | None = None
    time_weight: Array | None = None
    horizon: tuple[float, float] | None = eqx.field(static=True, default=None)
    prices: dict[str, Array] | None = None

    def __check_init__(self) -> None:
        check_allow(self.allow)
        if self.segments < 1:
            raise InputError("must be at least 1", where="segments", got=self.segments)
        check_positive(self.t1, "t1")
        check_same_dtype({"start": self.start, "target": self.target})
        check_loss(self.loss_name, self.target)
        check_heads(self.heads, self.symmetric_B, self.allow)

    @property
    def shape(self) -> AbstractCurve:
        """How controls depend on time."""
        return Steps(self.segments) if self.curve is None else self.curve

    @property
    def rough_steps(self) -> int:
        """RK4 steps on each piece that Gauss–Newton's Jacobian is worked out with: twenty or more in all. With ten,
        targets thinner than the Jacobian's error (σ_min/σ_max below 1e-3) were not always reached."""
        return max(1, -(-self.shape.steps // self.shape.pieces))

    def zero_controls(self) -> Controls:
        """Where a search begins: every control zero, except B = I/10 so that V has something to act through. Several
        heads begin at different B, or they would stay equal for ever."""
        d, dtype, shape = self.start.dim, self.start.mean.dtype, self.shape
        many = () if self.heads == 1 else (self.heads,)
        sizes = {"A": (d, d), "B": (*many, d, d), "V": (*many, d, d), "b": (d,)}
        controls: Controls = {name: shape.level(jnp.zeros(sizes[name], dtype)) for name in sorted(self.allow)}
        if "B" in controls:
            first = 0.1 * jnp.eye(d, dtype=dtype)
            if many:
                Z = np.random.default_rng(0).normal(size=(self.heads, d, d))
                first = first[None] + 0.05 * jnp.asarray(Z + Z.swapaxes(1, 2), dtype)
            controls["B"] = shape.level(first)
        if (hidden := shape.begin(dtype)) is not None:
            controls["hidden"] = hidden
        return controls if self.horizon is None else controls | {"time": jnp.zeros((), dtype)}

    def weights(self, controls: Controls) -> AbstractSchedule:
        """The controls as layers on [0, t1], ready for moments and for tokens; with a free horizon in the time s."""
        schedule = self._schedule(controls, self.t1)
        if self.horizon is None:
            return schedule
        T = self.duration(controls)
        if isinstance(schedule, Function):
            return Function(function=Faster(schedule.function, T), edges=schedule.edges)
        layers = faster(schedule.layers, T)  # pyright: ignore[reportAttributeAccessIssue]
        return eqx.tree_at(lambda schedule: schedule.layers, schedule, layers)

    def layers_in_time(self, controls: Controls) -> AbstractSchedule:
        """The layers on [0, T]. With a free horizon T must be a known number, because a schedule's edges are.

        Raises:
            InputError: a free horizon under jit, vmap or grad.
        """
        T = self.t1 if self.horizon is None else float(known(self.duration(controls)))
        return self._schedule(controls, T)

    def duration(self, controls: Controls) -> Scalar:
        """T: t1, or where the free horizon is."""
        if self.horizon is None:
            return jnp.asarray(self.t1, self.start.mean.dtype)
        low, high = self.horizon
        return low + (high - low) * jax.nn.sigmoid(controls["time"])

    def _schedule(self, controls: Controls, t1: float) -> AbstractSchedule:
        parts = {name: controls[name] for name in sorted(self.allow)}
        if self.symmetric_B:
            parts["B"] = symmetrize(parts["B"])
        if set(parts) & {"B", "V"}:
            like = parts["V"] if "B" not in parts else parts["B"]
            parts = {"B": jnp.zeros_like(like), "V": jnp.zeros_like(like), **parts}
        return self.shape.schedule(parts, controls.get("hidden"), bounds=self.bounds, t1=t1)

    def simulate(self, controls: Controls, **options: Any) -> Solution:
        """The moment flow under these controls."""
        options = {"method": self.method or Tsit5(), "rtol": self.rtol, "atol": self.atol, "dt": self.dt, **options}
        return solve(MomentFlow(self.weights(controls)), self.start, t1=self.t1, **options)

    def arrive(self, controls: Controls) -> tuple[Gaussian, Flag]:
        """The Gaussian at t₁, and whether it got there (else the last finite one before blow-up)."""
        weights = self.weights(controls)
        if self.method is None and self.dt is None and isinstance(weights, Piecewise):
            return end_of_pieces(weights, self.start, rtol=self.rtol, atol=self.atol)
        sol = self.simulate(controls, save_at=[self.t1])
        return sol.final, sol.status == Status.done

    def loss(self, controls: Controls, effort_weight: Scalar, *, fade: Scalar | float = 1.0) -> tuple[Scalar, Scalar]:
        """(objective with this λ, W₂² at t₁); `fade` multiplies the other running weights."""
        final, arrived = self.arrive(controls)
        return self.objective(controls, final, arrived, effort_weight, fade=fade)

    def objective(
        self, controls: Controls, final: Gaussian, arrived: Flag, effort_weight: Scalar, *, fade: Scalar | float = 1.0
    ) -> tuple[Scalar, Scalar]:
        """The same of a given end. Where the moments blow up on the way the objective is a constant plus the effort,
        so that its gradient leads back to smaller controls, and W₂² is inf."""
        square = wasserstein_squared(final, self.target)
        mismatch = square if self.loss_name == "w2" else terminal(self.loss_name, final, self.target)
        spent = self.effort(controls)
        paid = effort_weight * spent
        if self.smoothness_weight is not None:
            paid = paid + fade * self.smoothness_weight * self.smoothness(controls)
        if self.time_weight is not None:
            paid = paid + fade * self.time_weight * self.duration(controls)
        return jnp.where(arrived, mismatch + paid, 1e6 + spent), jnp.where(arrived, square, jnp.inf)

    def effort(self, controls: Controls) -> Scalar:
        """∫₀ᵀ |A|² + |B|² + |V|² + |b|² dt, each at its price."""
        spent = effort(self._schedule(controls, self.t1), prices=self.prices)
        return spent if self.horizon is None else self.duration(controls) * spent

    def smoothness(self, controls: Controls) -> Scalar:
        """∫₀ᵀ of the squared rates of all controls."""
        spent = smoothness(self._schedule(controls, self.t1))
        return spent if self.horizon is None else spent / self.duration(controls)

    def verify(self, controls: Controls, **options: Any) -> Solution:
        """The moment flow under these controls, integrated more finely than the search did and by another method."""
        tolerance = 1e-13 if self.start.mean.dtype == jnp.float64 else 1e-6
        return self.simulate(controls, method=Dopri8(), dt=None, rtol=tolerance, atol=tolerance, **options)

    def along(self, path: Callable[[Array], Layer], controls: Controls) -> Controls:
        """Controls whose A and b follow those of a path on [0, t1], as closely as curve and bounds let them; the rest
        as in a fresh search, but with the horizon of these controls."""
        shape, dtype = self.shape, self.start.mean.dtype
        # No batch of singular value decompositions: see `solve/one_by_one.py`.
        layers = jax.lax.map(path, jnp.asarray(shape.nodes() * self.t1, dtype))
        found = self.zero_controls() | {name: controls[name] for name in controls if name == "time"}
        radii = dict(self.bounds)
        for name in sorted({"A", "b"} & set(self.allow)):
            u = getattr(layers, name)
            if self.horizon is not None:
                u = u / self.duration(controls)
            if name in radii:
                u = out_of_ball(u, radii[name], lead=1)
            found[name] = shape.fit(u, found.get("hidden"))
        return found

    def saturation(self, controls: Controls) -> Scalar:
        """How much of its bound the closest control uses, 0 to 1."""
        schedule = self._schedule(controls, self.t1)
        return reached(schedule, self.bounds, np.linspace(0, self.t1, 64))


def known(T: Scalar) -> Scalar:
    """T if its value can be seen."""
    if not is_concrete(T):
        raise InputError(
            "is free, and the edges of layers in time must be known numbers: not under jit, vmap or grad",
            where="t1",
            got="a traced horizon",
            fix="call steer outside jit, or search with Problem, begin and advance, which work inside",
        )
    return T


def check_heads(heads: int, symmetric_B: bool, allow: str) -> None:
    """Refuse options of attention where there is none."""
    if heads < 1:
        raise InputError("must be at least 1", where="heads", got=heads)
    if heads > 1 and not {"B", "V"} <= set(allow):
        raise InputError(
            "are no more than one without B and V", where="heads", got=f"{heads} with allow = {allow!r}",
            fix="allow B and V, or leave out heads",
        )  # fmt: skip
    if symmetric_B and "B" not in allow:
        raise InputError(
            "does not apply: B is not free", where="symmetric_B", got=f"allow = {allow!r}", fix="leave it out"
        )


def tree_where(condition: Flag, x: Any, y: Any) -> Any:
    """x where the condition holds, else y, leaf by leaf."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), x, y)
