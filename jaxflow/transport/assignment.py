"""The assignment problem: min over permutations σ of Σ_i c_{iσ(i)}, started from the potentials of a sample.

Potentials with f_i + g_j ≤ c_ij change the cost of every permutation by the same number Σf + Σg. Where they are nearly
optimal, the reduced costs c_ij − f_i − g_j ≥ 0 nearly vanish on the answer, and the shortest augmenting paths by which
SciPy finds it are short. Whatever the potentials, the answer is exact.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

SMALL = 250
"""Below this the problem is solved as it is."""

SAMPLE = 4
"""One point in so many gives the potentials; they cost a sixteenth of what they save or less."""

ROUNDS = 1000
"""Of the relaxation for the potentials of a sample, which needs about √n; they may be rough."""


def assign(cost: Float[np.ndarray, "n n"]) -> Int[np.ndarray, " n"]:
    """σ, the column of every row. O(n³) in the worst case; 3 s for 2000 points in space (9 s without potentials)."""
    n = len(cost)
    if n <= SMALL:
        return linear_sum_assignment(cost)[1]
    # A sample of its own for each side: the order of the points may mean something.
    rows, columns = (np.random.default_rng(seed).permutation(n)[: n // SAMPLE] for seed in (0, 1))
    part = cost[np.ix_(rows, columns)]
    f = (part - _potentials(part, assign(part))[None]).min(1)
    g = (cost[rows] - f[:, None]).min(0)
    reduced = cost - g[None]
    reduced -= reduced.min(1, keepdims=True)
    reduced -= reduced.min(0, keepdims=True)
    return linear_sum_assignment(reduced)[1]


def _potentials(cost: Float[np.ndarray, "n n"], match: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The g of the columns of a solved problem: f_i + g_j ≤ c_ij with equality at j = σ(i), by shortest paths over
    the lengths c_ij − c_{iσ(i)} from column σ(i) to column j, which have no negative cycle."""
    lengths = cost - np.take_along_axis(cost, match[:, None], 1)
    g = np.zeros(len(cost))
    for _ in range(ROUNDS):
        shorter = np.minimum(g, (lengths + g[match][:, None]).min(0))
        if np.max(g - shorter) <= 1e-12 * np.max(cost):
            break
        g = shorter
    return g
