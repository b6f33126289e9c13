"""The same computation for many independent rows, dealt to several devices, which work without a word to each other."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec


def spread(several: Callable[[Any], Any], rows: Any, devices: Sequence[jax.Device] | None) -> Any:
    """`several(rows)`, a share of the rows on each device.

    Args:
        several: takes and returns pytrees with the rows along the leading axis of every array, row by row.
        rows: where they do not divide evenly, the last is repeated, and what comes of it dropped.
        devices: None, or one device: all rows where they are.
    """
    if devices is None or len(devices) == 1:
        return several(rows)
    n, k = jax.tree.leaves(rows)[0].shape[0], len(devices)
    mesh, over = Mesh(np.array(devices), ("rows",)), PartitionSpec("rows")
    on_each = jax.shard_map(several, mesh=mesh, in_specs=over, out_specs=over, check_vma=False)
    if n % k == 0:
        return on_each(rows)
    fill = np.minimum(np.arange(-(-n // k) * k), n - 1)
    return jax.tree.map(lambda x: x[:n], on_each(jax.tree.map(lambda x: x[fill], rows)))
