"""How many clusters a cloud has."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree


def count_clusters(points: np.ndarray, *, radius: float = 0.1) -> int:
    """The number of groups of tokens that chains of steps ≤ radius connect (single linkage). Host only.

    Args:
        points: (n, d).
        radius: in units of the tokens; 0.1 on the unit sphere is about 6 degrees.

    Cost: O(n log n); a million tokens all over S² take seconds.
    """
    points = np.asarray(points, float)
    # Tokens in one cell are within the radius of each other, and have one representative: a dense cloud has n² links.
    cell = np.floor(points / (radius / np.sqrt(points.shape[1]) * (1 - 1e-9))).astype(np.int64)
    order = np.lexsort(cell.T)
    starts = np.flatnonzero(np.append(True, (np.diff(cell[order], axis=0) != 0).any(axis=1)))
    first, members = order[starts], np.split(order, starts[1:])
    near = KDTree(points[first]).query_pairs(3 * radius, output_type="ndarray")
    gap = np.linalg.norm(points[first][near[:, 0]] - points[first][near[:, 1]], axis=1)
    group = _components(near[gap <= radius], len(first))
    trees: dict[int, KDTree] = {}
    # Where representatives are too far apart, other members may not be.
    for i, j in near[np.argsort(gap)]:
        if group[i] == group[j]:
            continue
        a, b = (trees.setdefault(k, KDTree(points[members[k]])) for k in (i, j))
        if a.count_neighbors(b, radius) > 0:
            group[group == group[j]] = group[i]
    return len(np.unique(group))


def _components(links: np.ndarray, n: int) -> np.ndarray:
    """The component of each of n nodes."""
    return connected_components(csr_array((np.ones(len(links)), links.T), shape=(n, n)), directed=False)[1]
