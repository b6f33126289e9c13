"""Closure, blocks and phase: small runs against NumPy written out, refusals with their place, figures on disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.build import stream
from jaxflow.experiments.checks.regimes import key_of
from jaxflow.experiments.engine import Interrupted, execute
from jaxflow.experiments.load import build
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import Request, resumed_run
from jaxflow.gaussian import PHASES
from jaxflow.io.arrays import load_arrays
from jaxflow.io.rundir import RunDirectory
from jaxflow.measures import Gaussian, sample

EYE = [[1.0, 0.0], [0.0, 1.0]]
COVARIANCE = np.array([[1.0, 0.3], [0.3, 0.5]])


def attention(x, w, B):
    """a(x_i) = Σ_j w_j e^{⟨Bx_i, x_j⟩} x_j / Σ_j w_j e^{⟨Bx_i, x_j⟩}."""
    p = w * np.exp(x @ B.T @ x.T)
    return p @ x / p.sum(1, keepdims=True)


def hermite_cloud(nodes):
    """The product rule for N(0, COVARIANCE)."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    z = np.stack(np.meshgrid(z, z, indexing="ij"), -1).reshape(-1, 2)
    return z @ np.linalg.cholesky(COVARIANCE).T, np.outer(w, w).reshape(-1) / w.sum() ** 2


def bures(S, T):
    root = scipy.linalg.sqrtm(S)
    return np.sqrt(max(np.trace(S + T - 2 * scipy.linalg.sqrtm(root @ T @ root)).real, 0))


def test_the_gain_is_near_one_for_weak_attention_and_falls_for_strong(run):
    summary, arrays = run("closure")
    assert summary["status"] == "done"
    assert summary["kappa"] == [0.3, 2.5]
    weak, strong = summary["gain_n300"]
    assert abs(weak - 1) < 4 * summary["gain_n300_std"][0] / 2
    assert strong < weak - 0.15
    assert summary["gain_nodes10"][0] == pytest.approx(1, abs=1e-9)
    assert summary["w2_nodes10"][0] < 1e-9 < summary["w2_n300"][0] < summary["w2_n300"][1]
    assert summary["kappa_good_nodes10"] == 0.3
    assert "gain_nodes10_std" not in summary
    assert arrays["gain_n300"].shape == arrays["w2_n300"].shape == (2, 4)


def test_gain_and_distance_of_nodes_written_out(run):
    summary, _ = run("closure", sweep={"kappa": [1.2], "n": [], "nodes": [10]})
    B, V = np.array([[1.0, 0.2], [-0.2, 0.8]]), 0.3 * np.eye(2)
    L = np.linalg.cholesky(COVARIANCE)
    B = B * 1.2 / np.linalg.norm(L.T @ B @ L, 2)
    x, w = hermite_cloud(10)
    ideal = x @ (COVARIANCE @ B).T
    gain = np.sum(w[:, None] * attention(x, w, B) * ideal) / np.sum(w[:, None] * ideal**2)
    assert summary["gain_nodes10"][0] == pytest.approx(gain, rel=1e-12)
    S, h = COVARIANCE, 0.25
    for _ in range(2):
        k = attention(x, w, B) @ V.T
        x = x + h / 2 * (k + attention(x + h * k, w, B) @ V.T)
        K = V @ S @ B
        G = np.eye(2) + h * K
        G = np.eye(2) + h / 2 * (K + V @ (G @ S @ G.T) @ B @ G)
        S = G @ S @ G.T
    assert summary["w2_nodes10"][0] == pytest.approx(bures((w[:, None] * x).T @ x, S), rel=1e-6)


@pytest.mark.slow
def test_moments_that_blow_up_leave_a_gap(run):
    summary, _ = run("closure", sweep={"kappa": [0.3, 30.0], "n": [], "nodes": [10]})
    assert summary["w2_nodes10"][1] is None
    assert "blow up" in summary["warning"]


def test_blocks_against_recursions_written_out(run):
    summary, arrays = run("blocks")
    assert summary["cases"] == ["held", "let go"]
    assert summary["held_regime"] == "decaying"
    assert summary["let_go_regime"] == "blow_up"
    for i, sign in enumerate((-1.0, 1.0)):
        A, B, V = (0.0 if i else -0.2) * np.eye(2), np.array([[0.8, 0.1], [0.0, 0.6]]), sign * 0.5 * np.eye(2)
        S, mean = arrays["tokens_covariance"][i, 0], arrays["tokens_mean"][i, 0]
        shift = np.array([0.0, 0.0] if i else [0.1, 0.0])
        for k in range(1, 13):
            K = A + V @ S @ B
            mean = mean + 0.2 * ((K + V) @ mean + shift)
            S = (np.eye(2) + 0.2 * K) @ S @ (np.eye(2) + 0.2 * K).T
            if arrays["blocks_valid"][i, k]:
                np.testing.assert_allclose(arrays["blocks_covariance"][i, k], S, rtol=1e-9)
                np.testing.assert_allclose(arrays["blocks_mean"][i, k], mean, rtol=1e-9, atol=1e-12)
    root = np.linalg.cholesky(arrays["tokens_covariance"][0, -1])
    assert summary["held_kappa_final"] == pytest.approx(np.linalg.norm(root.T @ B @ root, 2), rel=1e-9)
    assert summary["held_error_blocks"] < 0.05 < summary["let_go_error_blocks"]
    assert summary["held_beyond_kappa_1_at"] is None
    assert f"let go from block {summary['let_go_beyond_kappa_1_at']} on" in summary["warning"]
    assert arrays["tokens_kappa"][1, summary["let_go_beyond_kappa_1_at"]] > 1


