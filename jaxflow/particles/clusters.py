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

    Cost: O(n log n) for few neighbours, O(n²) when all tokens lie within the radius.
    """
    points = np.asarray(points)
    # Tokens that coincide to 1e-3 of the radius are one point: a collapsed cloud would have n² neighbours.
    cells = np.unique(np.round(points / (1e-3 * radius)), axis=0) * (1e-3 * radius)
    pairs = KDTree(cells).query_pairs(radius, output_type="ndarray")
    links = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(cells), len(cells)))
    return int(connected_components(links, directed=False)[0])
