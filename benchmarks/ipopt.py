"""The peer: CasADi and IPOPT by direct multiple shooting, RK4 on a fixed grid, exact Hessian, from a cold start."""

import time

import casadi as ca
import numpy as np

SUBSTEPS = 8


def _velocity(d):
    """(μ, Σ), (A, B, V, b) ↦ (μ̇, Σ̇), Σ as its lower triangle."""
    rows, columns = np.tril_indices(d)
    x, u = ca.SX.sym("x", d + len(rows)), ca.SX.sym("u", 3 * d * d + d)
    mu, Sigma = x[:d], ca.SX(d, d)
    for n, (i, j) in enumerate(zip(rows, columns)):
        Sigma[int(i), int(j)] = Sigma[int(j), int(i)] = x[d + n]
    A, B, V = (ca.reshape(u[n * d * d : (n + 1) * d * d], d, d) for n in range(3))
    K = A + V @ Sigma @ B
    S = K @ Sigma + Sigma @ K.T
    out = ca.vertcat((K + V) @ mu + u[3 * d * d :], *(S[int(i), int(j)] for i, j in zip(rows, columns)))
    return ca.Function("velocity", [x, u], [out])


def _segment(d, h):
    """One segment by RK4."""
    f = _velocity(d)
    x0, u = ca.MX.sym("x", f.size1_in(0)), ca.MX.sym("u", f.size1_in(1))
    x, step = x0, h / SUBSTEPS
    for _ in range(SUBSTEPS):
        k1 = f(x, u)
        k2 = f(x + step / 2 * k1, u)
        k3 = f(x + step / 2 * k2, u)
        k4 = f(x + step * k3, u)
        x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return ca.Function("segment", [x0, u], [x])


class MultipleShooting:
    """The program of one dimension, built once: solve(data) for many problems."""

    def __init__(self, d, segments=10, cap=None, seconds=60.0):
        self.d, self.k, self.cap = d, segments, cap
        rows, columns = np.tril_indices(d)
        self.triangle, self.diagonal = (rows, columns), [d + n for n in range(len(rows)) if rows[n] == columns[n]]
        nx, nu = d + len(rows), 3 * d * d + d
        began = time.perf_counter()
        step = _segment(d, 1 / segments)
        X, U = ca.MX.sym("X", nx, segments + 1), ca.MX.sym("U", nu, segments)
        gaps = [X[:, i + 1] - step(X[:, i], U[:, i]) for i in range(segments)]
        problem = {"x": ca.vertcat(ca.vec(X), ca.vec(U)), "f": ca.sumsqr(U) / segments, "g": ca.vertcat(*gaps)}
        options = {"print_time": False, "ipopt": {"print_level": 0, "max_cpu_time": seconds, "sb": "yes", "tol": 1e-9}}
        self.solver = ca.nlpsol("solver", "ipopt", problem, options)
        self.build_seconds = time.perf_counter() - began

    def _state(self, mu, L):
        return np.concatenate([mu, (L @ L.T)[self.triangle]])

    def solve(self, mu0, L0, mu1, L1):
        """(controls by name, effort, whether IPOPT says it is done, seconds)."""
        d, k = self.d, self.k
        x0, x1 = self._state(mu0, L0), self._state(mu1, L1)
        nx, nu = len(x0), 3 * d * d + d
        low, high = np.full((k + 1, nx), -np.inf), np.full((k + 1, nx), np.inf)
        if self.cap is not None:
            high[:, self.diagonal] = self.cap * np.maximum(x0[self.diagonal], x1[self.diagonal])
        low[0] = high[0] = x0
        low[-1] = high[-1] = x1
        guess = np.concatenate([np.tile(0.1 * np.eye(d).ravel() * (n == 1), 1) for n in range(3)] + [np.zeros(d)])
        states = x0 + np.linspace(0, 1, k + 1)[:, None] * (x1 - x0)
        free = np.full(nu * k, np.inf)
        began = time.perf_counter()
        found = self.solver(
            x0=np.concatenate([states.ravel(), np.tile(guess, k)]), lbg=0, ubg=0,
            lbx=np.concatenate([low.ravel(), -free]), ubx=np.concatenate([high.ravel(), free]),
        )  # fmt: skip
        seconds = time.perf_counter() - began
        U = np.asarray(found["x"]).ravel()[nx * (k + 1) :].reshape(k, nu)
        # CasADi fills matrices column by column.
        A, B, V = (U[:, n * d * d : (n + 1) * d * d].reshape(k, d, d).transpose(0, 2, 1) for n in range(3))
        controls = {"A": A, "B": B, "V": V, "b": U[:, 3 * d * d :]}
        return controls, float(found["f"]), bool(self.solver.stats()["success"]), seconds