def test_tokens_of_the_blocks_written_out(run):
    _, arrays = run("blocks")
    start = Gaussian.from_covariance(jnp.zeros(2), jnp.asarray(COVARIANCE))
    x = np.asarray(sample(start, stream(jax.random.key(0), "tokens"), n=250).points)
    B = np.array([[0.8, 0.1], [0.0, 0.6]])
    for k in range(13):
        np.testing.assert_allclose(arrays["tokens_mean"][0, k], x.mean(0), atol=1e-12)
        np.testing.assert_allclose(arrays["tokens_covariance"][0, k], np.cov(x.T, bias=True), rtol=1e-11)
        x = x + 0.2 * (-0.2 * x + np.array([0.1, 0.0]) - 0.5 * attention(x, np.full(250, 1 / 250), B))


@pytest.mark.parametrize("a", [-0.3, pytest.param(0.3, marks=pytest.mark.slow)])
def test_phases_equal_the_closed_form(run, a):
    summary, arrays = run("phase", weights={"A": [[a, 0.4], [-0.4, a]]})
    c = arrays["b"][:, None] * arrays["v"][None]
    largest = np.linalg.eigvalsh(COVARIANCE)[-1]
    below = np.where(c < 0, "settles", "grows") if a > 0 else np.full(c.shape, "decays")
    expected = np.where((c > 0) & (c * largest > -a), "blows_up", below)
    np.testing.assert_array_equal(np.array(PHASES)[arrays["verdict"]], expected)
    assert summary["disagree"] == summary["disagree_in_band"] == summary["mean_disagree"] == summary["failed"] == 0
    assert {name: summary[name] for name in PHASES} == {name: int(np.sum(expected == name)) for name in PHASES}
    t = np.log1p(a / (c[expected == "blows_up"] * largest)) / (2 * a)
    np.testing.assert_allclose(arrays["blowup_time"][expected == "blows_up"], t, rtol=1e-5)
    assert summary["blowup_time_error"] < 1e-5
    # Where the covariance settles, or A alone acts, the mean follows the sign of v, or of v + a.
    bounded = expected != "blows_up"
    rate = np.where(expected == "settles", arrays["v"][None], arrays["v"][None] + a)
    np.testing.assert_array_equal(arrays["mean_growth"][bounded] < 0, (rate < 0)[bounded])


@pytest.mark.slow
def test_a_short_run_disagrees_only_within_its_band(run):
    summary, arrays = run("phase", weights={"A": [[0.3, 0.4], [-0.4, 0.3]]}, solve={"t1": 2.0})
    assert summary["disagree"] == 0 < summary["disagree_in_band"] <= summary["band"]
    assert summary["threshold"] == 0 < summary["threshold_at_t1"]
    wrong = arrays["verdict"] != arrays["expected"]
    assert np.all(arrays["band"][wrong].astype(bool))


def test_phases_of_a_layer_that_does_not_commute(run):
    summary, _ = run("phase", weights={"A": [[-0.5, 1.3], [-0.2, -0.7]]})
    assert summary["blowup_time_error"] is None
    assert summary["disagree"] == summary["disagree_in_band"] == summary["mean_disagree"] == 0
    assert 0 < summary["blows_up"] < summary["points"] == 81


SLOW = pytest.mark.slow


