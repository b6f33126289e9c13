"""How do the cheapest controls answer a change of start, target, caps or prices? By staying the cheapest.

Where L = cost − λ·c − z·s + ½ w·(s − s*)², w = z/s*, is the Lagrangian at a minimum, the last term the barrier's,

    R(u, λ; θ) = (∇_u L, −c) = 0,      [ H  −Jᵀ ] (du)      (∂_θ∇_u L)
                                       [ −J  0  ] (dλ)  = −  (−∂_θ c  )      H = ∇²_u L.

The matrix is symmetric, so that one solver serves forward and reverse mode. Nothing of the search is differentiated.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._typing import Flag, Scalar
from jaxflow.control.expansion import expand
from jaxflow.control.ground import Ground
from jaxflow.control.problem import Controls
from jaxflow.control.tangent import newton_step, preconditioner, tangents
from jaxflow.solve.one_by_one import one_by_one

ACCURACY = 1e-11
"""Of the tangential part of du, relative."""

PRODUCTS = 2000
"""Products with H, at most."""


class Minimum(NamedTuple):
    """Controls, λ, z and the cost of a minimum; how many steps each piece of its path took, and s there; and whether it
    is one."""

    controls: Controls
    multipliers: Array
    z: Array
    cost: Scalar
    pace: Array
    s: Array
    settled: Flag


@eqx.filter_custom_jvp
def respond(ground: Ground, found: Minimum) -> tuple[Controls, Array, Scalar]:
    """Controls, λ and cost of a minimum, with their derivatives in start, target, caps and prices of the ground.

    Forward and reverse mode, of first order. Where no minimum was found the derivatives are NaN. Cost, for every
    direction: one solve by conjugate gradients, of as many products with H as it takes, and one second derivative of
    a moment flow.
    """
    return found.controls, found.multipliers, found.cost


@respond.def_jvp
def _respond(given: Any, moved: Any) -> Any:
    ground, found = given
    u = ground.flat(found.controls)
    zero = jax.tree.map(jnp.zeros_like, eqx.filter(ground, eqx.is_inexact_array))
    direction = jax.tree.map(lambda x, dx: x if dx is None else dx, zero, moved[0], is_leaf=lambda x: x is None)

    def stationarity(ground: Ground) -> Array:
        """R."""
        gradient, c = jax.grad(lambda u: _lagrangian(found, *ground.smooth(u, found.pace)), has_aux=True)(u)
        return jnp.concatenate([gradient, -c])

    _, moved_R = eqx.filter_jvp(stationarity, (ground,), (direction,))
    still = jax.lax.stop_gradient(ground)
    # A factor, because reverse mode would drop a constant.
    answer = jnp.where(found.settled, 1, jnp.nan) * _solve(still, found, u, -moved_R)
    du, dmultipliers = answer[: u.size], answer[u.size :]

    def cost(ground: Ground, u: Array) -> Scalar:
        return ground.smooth(u, found.pace)[2]

    _, dcost = eqx.filter_jvp(cost, (ground, u), (direction, du))
    _, dcontrols = jax.jvp(still.controls, (u,), (du,))
    return (found.controls, found.multipliers, found.cost), (dcontrols, dmultipliers, dcost)


def _lagrangian(found: Minimum, c: Array, s: Array, cost: Scalar) -> tuple[Scalar, Array]:
    """L, with s as the precise path has it where it is expanded; and c."""
    away = s - jax.lax.stop_gradient(s)
    w = found.z / found.s
    return cost - found.multipliers @ c - found.z @ s + 0.5 * w @ away**2, c


def _solve(ground: Ground, found: Minimum, u: Array, right: Array) -> Array:
    """(du, dλ) of this right-hand side, both as one vector."""
    near = expand(ground, u, found.pace)
    H = near.hessian(lambda *now: _lagrangian(found, *now)[0])
    # A batch of eigenproblems: see `solve/one_by_one.py`.
    space = one_by_one(tangents)(near.J)
    P = preconditioner(space, near.G, found.z / found.s, jnp.asarray(ground.stiffness, u.dtype))

    def times(x: Array) -> Array:
        du, dmultipliers = x[: u.size], x[u.size :]
        return jnp.concatenate([H(du) - near.J.T @ dmultipliers, -near.J @ du])

    def solve(_: Any, right: Array) -> Array:
        a, e = right[: u.size], right[u.size :]
        du = -space.lift(e)
        r = space.project(H(du) - a)
        inf, accuracy = jnp.asarray(jnp.inf, u.dtype), jnp.asarray(ACCURACY, u.dtype)
        p, _, _ = newton_step(H, r, space, P, radius=inf, accuracy=accuracy, products=PRODUCTS)
        du = du + p
        return jnp.concatenate([du, space.multipliers(H(du) - a)])

    return jax.lax.custom_linear_solve(times, right, solve, symmetric=True)
