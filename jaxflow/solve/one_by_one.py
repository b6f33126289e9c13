"""How a batch of searches is run: on a CPU one after the other, because side by side all would wait for the slowest."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def one_by_one(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f, whose `vmap` on a CPU is a loop, and on everything else what it would be anyway.

    Side by side a loop goes on until the last lane has ended, and small matrices gain little from each other on a CPU.
    To use several cores, deal the batch to several devices (`spread`). That is safe in a loop alone: two devices that
    share their threads, each with a batch of eigenproblems or singular value decompositions, can wait for each other
    for ever (jaxlib 0.10.1, `jax::ParallelBatchMap`).

    Args:
        f: takes and returns one pytree; what is not an array in them is static.
    """

    def mapped(x: Any) -> Any:
        given, rest = eqx.partition(x, eqx.is_array)
        static = []

        @jax.custom_batching.custom_vmap
        def call(given: Any) -> Any:
            found, others = eqx.partition(f(eqx.combine(given, rest)), eqx.is_array)
            static[:] = [others]
            return found

        @call.def_vmap
        def rule(_: int, batched: Any, given: Any) -> tuple[Any, Any]:
            moving, fixed = eqx.partition(given, batched[0])

            def one(moving: Any) -> Any:
                return call(eqx.combine(moving, fixed))

            found = jax.lax.map(one, moving) if jax.default_backend() == "cpu" else jax.vmap(one)(moving)
            return found, jax.tree.map(lambda _: True, found)

        return eqx.combine(call(given), static[0])

    return mapped