@pytest.mark.parametrize("kind", [pytest.param("closure", marks=SLOW), pytest.param("blocks", marks=SLOW), "phase"])
def test_a_run_is_drawn_and_an_interrupted_one_resumes_to_the_same_bits(config, tmp_path, monkeypatch, kind):
    experiment = build(config(kind), folder=tmp_path)
    whole, cut = (Request(experiment, tmp_path, RunDirectory(tmp_path / name), "float64") for name in ("whole", "cut"))
    job = prepare(experiment, folder=tmp_path, precision="float64")
    execute(job, whole, reporter=Quiet())
    assert (whole.run_dir.figures / f"{kind}.png").stat().st_size > 20_000
    monkeypatch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])
    advance, calls = type(job).advance, []

    def stop_after_one(self, state):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return advance(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(type(job), "advance", stop_after_one)
        with pytest.raises(Interrupted):
            execute(job, cut, reporter=Quiet())
    execute(job, resumed_run(None, out=cut.run_dir.path), reporter=Quiet())
    first, second = (load_arrays(request.run_dir.arrays)[0] for request in (whole, cut))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert whole.run_dir.summary.read_text() == cut.run_dir.summary.read_text()


def test_names_of_cases_become_keys():
    assert key_of("V, B of opposite signs!") == "v_b_of_opposite_signs"


CASE = {"name": "one", "B": EYE, "V": EYE}

REFUSED = [
    ("closure", {"sweep": {"kapa": [1.0], "n": [10]}}, ["sweep.kapa", "unknown key", "did you mean kappa?"]),
    ("closure", {"sweep": {"kappa": [1.0, 0.5], "n": [10]}}, ["sweep.kappa", "must increase"]),
    ("closure", {"sweep": {"kappa": [0.0], "n": [10]}}, ["sweep.kappa[0]", "> 0"]),
    ("closure", {"sweep": {"kappa": [1.0]}}, ["sweep", "no cloud", "`n` or `nodes`"]),
    ("closure", {"sweep": {"kappa": [1.0], "n": [2]}}, ["sweep.n[0]", "got: 2", "more than d = 2"]),
    ("closure", {"sweep": {"kappa": [1.0], "nodes": [2000]}}, ["nodes", "2000^2"]),
    ("closure", {"weights": {"kind": "constant", "D": EYE}}, ["weights.D", "tied head"]),
    ("closure", {"weights": {"kind": "constant", "A": EYE}}, ["weights.B", "no attention"]),
    ("closure", {"weights": {"kind": "constant", "B": [[0, 0], [0, 0]], "V": EYE}}, ["weights.B", "zero"]),
    ("closure", {"weights": {"kind": "ou", "heads": 2}}, ["weights.kind", "'ou'", "constant"]),
    ("closure", {"solve": {"t1": 0.1, "dt": 0.2}}, ["solve.dt", "longer than the run"]),
    ("closure", {"solve": {"t1": 1.0, "dt": 0.2, "rtol": 1e-3}}, ["solve.rtol", "unknown key"]),
    (
        "closure",
        {"start": {"factor": [[1.0], [-1.25]]}, "weights": {"kind": "constant", "B": [[1, 0.8], [0, 0]], "V": EYE}},
        ["weights.B", "range of the start's covariance"],
    ),
    ("blocks", {"cases": []}, ["cases", "at least one table"]),
    ("blocks", {"cases": [CASE, {**CASE, "name": "ONE!"}]}, ["cases[1].name", "'ONE!'", "'one'"]),
    ("blocks", {"cases": [CASE, {**CASE, "name": "two", "D": EYE}]}, ["cases[1].D", "unknown key"]),
    ("blocks", {"cases": [{"name": "one", "B": EYE}]}, ["cases[0].V", "both matrices"]),
    ("blocks", {"cases": [{**CASE, "B": [[1]]}]}, ["cases[0].B", "got: 1×1", "2×2"]),
    ("blocks", {"cases": [{"name": "one"}]}, ["cases[0]", "does nothing", "`B` and `V`"]),
    ("blocks", {"cases": [{**CASE, "V": [["x", 0], [0, 1]]}]}, ["cases[0].V[0][0]", "a number"]),
    ("blocks", {"cases": [{**CASE, "name": "--"}]}, ["cases[0].name"]),
    ("blocks", {"blocks": {"depth": 0, "step": 0.1, "n": 5}}, ["blocks.depth", ">= 1"]),
    ("blocks", {"blocks": {"depth": 3, "step": 0.1, "n": 2}}, ["blocks.n", "more than d = 2"]),
    ("phase", {"weights": {"kind": "constant", "B": EYE, "V": EYE}}, ["weights.B", "the grid sets"]),
    ("phase", {"weights": {"kind": "constant", "A": [[1]]}}, ["weights.A", "got: 1×1"]),
    ("phase", {"grid": {"v": [1, 1], "b": [0, 1], "points": 3}}, ["grid.v", "no range"]),
    ("phase", {"grid": {"v": [0, 1, 2], "b": [0, 1], "points": 3}}, ["grid.v"]),
    ("phase", {"grid": {"v": [0, 1], "b": [0, 1], "points": 1}}, ["grid.points", ">= 2"]),
    ("phase", {"start": {"factor": [[1.0], [0.5]]}}, ["start", "got: rank 1", "expected: rank 2"]),
    ("phase", {"solve": {"t1": 1.0, "dt": 0.1}}, ["solve.dt", "unknown key"]),
    ("phase", {"solve": {"t1": 1.0, "method": "rk4"}}, ["solve.method", "'rk4'", "tsit5"]),
]


@pytest.mark.parametrize("kind", ["blocks", "phase"])
def test_blow_up_times_need_double_precision(config, tmp_path, kind):
    with pytest.raises(InputError, match=r"--precision(.|\n)*got: float32(.|\n)*expected: float64"):
        build(config(kind), folder=tmp_path, precision="float32")


@pytest.mark.parametrize(("kind", "tables", "words"), REFUSED)
def test_configs_that_do_not_fit_are_refused(config, tmp_path, kind, tables, words):
    def begin():
        prepare(build(config(kind, **tables), folder=tmp_path), folder=tmp_path, precision="float64").begin()

    with pytest.raises(InputError) as raised:
        begin()
    for word in words:
        assert word in str(raised.value)
