"""The shipped configs, made small, through the engine: the summary's contract, resuming, figures on disk."""

import json
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.optimize
from interrupted import assert_same_results, cut_and_resumed

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build, load
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import new_run
from jaxflow.io.arrays import load_arrays
from jaxflow.solve import solve

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = ["tokens.n=16", "weights.heads=2", "paths=2", "solve.t1=0.2", "solve.dt=0.01", "solve.save_every=2"]

PARTICLES = {
    "status", "energy_initial", "energy_final", "rate_integral", "slope_integral", "dt_energy_integral",
    "martingale", "balance_residual", "rate_final", "slope_mean", "max_norm_error", "clusters",
}  # fmt: skip
MOMENTS = {"status", "t_final", "mean", "covariance", "rank", "blowup_time", "kappa_eff", "regime"}
STEER = {"status", "stop", "w2", "residual", "effort", "horizon", "iterations", "reachable"}


def run(name, out, overrides=()):
    """The run directory and summary of a shipped config."""
    request = new_run(CONFIGS / name, overrides=overrides, out=out)
    job = prepare(request.experiment, folder=request.folder, precision=request.precision)
    execute(job, request, reporter=Quiet())
    return request.run_dir, json.loads(request.run_dir.summary.read_text())


@pytest.fixture
def undrawn(monkeypatch):
    """No figures where no test looks at them: each kind is drawn by a test of its own here or in viz."""
    monkeypatch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("**/*.toml")), ids=lambda path: path.stem)
def test_every_shipped_config_is_valid_and_describes_itself(path):
    model = tomllib.loads(path.read_text()).get("model", {}).get("folder")
    if model is not None and not (path.parent / model).is_dir():
        with pytest.raises(InputError, match=r"pretrained\.fetch \.weights"):
            load(path)
        pytest.skip("the model is not there, and loading says so: python -m jaxflow.pretrained.fetch .weights")
    experiment = load(path)
    description = prepare(experiment, folder=path.parent, precision="float64").describe()
    assert all(isinstance(value, str) for value in description.values())


@pytest.mark.parametrize("name", ["particles/s2_ou.toml", "particles/s2_oscillating.toml"])
def test_particles_keep_the_contract_of_the_summary(name, tmp_path):
    run_dir, summary = run(name, tmp_path / "run", SMALL)
    assert summary.keys() >= PARTICLES
    assert {f"{name}_std" for name in ("energy_final", "slope_mean")} <= summary.keys()
    assert summary["status"] == "done"
    assert summary["max_norm_error"] < 1e-12
    arrays, _ = load_arrays(run_dir.arrays)
    assert arrays["energy"].shape == (2, 11)
    balance = arrays["energy"][:, -1] - arrays["energy"][:, 0] - arrays["dt_energy_integral"][:, -1]
    balance += arrays["rate_integral"][:, -1] - arrays["martingale"][:, -1]
    np.testing.assert_allclose(balance, arrays["residual"][:, -1], atol=1e-14)
    # The first eighth of the run, saves 0 and 1 of 11, is left out of the means.
    for key in ("slope", "rate"):
        np.testing.assert_allclose(summary[f"{key}_mean"], arrays[key][:, 2:].mean(), rtol=1e-12)
    np.testing.assert_allclose(summary["order"], np.linalg.norm(arrays["final_points"].mean(1), axis=1).mean())
    excess = (arrays["slope"] + arrays["upper"]) / 2 - arrays["rate"]
    assert (excess > 0).all()
    np.testing.assert_allclose(summary["deficit"], 0.02 * excess[:, :-1].sum(1).mean(), rtol=0.3)
    assert {path.name for path in run_dir.figures.iterdir()} >= {"snapshots.png", "dissipation.png", "balance.pdf"}


def test_adaptive_particles_close_their_balance(tmp_path):
    _, summary = run("particles/layers.toml", tmp_path / "run", ["tokens.n=20", "solve.save_at=[0.0, 2.0, 4.0]"])
    assert summary.keys() >= PARTICLES
    assert abs(summary["balance_residual"]) < 1e-9
    assert abs(summary["slope_balance_residual"]) > 1e-3


