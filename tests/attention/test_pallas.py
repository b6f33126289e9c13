"""The kernel for GPUs, by interpretation: against the dense sums; and that it can be compiled for one."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.attention import Auto, Chunked, Dense, Harmonic, Pallas
from jaxflow.errors import InputError


def problem(n, d, heads=2):
    """Queries, tokens and log weights in single precision; one weight is next to nothing."""
    q, x = (jnp.asarray(oracles.general(*shape, seed=n), "float32") for shape in ((heads, n, d), (n, d)))
    w = np.array(oracles.weights(n))
    w[0] *= 1e-30 if n > 1 else 1
    return q, x, jnp.asarray(np.log(w / w.sum()), "float32")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1, 3), (64, 2), (130, 3), (100, 20)])
def test_the_running_sums_are_the_dense_ones(n, d, causal):
    """n: one token, one block, blocks not filled; d below and above what a matrix product takes."""
    at = problem(n, d)
    found, exact = (kernel(*at, causal=causal) for kernel in (Pallas(), Dense()))
    np.testing.assert_allclose(found.log_m, exact.log_m, atol=1e-5)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-5)


def test_large_logits_neither_overflow_nor_lose_the_maximum():
    q, x, log_w = problem(130, 3)
    found, exact = (kernel(1000 * q, x, log_w) for kernel in (Pallas(), Dense()))
    np.testing.assert_allclose(found.log_m, exact.log_m, rtol=1e-5)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-3)


def test_logits_in_bfloat16_are_right_to_their_eight_bits():
    q, x, log_w = problem(100, 3)
    found, exact = (kernel(q, x, log_w) for kernel in (Pallas(bfloat16=True), Dense()))
    size = jnp.linalg.norm(q, axis=-1) * jnp.max(jnp.linalg.norm(x, axis=-1))
    error = jnp.abs(found.log_m - exact.log_m)
    assert bool(jnp.all(error <= 2**-7 * size))
    assert float(jnp.max(error)) > 1e-4


@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_are_those_of_the_dense_sums(causal):
    at = problem(70, 3)

    def everything(kernel):
        def f(*at):
            t = kernel(*at, causal=causal)
            return jnp.sum(jnp.sin(t.log_m)) + jnp.sum(t.mean**2)

        gradient = jax.grad(f, (0, 1, 2))
        return gradient(*at), jax.jvp(gradient, at, jax.tree.map(jnp.ones_like, at))[1]

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4),
        *(everything(kernel) for kernel in (Pallas(), Dense())),
    )


def test_second_moments_are_those_of_chunked():
    at = problem(30, 3)
    found, exact = (kernel(*at, second=True).second for kernel in (Pallas(), Chunked()))
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_it_compiles_for_cuda_as_far_as_triton(causal, bfloat16):
    kernel = Pallas(bfloat16=bfloat16, interpret=False)
    traced = jax.jit(lambda *at: kernel(*at, causal=causal)).trace(*problem(130, 3))
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_double_precision_is_refused():
    with pytest.raises(InputError, match="Pallas: works in single precision"):
        Pallas()(*(y.astype(float) for y in problem(5, 3)))


def test_auto_takes_it_on_a_gpu_in_single_precision_only(monkeypatch):
    few = {"n": 100, "dim": 5, "heads": 2}
    assert Auto().choose(1.0, dtype="float32", **few) == Chunked()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert Auto().choose(1.0, dtype="float32", **few) == Pallas()
    assert Auto().choose(1.0, dtype="float64", **few) == Chunked()
    many = Auto().choose(1.0, n=10**6, dim=3, heads=2, dtype="float32")
    assert many == Harmonic(1.0, fallback=Pallas())
