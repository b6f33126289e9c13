"""How a batch of searches is run: on a CPU one after the other, because side by side all would wait for the slowest."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def one_by_one(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, whose `vmap` on a CPU is a loop, and on everything else what it would be anyway.

    Side by side a loop goes on until the last lane has ended, and small matrices gain nothing from each other on a CPU.
    To use several cores, deal the batch to several devices (`spread`).

    Args:
        f: takes and returns pytrees; what is not an array in its arguments is static.
    """

    def mapped(*args: Any) -> Any:
        arrays, rest = eqx.partition(args, eqx.is_array)

        @jax.custom_batching.custom_vmap
        def call(arrays: Any) -> Any:
            return f(*eqx.combine(arrays, rest))

        @call.def_vmap
        def rule(size: int, batched: Any, arrays: Any) -> tuple[Any, Any]:
            moving, fixed = eqx.partition(arrays, batched[0])

            def one(moving: Any) -> Any:
                return call(eqx.combine(moving, fixed))

            found = jax.lax.map(one, moving) if jax.default_backend() == "cpu" else jax.vmap(one)(moving)
            return found, jax.tree.map(lambda _: True, found)

        return call(arrays)

    return mapped
