"""Square roots, Lyapunov equations and Bures gaps, and their derivatives where eigenvalues meet."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_sylvester, sqrtm

from jaxflow import linalg

numbers = st.lists(st.floats(-2, 2), min_size=9, max_size=9).map(lambda x: np.reshape(x, (3, 3)))


@settings(max_examples=50, deadline=None)
@given(numbers)
def test_sqrtm_squared_is_the_matrix(G):
    A = G @ G.T
    X = linalg.sqrtm(jnp.asarray(A))
    np.testing.assert_allclose(X, X.T, atol=1e-14 * max(1, np.abs(A).max()))
    np.testing.assert_allclose(X @ X, A, atol=1e-13 * max(1, np.abs(A).max()))


def test_sqrtm_counts_negative_rounding_as_zero():
    X = linalg.sqrtm(jnp.diag(jnp.asarray([4.0, -1e-18])))
    np.testing.assert_array_equal(X, np.diag([2.0, 0.0]))


def test_derivative_of_sqrtm_where_all_eigenvalues_are_equal():
    # (aI + t·E)^½ = √a (I + t·E/(2a) − t²E²/(8a²) + …)
    a, E = 1.7, jnp.asarray(oracles.symmetric(1, 3)[0])

    def path(t):
        return linalg.sqrtm(a * jnp.eye(3) + t * E)

    first = jax.jacfwd(path)(0.0)
    second = jax.jacfwd(jax.jacfwd(path))(0.0)
    np.testing.assert_allclose(first, E / (2 * np.sqrt(a)), atol=1e-14)
    np.testing.assert_allclose(second, -E @ E / (4 * a**1.5), atol=1e-13)


def test_derivatives_of_sqrtm_against_differences_forward_and_reverse():
    G, E, C = oracles.general(3, 4, 4)
    A, E = G @ G.T + np.eye(4), E + E.T

    def f(t):
        return jnp.sum(C * linalg.sqrtm(A + t * E))

    exact = oracles.derivative(lambda t: np.sum(C * sqrtm(A + t * E).real), 0.1, step=3e-3)
    np.testing.assert_allclose(jax.jacfwd(f)(0.1), exact, rtol=1e-9)
    np.testing.assert_allclose(jax.grad(f)(0.1), exact, rtol=1e-9)
    np.testing.assert_allclose(jax.grad(jax.grad(f))(0.1), oracles.derivative(jax.grad(f), 0.1, step=1e-2), rtol=1e-8)


def test_solve_lyapunov_against_scipy():
    G, C = oracles.general(2, 4, 4, seed=1)
    X = G @ G.T
    np.testing.assert_allclose(
        linalg.solve_lyapunov(jnp.asarray(X), jnp.asarray(C)),
        solve_sylvester(X, X, C),
        rtol=1e-11,
        atol=1e-12,
    )


def test_solve_lyapunov_drops_what_lives_on_the_kernel():
    # X = diag(2, 0): the entries of Y are C_ij/(x_i + x_j), the last one has no preimage.
    Y = linalg.solve_lyapunov(jnp.diag(jnp.asarray([2.0, 0.0])), jnp.asarray([[4.0, 6.0], [2.0, 5.0]]))
    np.testing.assert_allclose(Y, [[1.0, 3.0], [1.0, 0.0]], atol=1e-15)


def test_polar_is_the_orthogonal_factor_and_differentiates():
    M, E, C = oracles.general(3, 3, 3, seed=2)
    R = linalg.polar(jnp.asarray(M))
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-14)
    P = R.T @ M
    np.testing.assert_allclose(P, P.T, atol=1e-13)
    assert np.linalg.eigvalsh(np.asarray(P)).min() > 0

    def f(t):
        return jnp.sum(C * linalg.polar(M + t * E))

    def reference(t):
        U, _, Vt = np.linalg.svd(M + t * E)
        return np.sum(C * (U @ Vt))

    exact = oracles.derivative(reference, 0.0, step=2e-3)
    np.testing.assert_allclose(jax.jacfwd(f)(0.0), exact, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(f)(0.0), exact, rtol=1e-8)


def bures_squared(S0, S1):
    """tr(Σ₀ + Σ₁) − 2 tr(Σ₁^½Σ₀Σ₁^½)^½, by eigenvalues."""
    s, U = np.linalg.eigh(S1)
    root = U * np.sqrt(np.maximum(s, 0)) @ U.T
    inner = np.linalg.eigvalsh(root @ S0 @ root)
    return np.trace(S0) + np.trace(S1) - 2 * np.sqrt(np.maximum(inner, 0)).sum()


@pytest.mark.parametrize(("r0", "r1"), [(4, 4), (2, 4), (4, 3), (1, 2)])
def test_bures_gap_against_the_closed_formula(r0, r1):
    L0, L1 = oracles.general(4, r0, seed=3), oracles.general(4, r1, seed=4)
    gap = linalg.bures_gap(jnp.asarray(L0), jnp.asarray(L1))
    assert gap.shape == (4, max(r0, r1))
    np.testing.assert_allclose(jnp.sum(gap**2), bures_squared(L0 @ L0.T, L1 @ L1.T), rtol=1e-6)
    nuclear = np.linalg.svd(L0.T @ L1, compute_uv=False).sum()
    np.testing.assert_allclose(jnp.sum(gap**2), (L0**2).sum() + (L1**2).sum() - 2 * nuclear, rtol=1e-12)


def test_bures_gap_at_coincidence_is_rounding():
    L = oracles.general(5, 3, seed=5)
    gap = linalg.bures_gap(jnp.asarray(L), jnp.asarray(L @ oracles.rotation(3)))
    assert float(jnp.sqrt(jnp.sum(gap**2))) < 3e-15 * np.linalg.norm(L)


@pytest.mark.parametrize(("r0", "r1"), [(4, 4), (2, 4), (4, 3)])
def test_bures_squared_is_the_gaps_square_near_and_far(r0, r1):
    """Factors 1 to 1e-12 apart, one batch: distances and two derivatives of their squares agree to rounding."""
    L1, E0, E1, F0, F1 = (jnp.asarray(oracles.general(4, r, seed=s)) for r, s in zip((r1, r0, r1, r0, r1), range(3, 8)))
    near = jnp.pad(L1, ((0, 0), (0, 4)))[:, :r0]
    apart = jnp.logspace(-12, 0, 13)

    def gaps_square(L0, L1):
        return jnp.sum(linalg.bures_gap(L0, L1) ** 2)

    def along(f):
        def path(s, t):
            return f(near + s * F0 + t * E0, L1 + t * E1 + t**2 * F1)

        slope = jax.grad(path, 1)

        def one(s):
            return jnp.sqrt(path(s, 0.0)), slope(s, 0.0), jax.grad(slope, 1)(s, 0.0)

        return jax.jit(jax.vmap(one))(apart)

    every = zip(along(linalg.bures_squared), along(gaps_square), (2e-15, 1e-14, 1e-13))
    for found, exact, rounding in every:
        np.testing.assert_allclose(found, exact, rtol=1e-11, atol=rounding)


def test_hessian_of_bures_where_all_eigenvalues_are_equal():
    # |(I+t·E) − R|² = t²|sym E|² + O(t³): motions that only rotate the factor cost nothing.
    E = jnp.asarray(oracles.general(3, 3, seed=6))

    def squared(t):
        return jnp.sum(linalg.bures_gap(jnp.eye(3) + t * E, jnp.eye(3)) ** 2)

    np.testing.assert_allclose(jax.grad(squared)(0.0), 0.0, atol=1e-15)
    np.testing.assert_allclose(jax.grad(jax.grad(squared))(0.0), 2 * jnp.sum(linalg.symmetrize(E) ** 2), rtol=1e-12)


def test_safe_norm_has_derivative_zero_at_zero():
    np.testing.assert_allclose(linalg.safe_norm(jnp.asarray([[3.0, -4.0], [0, 0]])), [5.0, 0.0])
    np.testing.assert_array_equal(jax.grad(linalg.safe_norm)(jnp.zeros(3)), np.zeros(3))
    np.testing.assert_allclose(jax.grad(linalg.safe_norm)(jnp.asarray([3.0, -4.0])), [0.6, -0.8])


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factor_of_gives_the_matrix_back(rank):
    L = oracles.general(4, rank, seed=7)
    F = linalg.factor_of(jnp.asarray(L @ L.T), rank)
    assert F.shape == (4, rank)
    np.testing.assert_allclose(F @ F.T, L @ L.T, atol=1e-13)


@pytest.mark.parametrize("size", [3, linalg.SMALL, linalg.SMALL + 1])
def test_products_by_sums_are_products(size):
    X = jnp.asarray(oracles.general(4, size * size, seed=1).reshape(4, size, size))
    Y = jnp.asarray(oracles.general(size, size, seed=2))
    np.testing.assert_allclose(linalg.product(X, Y[None]), X @ Y, atol=1e-13 * size)
    np.testing.assert_allclose(linalg.product(X[0][:2], Y), X[0][:2] @ Y, atol=1e-13 * size)