def test_general_heads_run_without_a_balance(tmp_path):
    config = tmp_path / "free.toml"
    config.write_text("""
kind = "particles"
[tokens]
kind = "gaussian"
n = 12
mean = [0.0, 0.0]
covariance = [[1.0, 0.0], [0.0, 0.5]]
[weights]
kind = "constant"
B = [[0.1, 0.4], [-0.2, 0.3]]
V = [[-0.5, 0.0], [0.2, -0.5]]
b = [1.0, 0.0]
[flow]
geometry = "euclidean"
[solve]
t1 = 0.5
dt = 0.1
""")
    request = new_run(config, out=tmp_path / "run")
    job = prepare(request.experiment, folder=request.folder, precision="float64")
    summary = execute(job, request, reporter=Quiet()).summary
    assert summary["status"] == "done"
    assert summary["energy_final"] is None
    assert summary["max_norm_error"] is None


def test_a_million_tokens_in_small_close_their_balance_without_pairs(tmp_path):
    small = ["tokens.n=300", "solve.t1=0.02", "solve.save_every=1"]
    harmonic = run("particles/million.toml", tmp_path / "grid", small)[1]
    direct = run("particles/million.toml", tmp_path / "pairs", [*small, "flow.kernel=chunked"])[1]
    assert harmonic["kernel"].startswith("harmonic, degree ")
    assert direct["kernel"] == "chunked, 7.2e+05 pairs a velocity"
    assert harmonic["max_norm_error"] < 1e-14
    for key in ("energy_initial", "energy_final", "rate_integral", "slope_integral"):
        np.testing.assert_allclose(harmonic[key], direct[key], rtol=1e-8)
    assert abs(harmonic["balance_residual"]) < 1e-9


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["flow.causal=true"], ["flow.kernel", "all see each other", "chunked"]),
        (["flow.law=hardmax"], ["flow.kernel", "all see each other"]),
        (["flow.kernel_tolerance=1e-16"], ["flow.kernel", "below what float64 allows"]),
        (["flow.kernel=chunked", "flow.kernel_tolerance=1e-6"], ["flow.kernel_tolerance", "exact"]),
    ],
)
def test_what_a_grid_of_the_sphere_cannot_do_is_refused_before_anything_is_written(overrides, words, tmp_path):
    with pytest.raises(InputError) as raised:
        run("particles/million.toml", tmp_path / "run", ["tokens.n=20", *overrides])
    for word in words:
        assert word in str(raised.value)
    assert not (tmp_path / "run").exists()


