"""Independent answers: NumPy loops where the library has products, SciPy integrators where it has its own.

Nothing here imports jaxflow, so that a mistake cannot be on both sides of a comparison.
"""

import math

import numpy as np
from scipy.integrate import solve_ivp


def tilt(B, x, w, *, causal=False):
    """m(x_i), a(x_i) and the second moments by the double loop of their definition."""
    n, d = x.shape
    m, a, S = np.zeros(n), np.zeros((n, d)), np.zeros((n, d, d))
    for i in range(n):
        for j in range(i + 1 if causal else n):
            p = w[j] * math.exp((B @ x[i]) @ x[j])
            m[i] += p
            a[i] += p * x[j]
            S[i] += p * np.outer(x[j], x[j])
    return m, a / m[:, None], S / m[:, None, None]


def velocity(x, w, heads, *, law="softmax", A=None, b=None, sphere=True, causal=False):
    """ẋ_i for heads [(c, B, V), ...], one token at a time."""
    tilts = [tilt(B, x, w, causal=causal) for _, B, _ in heads]
    v = np.zeros_like(x)
    for i in range(len(x)):
        u = np.zeros(x.shape[1])
        if A is not None:
            u += A @ x[i]
        if b is not None:
            u += b
        total = sum(c for c, _, _ in heads)
        # Means over heads are taken with c/Σc in the steepest law alone.
        inverse = sum(c / m[i] for (c, _, _), (m, _, _) in zip(heads, tilts)) / total**2
        for (c, _, V), (m, a, _) in zip(heads, tilts):
            factor = {"softmax": 1.0, "unnormalized": m[i], "steepest": m[i] * inverse}[law]
            u += c * factor * V @ a[i]
        v[i] = u - (u @ x[i]) / (x[i] @ x[i]) * x[i] if sphere else u
    return v


def energy(x, w, heads):
    """E = ½ Σ_h c̄_h Σ_ij w_i w_j e^{⟨D_h x_i, x_j⟩} for heads [(c, D), ...]."""
    total = sum(c for c, _ in heads)
    pairs = ((i, j) for i in range(len(x)) for j in range(len(x)))
    return sum(0.5 * c / total * w[i] * w[j] * math.exp((D @ x[i]) @ x[j]) for i, j in pairs for c, D in heads)


def moments(mean, covariance, layer_at, times, *, edges=()):
    """Mean and covariance at `times` from equation (1.1) in its Σ form, by DOP853 at 1e-12, piece by piece.

    layer_at(t) -> (A, b, [(c, B, V), ...]).
    """
    d = len(mean)

    def right(t, z, middle):
        # Within a piece the layer is that of its middle, so that no rounding at an edge matters.
        A, b, heads = layer_at(t if middle is None else middle)
        mu, Sigma = z[:d], z[d:].reshape(d, d)
        K = A + sum(c * V @ Sigma @ B for c, B, V in heads)
        dmu = K @ mu + sum(c * V @ mu for c, _, V in heads) + b
        dSigma = K @ Sigma + Sigma @ K.T
        return np.concatenate([dmu, dSigma.ravel()])

    z, out, t = np.concatenate([mean, covariance.ravel()]), [], 0.0
    for stop in sorted({*times, *(e for e in edges if 0 < e < max(times))}):
        middle = 0.5 * (t + stop) if edges else None
        z = solve_ivp(right, (t, stop), z, args=(middle,), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        t = stop
        if stop in times:
            out.append((z[:d].copy(), z[d:].reshape(d, d).copy()))
    return out


def derivative(f, x, *, step=1e-3):
    """f'(x) by central differences with two Richardson extrapolations: error O(step⁶)."""
    h = step * np.array([1, 2, 4])
    c = np.array([(f(x + k) - f(x - k)) / (2 * k) for k in h])
    first = (4 * c[:-1] - c[1:]) / 3
    return (16 * first[0] - first[1]) / 15


def order(steps, errors):
    """The slope of log error against log step."""
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


def rotation(d, seed=0):
    """A rotation of R^d without symmetry of its own."""
    Q, R = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    Q = Q * np.sign(np.diag(R))
    Q[:, 0] *= np.linalg.det(Q)
    return Q


def unit_rows(n, d, seed=0):
    """n points of the sphere in general position."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def weights(n, seed=0):
    """n unequal weights that sum to one."""
    w = np.random.default_rng(seed).uniform(0.3, 1.7, size=n)
    return w / w.sum()


def symmetric(h, d, scale=1.0, seed=0):
    """h different symmetric matrices."""
    Z = np.random.default_rng(seed).normal(size=(h, d, d))
    return scale * (Z + Z.swapaxes(1, 2)) / 2


def general(*shape, scale=1.0, seed=0):
    """Numbers without symmetry: a transpose must not pass unnoticed."""
    return scale * np.random.default_rng(seed).normal(size=shape)
