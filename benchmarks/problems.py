"""The steering problems that everyone is given: rng([18870, d, i]), then μ₀, L₀, μ₁, L₁ in this order."""

import numpy as np


def steering_problem(d, i, r=None):
    """μ₀, L₀, μ₁, L₁ of problem i in dimension d; for rank r < d the columns of L after the first r are zero, so that
    arrays of all ranks stack."""
    rng = np.random.default_rng([18870, d, i])
    data = []
    for _ in range(2):
        mean, L = rng.normal(size=d), rng.normal(size=(d, d)) / np.sqrt(d) + 0.2 * np.eye(d)
        L[:, d if r is None else r :] = 0
        data += [mean, L]
    return data


def thousand():
    """(d, [(i, r), ...]) with d = 2..16, every rank 1..d in turn: 67 problems each for d ≤ 11, 66 above."""
    return [(d, [(i, i % d + 1) for i in range(67 if d <= 11 else 66)]) for d in range(2, 17)]
