"""Which kernel is the fastest for these tokens and heads?

Costs in units of one pair of tokens under one head, exponentiated and summed:

    direct     h n²
    harmonic   G h g² + n K (h + 4)/C,   g = (L+1)(2L+2) points of the grid on S², K = (L+1)² functions

G and C were fitted to the measured crossovers and to a million tokens (benchmarks/test_attention.py: two cores,
float64, tied heads).
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real
from jaxflow.attention.base import AbstractKernel, Tilted
from jaxflow.attention.chunked import Chunked
from jaxflow.attention.harmonic import Harmonic
from jaxflow.attention.harmonics import harmonics
from jaxflow.attention.pallas import Pallas
from jaxflow.errors import InputError

GRID_PAIR = 2.5
"""G: pairs of tokens in the time of a pair of points of the grid, whose weights may be negative."""

FUNCTIONS_A_PAIR = 4.0
"""C: functions of the basis, evaluated and summed for one head, in the time of a pair."""


def _direct(dtype: Any) -> Chunked | Pallas:
    """The kernel of sums over pairs for this device and precision."""
    on_gpu = jax.default_backend() == "gpu"
    return Pallas() if on_gpu and jnp.dtype(dtype) == jnp.float32 else Chunked()


@final
class Auto(AbstractKernel):
    """`Chunked()`, or on S¹ and S² `Harmonic` where that is faster; `solve` settles it from n, d, h and max ‖B_h(t)‖.
    On a GPU in float32 direct sums are those of `Pallas()`.

    `Solution.stats["harmonic_degree"]` says what was chosen: its degree, or 0 for direct sums. Where a token exceeds
    the tolerance, `Chunked()` answers, at its cost. Direct sums it is too for causal and hardmax attention, off the
    sphere, and where the weights are not known before tracing: under `jit` solve `flow.settle(state, t0, t1)`.

    Args:
        tolerance: on log m_h(x) and a_h(x), as for `Harmonic`.
    """

    tolerance: float | None = eqx.field(static=True, default=None)

    def choose(self, norm: Real, *, n: int, dim: int, heads: int, dtype: Any) -> AbstractKernel:
        """The kernel for n tokens in R^dim under heads with ‖B_h‖ ≤ norm."""
        direct = _direct(dtype)
        pairs = heads * n**2
        if dim not in (2, 3) or n < 2:
            return direct
        harmonic = Harmonic(float(norm), tolerance=self.tolerance, fallback=direct)
        try:
            grid = harmonics(dim, harmonic.degree_for(dim, dtype))
        except InputError:
            return direct
        through_grid = GRID_PAIR * heads * len(grid.points) ** 2 + n * grid.size * (heads + 4) / FUNCTIONS_A_PAIR
        return harmonic if through_grid < pairs else direct

    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        return Chunked()(q, x, log_w, second=second, causal=causal)

    def tied(
        self, D: Float[Array, "h d d"], x: Float[Array, "n d"], log_w: Float[Array, " n"], *, quartic: bool = False
    ) -> Tilted:
        return Chunked().tied(D, x, log_w, quartic=quartic)
