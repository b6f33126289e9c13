"""How does a pytree of arrays become the named arrays of a checkpoint, and back?"""

from typing import Any

import jax
import numpy as np


def to_arrays(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    """Every array of the tree under a name made of its place in it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(prefix: str, like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The tree shaped `like` this one, with its arrays taken from `arrays`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree.unflatten(structure, [arrays[prefix + jax.tree_util.keystr(path)] for path, _ in leaves])
