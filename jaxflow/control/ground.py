"""What a search for the cheapest controls stands on: c(u), s(u) and the cost of flat controls u, and the precise path.

c are the moments at t₁ less the target's, in coordinates where the target is N(·, I); s = 1 − diag Σ/cap is the room
left below the caps at the ends of all pieces but the last.
"""

from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxflow._typing import Flag, Scalar
from jaxflow.control.frame import Frame, frame_of
from jaxflow.control.problem import Controls, Problem
from jaxflow.control.shoot import nodes_of, smooth_nodes
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian

Cost = Literal["effort", "kinetic"]
COSTS: tuple[Cost, ...] = ("effort", "kinetic")

STEPS, FEWER = 20, 12
"""Differentiable steps in all, spread over the pieces; and for the curvature."""


@final
class Ground(eqx.Module):
    """One problem, its caps and its cost.

    Attributes:
        cap: the largest variances allowed, (d,); None: no caps.
        cost: "effort" is ∫ |A|² + Σ_h |B_h|² + |V_h|² + |b|² dt, each at its price; "kinetic" is ∫ tr(KΣKᵀ) + |μ̇|² dt.
        frame: the coordinates of c; fixed, however the target is differentiated.
        units: what flat controls of these names are multiplied by, √price: in them the effort is the square.
    """

    problem: Problem
    cap: Array | None
    cost: Cost = eqx.field(static=True)
    like: Controls
    frame: Frame
    units: dict[str, Array]

    def __init__(self, problem: Problem, cap: Array | None, cost: Cost) -> None:
        self.problem, self.cap, self.cost = problem, cap, cost
        self.like = problem.zero_controls()
        self.frame = frame_of(jax.lax.stop_gradient(problem.target))
        self.units = jax.tree.map(lambda p: jnp.sqrt(jax.lax.stop_gradient(p)), problem.prices or {})

    @property
    def stiffness(self) -> float:
        """σ: the curvature of the effort of k equal pieces, 2t₁/k; of no other cost, but of its order."""
        return 2 * self.problem.t1 / self.problem.shape.pieces

    @property
    def ends(self) -> Float[Array, " d"]:
        """The larger of start's and target's variances."""
        return larger_variances(self.problem)

    def peak(self, nodes: Gaussian) -> Scalar:
        """The largest variance of a path relative to those."""
        return jnp.max(jnp.sum(nodes.factor**2, axis=-1) / self.ends[None, :])

    def flat(self, controls: Controls) -> Array:
        return ravel_pytree(controls | {name: unit * controls[name] for name, unit in self.units.items()})[0]

    def controls(self, u: Array) -> Controls:
        controls = ravel_pytree(self.like)[1](u)
        return controls | {name: controls[name] / unit for name, unit in self.units.items()}

    def smooth(self, u: Array, pace: Array, *, fewer: bool = False) -> tuple[Array, Array, Scalar]:
        """c, s and the cost by a few fixed steps, shared among the pieces in proportion to `pace`: differentiable."""
        weights = self.problem.weights(self.controls(u))
        steps = self.steps_for(pace, fewer=fewer)
        nodes, kinetic = smooth_nodes(weights, self.problem.start, self.problem.t1, pace, steps=steps)
        return *self.read(nodes), (self.effort(u) if self.cost == "effort" else kinetic)

    def steps_for(self, pace: Array, *, fewer: bool = False) -> int:
        """How many fixed steps."""
        pieces = pace.shape[0]
        return max(FEWER, pieces + 2) if fewer else max(STEPS, 2 * pieces)

    def effort(self, u: Array) -> Scalar:
        return self.problem.effort(self.controls(u))

    def precise(self, u: Array) -> tuple[Gaussian, Flag, Array]:
        """The Gaussians at the ends of all pieces, whether the path got to the last, and the steps each piece took."""
        nodes, arrived, tries = nodes_of(self.problem.weights(self.controls(u)), self.problem.start, self.problem.t1)
        return nodes, arrived, tries.astype(u.dtype)

    def read(self, nodes: Gaussian) -> tuple[Array, Array]:
        """c and s of a path."""
        c = self.frame.gap(jax.tree.map(lambda x: x[-1], nodes), self.problem.target)
        if self.cap is None:
            return c, jnp.zeros(0, c.dtype)
        return c, (1 - jnp.sum(nodes.factor[:-1] ** 2, axis=-1) / self.cap[None, :]).ravel()

    def in_moments(self, row: Array) -> tuple[Array, Array]:
        """Of a linear form in c: its coefficients in μ, (d,), and in Σ, (d, d) symmetric."""
        W, moves = self.frame
        d = len(W)
        triangle = jnp.zeros((d, d), row.dtype).at[np.tril_indices(d)].set(jnp.where(moves, row[d:], 0))
        return W.T @ row[:d], symmetrize(W.T @ triangle @ W)


def larger_variances(problem: Problem) -> Float[Array, " d"]:
    """max(diag Σ₀, diag Σ₁)."""
    return jnp.maximum(*(jnp.sum(g.factor**2, axis=-1) for g in (problem.start, problem.target)))