OPTIONS = {
    "hardmax": ({"law": "hardmax"}, None),
    "pre": ({"normalization": "pre", "geometry": "euclidean"}, None),
    "peri": ({"normalization": "peri", "geometry": "euclidean"}, None),
    "noise": ({"kappa": 4.0}, {"t1": 0.4, "dt": 0.1, "save_every": 2}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_a_flow_of_tokens_reaches_the_run(option, config, tmp_path):
    """The tokens of a run are those of the library's own call."""
    flow, steps = OPTIONS[option]
    weights = {"kind": "constant", "D": [[1, 0.2, 0], [0.2, 0.5, 0], [0, 0, 0.3]]}
    steps = steps or {"t1": 0.4, "dt": 0.1}
    experiment = build(config("particles", paths=2, weights=weights, flow=flow, solve=steps), folder=tmp_path)
    job = prepare(experiment, folder=tmp_path, precision="float64")
    state = job.begin()
    while True:
        state, progress = job.advance(state)
        if progress.done == progress.total:
            break
    assert job.finish(state).summary["energy_final"] is None
    e = job.ensemble
    options = dict(e.options)
    if option == "noise":
        options["key"] = e.keys[1]
    single = solve(*jax.tree.map(lambda x: x[1], (e.flows, e.clouds)), **options)
    np.testing.assert_allclose(job.finish(state).arrays["final_points"][1], single.final.points, atol=1e-12)
    assert np.abs(np.asarray(single.final.points) - np.asarray(e.clouds.points[1])).max() > 0.05


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path, monkeypatch, undrawn):
    whole, _ = run("particles/s2_ou.toml", tmp_path / "whole", SMALL)
    request = new_run(CONFIGS / "particles/s2_ou.toml", overrides=SMALL, out=tmp_path / "cut")
    assert_same_results(whole, cut_and_resumed(request, after=4, monkeypatch=monkeypatch))


@pytest.mark.slow
def test_the_cheapest_layers_of_a_config_hit_and_a_stopped_search_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxflow.experiments.cheapest.CHUNK", 6)
    whole, summary = run("steer/cheapest.toml", tmp_path / "whole", ["tokens.n=50"])
    assert summary.keys() >= STEER | {"cost", "optimality", "room", "peak"}
    assert (summary["status"], summary["stop"]) == ("done", "minimum")
    assert summary["optimality"] <= 1e-5
    assert summary["residual"] < 1e-12
    assert summary["room"] > 0
    assert abs(summary["cost"] - summary["effort"]) < 1e-12
    arrays, _ = load_arrays(whole.arrays)
    assert arrays["history"].shape[1] == 2
    request = new_run(CONFIGS / "steer/cheapest.toml", overrides=["tokens.n=50"], out=tmp_path / "cut")
    assert_same_results(whole, cut_and_resumed(request, after=1, monkeypatch=monkeypatch))


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        (["control.cap=0.9"], "control.cap"),
        (["control.cap=[1.0, 1.0, 1.0]"], "control.cap"),
        (["control.controls=fourier"], "control.cap"),
        (["control.t1=[0.5, 2.0]"], "control.t1"),
        (["control.effort=0.1"], "control.effort"),
        (["control.method=lbfgs"], "control.cost"),
    ],
)
def test_what_the_cheapest_cannot_keep_is_refused_before_anything_is_written(overrides, where, tmp_path):
    with pytest.raises(InputError) as caught:
        run("steer/cheapest.toml", tmp_path / "run", overrides)
    assert caught.value.where == where
    assert not (tmp_path / "run").exists()


def test_moments_report_the_blow_up_as_a_result(tmp_path):
    run_dir, summary = run("moments/blow_up.toml", tmp_path / "run")
    assert summary.keys() >= MOMENTS
    assert summary["status"] == summary["regime"] == "blow_up"
    assert abs(summary["blowup_time"] - 0.7833393820762261) < 1e-8
    arrays, _ = load_arrays(run_dir.arrays)
    assert all(np.isfinite(x).all() for x in arrays.values())
    assert (run_dir.figures / "moments.png").stat().st_size > 10_000


def test_the_blow_up_in_the_plane_is_where_the_riccati_link_degenerates(tmp_path):
    run_dir, summary = run("moments/blow_up_2d.toml", tmp_path / "run")
    assert summary["status"] == summary["regime"] == "blow_up"
    # Σ = YX⁻¹ with X' = −AᵀX − 2vBY, Y' = AY, X(0) = I, Y(0) = Σ₀: infinite at the first zero of det X.
    A, B, start = np.array([[0.1, 0.5], [-0.5, 0.1]]), np.diag([1.0, 0.7]), np.array([[0.5, 0.1], [0.1, 0.3]])
    link = np.block([[-A.T, -2 * 0.5 * B], [np.zeros((2, 2)), A]])

    def determinant(t):
        return np.linalg.det((scipy.linalg.expm(link * t) @ np.vstack([np.eye(2), start]))[:2])

    assert abs(summary["blowup_time"] - scipy.optimize.brentq(determinant, 0.1, 2.0, xtol=1e-13)) < 1e-8
    assert (run_dir.figures / "moments.png").stat().st_size > 50_000


def test_moments_settle_when_attention_holds_back(tmp_path):
    _, summary = run("moments/bounded.toml", tmp_path / "run", ["solve.t1=40"])
    assert summary["status"] == "done"
    assert summary["blowup_time"] is None
    assert summary["regime"] == "settled"
    # A Σ + Σ Aᵀ + VΣBΣ + (VΣBΣ)ᵀ = 0.
    S = np.array(summary["covariance"])
    K = np.array([[0.3, 0.4], [-0.4, 0.2]]) - 0.8 * S @ np.diag([1.0, 1.5])
    np.testing.assert_allclose(K @ S + S @ K.T, 0, atol=1e-8)
    assert (summary["forecast"], summary["forecast_mean"]) == ("settles", "settles")
    assert summary["blowup_not_after"] is None
    # At the start already: the largest eigenvalue of Σ₀ is 1.14.
    assert summary["kappa_eff"] > 1
    assert "finitely many tokens lag behind" in summary["warning"]


def test_steering_in_closed_form_moves_the_measured_flowers(tmp_path):
    run_dir, summary = run(
        "steer/iris.toml",
        tmp_path / "run",
        ["control={t1=1.0, allow='Ab', method='constructive'}"],
    )
    assert summary.keys() >= STEER
    assert (summary["status"], summary["stop"]) == ("done", "closed_form")
    assert summary["w2"] < 1e-9
    # A linear layer moves 50 flowers exactly as it moves their moments.
    assert summary["tokens_n"] == 50
    assert summary["tokens_w2"] < 1e-6
    arrays, _ = load_arrays(run_dir.arrays)
    assert arrays["tokens"].shape == (41, 50, 4)


@pytest.mark.slow
def test_smooth_controls_of_bounded_norm_in_free_time_leave_their_numbers_behind(tmp_path):
    changes = ["tokens.n=30", "control.heads=1", "control.t1=[0.5, 2]", "control.bounds={A=4.0, b=9.0}"]
    run_dir, summary = run("steer/fourier.toml", tmp_path / "run", changes)
    assert (summary["status"], summary["stop"]) == ("done", "tolerance")
    arrays, _ = load_arrays(run_dir.arrays)
    times = arrays["controls_ts"]
    assert 0.5 < times[-1] < 2
    assert times[-1] == arrays["ts"][-1] == arrays["tokens_ts"][-1] == summary["horizon"]
    assert arrays["controls.B"].shape == (201, 2, 2)
    np.testing.assert_array_equal(arrays["controls.B"], np.swapaxes(arrays["controls.B"], 1, 2))
    assert np.linalg.norm(arrays["controls.A"], axis=(1, 2)).max() < 4
    # Two frequencies: five coefficients, and the parameter of the horizon.
    assert arrays["parameters['b']"].shape == (5, 2)
    assert arrays["parameters['time']"].shape == ()
    # ∫|u|² by the trapezoidal rule over the times kept.
    square = sum(np.sum(arrays[f"controls.{name}"].reshape(201, -1) ** 2, axis=1) for name in "ABVb")
    np.testing.assert_allclose(scipy.integrate.trapezoid(square, times), summary["effort"], rtol=1e-3)
    assert (run_dir.figures / "steering.png").stat().st_size > 50_000


@pytest.mark.slow
def test_the_quickstart_reaches_a_squared_distance_of_1e_6(tmp_path):
    run_dir, summary = run("quickstart.toml", tmp_path / "run")
    assert summary["status"] == "done"
    assert summary["w2"] ** 2 <= 1e-6
    assert summary["tokens_w2"] < 2 * summary["tokens_w2_of_samples"]
    assert (run_dir.figures / "steering.png").stat().st_size > 50_000


@pytest.mark.slow
def test_iris_reaches_a_squared_distance_of_1e_6(tmp_path, undrawn):
    _, summary = run("steer/iris.toml", tmp_path / "run")
    assert summary["status"] == "done"
    assert summary["w2"] ** 2 <= 1e-6
    assert summary["tokens_w2"] < 0.01


@pytest.mark.slow
def test_a_search_that_is_cut_short_says_so_and_what_to_do(tmp_path, undrawn):
    _, summary = run("quickstart.toml", tmp_path / "run", ["control.iterations=5", "tokens.n=0"])
    assert summary["status"] == "not_converged"
    assert "iterations" in summary["advice"]
    assert "tokens_n" not in summary
