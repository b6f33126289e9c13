"""Transport, jko, stability, perturbation and limits: one token on the circle, every number of which is known.

Under D = diag(λ, μ) a Dirac at angle θ that descends has tan θ(t) = tan θ(0) exp ∫(λ − μ), E = ½e^{λcos²θ + μsin²θ}.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interrupted import assert_same_results, cut_and_resumed
from scipy.integrate import trapezoid
from scipy.optimize import minimize_scalar
from scipy.stats import linregress

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.build import stream
from jaxflow.experiments.data import localised
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build
from jaxflow.experiments.powers import power_law
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import Request
from jaxflow.io.rundir import RunDirectory
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, energy_gap_bound, lipschitz_bound, perturbation_bound
from jaxflow.solve import Euler, solve
from jaxflow.weights import OrnsteinUhlenbeck, Oscillating, random_heads

KINDS = ("transport", "jko", "stability", "perturbation", "limits")
START = np.arctan2(0.28, 0.96)


def angle(start, exponent):
    """θ(t) from tan θ(t) = tan θ(0) e^{exponent}."""
    return np.arctan(np.tan(start) * np.exp(exponent))


def dirac_energy(theta, low, high):
    return 0.5 * np.exp(low * np.cos(theta) ** 2 + high * np.sin(theta) ** 2)


# --- stability ------------------------------------------------------------------------------------------------------


def test_two_diracs_part_as_their_angles_do(run):
    """D̄ + e^{−t}(D₀ − D̄): ∫(λ − μ) = 0.7t − 0.4(1 − e^{−t}); R = 0.4 is the norm of D̄, which the run never reaches."""
    summary, arrays = run("stability")
    ts, w2 = arrays["ts"], arrays["w2"]
    assert summary["status"] == "done"
    R = 0.4 - 0.2 * np.exp(-2.0)
    np.testing.assert_allclose(summary["norm"], R, rtol=1e-12)
    np.testing.assert_allclose(summary["bound"], float(lipschitz_bound(R)), rtol=1e-12)
    exponent = 0.7 * ts - 0.4 * (1 - np.exp(-ts))
    base = angle(START, exponent)
    np.testing.assert_allclose(np.arctan2(*arrays["points"][:, 0, ::-1].T), base, rtol=1e-8)
    expected = []
    for row in w2:
        either = [np.abs(angle(START + sign * row[0], exponent) - base) for sign in (1, -1)]
        expected.append(min(either, key=lambda x: np.abs(x - row).max()))
    expected = np.array(expected)
    np.testing.assert_allclose(w2, expected, rtol=2e-5)
    ratio = expected / expected[:, :1]
    np.testing.assert_allclose(summary["growth"], ratio.max(), rtol=1e-5)
    np.testing.assert_allclose(summary["growth_rate"], (np.log(ratio[:, 1:]) / ts[1:]).max(), rtol=1e-3)
    steps = np.diff(np.log(expected), axis=1) / np.diff(ts)
    np.testing.assert_allclose(summary["step_rate"], steps.max(), rtol=1e-3)
    np.testing.assert_allclose(arrays["rates"], steps, atol=1e-3)
    # θ' = (λ − μ) sin θ cos θ: small displacements grow at (λ − μ) cos 2θ.
    sharp = (0.7 - 0.4 * np.exp(-ts)) * np.cos(2 * base)
    np.testing.assert_allclose(arrays["sharp"], sharp, rtol=1e-7)
    # Neighbours that are not small may part faster than small ones.
    assert 0.1 < arrays["rates"][:2].max() < summary["sharp_rate"] < summary["step_rate"] < summary["bound"]
    np.testing.assert_allclose(summary["size"], [1e-5, 1e-5, 0.1, 0.1])
    assert (w2[:2, 0] < 1e-4).all()
    assert w2[2:, 0].max() > 1e-2


def test_a_bound_that_is_broken_is_the_outcome(run, monkeypatch):
    """With a constant that is wrong on purpose."""
    monkeypatch.setattr("jaxflow.experiments.stability.lipschitz_bound", lambda *_, **__: 0.01)
    summary, _ = run("stability")
    assert summary["status"] == "violated"
    assert summary["violations"] > 10
    assert "proved bound" in summary["advice"]


def test_neighbours_move_token_by_token_or_together(run):
    """40 tokens at one point of S²: by noise of their own W₂² averages 2σ², by one vector it is σ²χ² with two degrees
    of freedom, which scatters."""
    tokens = {"kind": "explicit", "points": [[0.6, 0.0, 0.8]] * 40}
    weights = {"kind": "constant", "D": np.diag([0.3, -0.2, 0.1]).tolist()}
    found = {}
    for together in (True, False):
        neighbours = {"size": [0.01], "repeats": 5, "together": together}
        summary, _ = run("stability", tokens=tokens, weights=weights, neighbours=neighbours)
        found[together] = np.array(summary["w2_initial"]) / 0.01
    np.testing.assert_allclose(found[False], np.sqrt(2), rtol=0.2)
    assert np.ptp(found[True]) > 0.5
    assert np.ptp(found[False]) < 0.4


def test_random_heads_are_one_path_for_all_clouds(run):
    """That of the library's own noisy run with the same key, step by step."""
    weights = {"kind": "ou", "heads": 2, "noise_var": 0.5}
    summary, arrays = run("stability", weights=weights, neighbours={"size": [0.01], "repeats": 1})
    key = jax.random.key(0)
    heads = random_heads(stream(key, "heads"), heads=2, dim=2)
    flow = AttentionFlow(OrnsteinUhlenbeck(initial=heads, mean=np.eye(2), noise_var=0.5), direction="descend")
    options = {"t1": 2.0, "dt": 0.05, "save_every": 5, "method": Euler(), "key": stream(key, "noise")}
    expected = solve(flow, Cloud(jnp.array([[0.96, 0.28]])), **options).states.points
    np.testing.assert_allclose(arrays["points"], expected, atol=1e-12)
    assert summary["norm"] > np.linalg.norm(heads, 2, axis=(1, 2)).max() - 1e-12
    assert summary["violations"] == 0


@pytest.mark.parametrize("solve", [{"t1": 2.0}, {"t1": 2.0, "method": "rk4", "dt": 0.05}])
def test_heads_without_noise_are_followed_by_any_method(config, tmp_path, solve):
    """`kind = "particles"` with noise_var = 0: the same token, in closed form."""
    base = config("stability")
    experiment = build(
        config("particles", tokens=base["tokens"], weights=base["weights"], solve=solve), folder=tmp_path
    )
    assert experiment.solve.method == solve.get("method", "tsit5")
    job = prepare(experiment, folder=tmp_path, precision="float64")
    state, progress = job.advance(job.begin())
    while progress.done < progress.total:
        state, progress = job.advance(state)
    found = job.finish(state)
    end = angle(START, 0.7 * 2 - 0.4 * (1 - np.exp(-2)))
    np.testing.assert_allclose(np.arctan2(*found.arrays["final_points"][0, 0, ::-1]), end, rtol=1e-7)
    assert abs(found.summary["balance_residual"]) < 1e-8


# --- perturbation ---------------------------------------------------------------------------------------------------

EPS, LAM, MU, S = np.array([0.01, 0.03, 0.1]), 0.9, -0.7, (0.5, -0.3)


@pytest.mark.parametrize(("direction", "sign"), [("descend", 1), ("ascend", -1)])
def test_perturbed_diracs_energies_and_minima_in_closed_form(run, direction, sign):
    """D + εS and (1 − ε)D of one family of diagonal heads: λ − μ grows by 0.8ε, or shrinks by 1.6ε. The minimum of E is
    the Dirac at the lowest eigenvector, ½e^μ, whose place no diagonal perturbation moves; ½e^λ is the maximum."""
    summary, arrays = run("perturbation", flow={"direction": direction})
    assert summary["status"] == "done"
    ts, eps = arrays["ts"], EPS[:, None]
    base, extreme = angle(START, sign * (LAM - MU) * ts), MU if sign > 0 else LAM
    changed = {"shift": (LAM + S[0] * eps, MU + S[1] * eps), "decay": ((1 - eps) * LAM, (1 - eps) * MU)}
    for family, (low, high) in changed.items():
        moved = angle(START, sign * (low - high) * ts)
        np.testing.assert_allclose(arrays[f"{family}_w2_path"], np.abs(moved - base), atol=1e-6)
        np.testing.assert_allclose(summary[f"{family}_w2"], np.abs(moved - base).max(1), rtol=1e-4)
        gaps = [np.abs(dirac_energy(x, low, high) - dirac_energy(x, LAM, MU)).max(1) for x in (base, moved)]
        np.testing.assert_allclose(summary[f"{family}_energy_gap"], np.maximum(*gaps), rtol=1e-5)
        minimum = 0.5 * np.exp((high if sign > 0 else low)[:, 0])
        np.testing.assert_allclose(summary[f"{family}_minimum_energy"], minimum, rtol=1e-9)
        np.testing.assert_allclose(summary[f"{family}_minimum_gap"], np.abs(minimum - 0.5 * np.exp(extreme)), rtol=1e-6)
        assert max(summary[f"{family}_minimum_w2"]) < 1e-7
        for name in ("w2", "energy_gap", "minimum_gap"):
            fit = linregress(np.log(EPS), np.log(summary[f"{family}_{name}"]))
            np.testing.assert_allclose(summary[f"{family}_{name}_slope"], fit.slope, rtol=1e-10)
            np.testing.assert_allclose(summary[f"{family}_{name}_slope_std"], fit.stderr, rtol=1e-8)
            assert abs(fit.slope - 1) < 0.1
    np.testing.assert_allclose(summary["minimum_energy"], 0.5 * np.exp(extreme), rtol=1e-10)
    assert summary["minimum_stationarity"] < 1e-12
    # The bounds, with ‖S‖ = 0.5 and ‖D‖ = 0.9.
    for family, size in (("shift", 0.5), ("decay", 0.9)):
        bound = [float(energy_gap_bound(0.9, e * size)) for e in EPS]
        np.testing.assert_allclose(summary[f"{family}_energy_gap_bound"], bound, rtol=1e-12)
        reach = [float(perturbation_bound(0.9 + (e * size if family == "shift" else 0), e * size, 1.0)) for e in EPS]
        np.testing.assert_allclose(summary[f"{family}_w2_bound"], reach, rtol=1e-10)
    assert summary["violations"] == 0


def test_minima_of_tilted_heads_are_at_their_eigenvectors(run):
    """With S off the diagonal the minimiser turns by the angle of the eigenvector; ascending, to the largest one."""
    for direction, which in (("descend", 0), ("ascend", -1)):
        summary, arrays = run(
            "perturbation", perturbation={"S": [[0.2, 0.6], [0.6, 0.1]]}, flow={"direction": direction}
        )
        for index, e in enumerate(EPS):
            values, vectors = np.linalg.eigh(np.diag([LAM, MU]) + e * np.array([[0.2, 0.6], [0.6, 0.1]]))
            axis = vectors[:, which]
            np.testing.assert_allclose(summary["shift_minimum_energy"][index], 0.5 * np.exp(values[which]), rtol=1e-9)
            turn = np.arccos(abs(axis[1 if which == 0 else 0]))
            np.testing.assert_allclose(summary["shift_minimum_w2"][index], turn, rtol=1e-5)
            found = arrays["minimiser"][1 + index, 0]
            np.testing.assert_allclose(abs(found @ axis), 1, rtol=1e-12)
        assert abs(summary["shift_minimum_w2_slope"] - 1) < 0.05


@pytest.mark.parametrize("name", ["perturbation_bound", "energy_gap_bound"])
def test_either_bound_that_is_broken_is_the_outcome(run, monkeypatch, name):
    monkeypatch.setattr(f"jaxflow.experiments.perturbation_report.{name}", lambda *_, **__: jnp.asarray(1e-9))
    summary, _ = run("perturbation")
    assert summary["status"] == "violated"
    assert summary["violations"] > 0


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_dirac_rests_where_the_last_energy_is_stationary(run):
    """λ − μ = 1.8 − 2.3e^{−t}, so that tan θ grows by exp(1.8t − 2.3(1 − e^{−t})): to the lowest eigenvector of D̄."""
    summary, arrays = run("limits")
    assert summary["status"] == "done"
    ts = arrays["ts"]
    theta = angle(START, 1.8 * ts - 2.3 * (1 - np.exp(-ts)))
    np.testing.assert_allclose(np.arctan2(*arrays["points"][0, :, 0, ::-1].T), theta, atol=1e-6)
    low, high = 1.2 - 0.7 * np.exp(-ts), -0.6 + 1.6 * np.exp(-ts)
    energy = dirac_energy(theta, low, high)
    np.testing.assert_allclose(arrays["energy"][0], energy, rtol=1e-5)
    # G² = b̂|v|² with b̂ = 2E and v = (λ − μ) sin θ cos θ, R the same; |∂E_∞|² = b̂_∞ |v_∞|².
    speed = (low - high) * np.sin(2 * theta) / 2
    for name in ("slope", "rate", "upper"):
        np.testing.assert_allclose(arrays[name][0], 2 * energy * speed**2, atol=1e-5)
    last = dirac_energy(theta, 1.2, -0.6)
    np.testing.assert_allclose(arrays["limit_energy"][0], last, rtol=1e-5)
    np.testing.assert_allclose(arrays["limit_upper"][0], 2 * last * (1.8 * np.sin(2 * theta) / 2) ** 2, atol=1e-5)
    assert summary["they_settle_settles"] is summary["they_settle_stationary"] is True
    np.testing.assert_allclose(summary["they_settle_path_length"], 1.6 * (1 - np.exp(-12)), rtol=1e-4)
    np.testing.assert_allclose(summary["they_settle_limit_energy"], 0.5 * np.exp(-0.6), rtol=1e-6)
    np.testing.assert_allclose(summary["they_settle_energy_final"], 0.5 * np.exp(-0.6 + 1.6 * np.exp(-12)), rtol=1e-6)
    assert summary["they_settle_slope_final"] < 1e-12 < summary["they_settle_slope_late"]


def test_under_weights_that_oscillate_nothing_rests(run):
    summary, arrays = run("limits")
    assert summary["cases"] == ["they settle", "never"]
    np.testing.assert_array_equal(arrays["settles"], [True, False])
    assert summary["never_settles"] is summary["never_stationary"] is False
    assert summary["never_path_length"] > 8
    assert summary["never_slope_late"] > 1e-3
    assert summary["never_energy_swing"] > 0.1
    # The energy of reference is that of the mean heads over the second half, 12/2 to 12.
    D = Oscillating(initial=np.diag([0.5, 1.0]))
    times = np.linspace(6, 12, 401)
    mean = trapezoid([np.asarray(D.at(t).B[0]) for t in times], times, axis=0) / 6
    x = arrays["points"][1, -1, 0]
    np.testing.assert_allclose(summary["never_limit_energy"], 0.5 * np.exp(x @ mean @ x), rtol=1e-4)


# --- transport ------------------------------------------------------------------------------------------------------


def test_two_diracs_under_negative_multiples_of_the_identity(run):
    """W_{m,2} = angle/√(mean e^{c_h}), c = 0.3 and 1.1, exactly; sliced W₂ = chord/√2."""
    summary, arrays = run("transport")
    gap = np.arccos(-0.8)
    np.testing.assert_allclose(summary["w2"], gap, rtol=1e-12)
    np.testing.assert_allclose(summary["weighted"], gap / np.sqrt(np.mean(np.exp([0.3, 1.1]))), rtol=1e-9)
    np.testing.assert_allclose(summary["sliced_w2"], np.sqrt(3.6) / np.sqrt(2), rtol=1e-10)
    np.testing.assert_allclose([summary["lower"], summary["upper"]], gap * np.exp([-0.55, 0.55]), rtol=1e-12)
    assert summary["status"] == "done"
    assert summary["within"] is True
    assert summary["antipodal"] is False
    assert "warning" not in summary
    assert arrays["path"].shape == (9, 2, 2)
    np.testing.assert_allclose(arrays["path"][-1], [[-0.8, 0.6]] * 2, atol=1e-15)
    np.testing.assert_allclose(arrays["mass"], 0.5, rtol=1e-14)
    assert len(summary["actions"]) == 3


def test_heads_are_taken_at_the_time_that_is_asked(run):
    """D̄ + e^{−t}(D₀ − D̄) between −0.3 I and −1.1 I, at t = ln 2: −0.7 I."""
    weights = {"kind": "ou", "noise_var": 0, "D": [[-0.3, 0], [0, -0.3]], "mean": [[-1.1, 0], [0, -1.1]]}
    summary, _ = run("transport", weights=weights, distance={"time": float(np.log(2))})
    np.testing.assert_allclose(summary["weighted"], np.arccos(-0.8) * np.exp(-0.35), rtol=1e-9)


def test_noisy_heads_at_a_later_time_are_one_draw_of_their_law(config, tmp_path):
    """Of D̄ + e^{−t}(D₀ − D̄) + noise of variance σ²(1 − e^{−2t})/2 on the diagonal, and half of it beside."""
    weights = {"kind": "ou", "noise_var": 0.4, "D": [[2.0, 0], [0, 1]], "mean": [[0.5, 0], [0, -0.5]]}
    found = []
    for seed in range(200):
        tables = {"weights": weights, "distance": {"time": 0.7}, "seed": seed}
        job = prepare(build(config("transport", **tables), folder=tmp_path), folder=tmp_path, precision="float64")
        found.append(np.asarray(job.layer.B[0]))
    left = np.array(found) - np.diag([0.5 + 1.5 * np.exp(-0.7), -0.5 + 1.5 * np.exp(-0.7)])
    var = 0.4 * (1 - np.exp(-1.4)) / 2
    np.testing.assert_allclose(left.mean(0), 0, atol=4 * np.sqrt(var / 200))
    np.testing.assert_allclose(left.var(0), var * np.array([[1, 0.5], [0.5, 1]]), rtol=0.4)
    first = prepare(
        build(config("transport", weights=weights), folder=tmp_path), folder=tmp_path, precision="float64"
    ).layer.B
    np.testing.assert_array_equal(first[0], [[2, 0], [0, 1]])


def test_antipodal_clouds_are_said_to_have_several_geodesics(run):
    summary, _ = run("transport", target={"kind": "explicit", "points": [[-1.0, 0.0]]})
    assert summary["antipodal"] is True
    assert "not unique" in summary["warning"]
    np.testing.assert_allclose(summary["w2"], np.pi, rtol=1e-12)


def test_a_search_that_is_cut_short_says_so_and_what_to_do(run):
    D = [[2.5, 0.4], [0.4, 1.0]]
    summary, _ = run("transport", weights={"kind": "constant", "D": D}, distance={"max_iterations": 1})
    assert (summary["status"], summary["stop"]) == ("not_converged", "iterations")
    assert "distance.max_iterations" in summary["advice"]


def test_the_points_of_both_clouds_move_beside_the_config(config, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.csv").write_text("1,0\n0,1\n")
    tables = {key: {"kind": "explicit", "points": f"{name}/x.csv"} for key, name in (("start", "a"), ("target", "b"))}
    local, files = localised(build(config("transport", **tables), folder=tmp_path), folder=tmp_path)
    assert (local.start.points, local.target.points) == ("x.csv", "target-x.csv")
    assert files.keys() == {"x.csv", "target-x.csv"}


# --- jko ------------------------------------------------------------------------------------------------------------


def test_movements_of_a_dirac_fall_and_meet_its_flow_at_order_one(run):
    """One head and one token: the steepest law is the softmax law, with the angle known."""
    summary, arrays = run("jko")
    assert (summary["status"], summary["stop"]) == ("done", "optimal")
    np.testing.assert_allclose(summary["tau"], [0.08, 0.04, 0.02], rtol=1e-14)
    start, ts = np.arctan2(0.6, 0.8), arrays["ts"]
    theta = angle(start, 1.4 * ts)
    np.testing.assert_allclose(arrays["energy"], dirac_energy(theta, 0.9, -0.5), rtol=1e-8)
    for tau, error, last in zip((0.08, 0.04, 0.02), summary["error"], summary["energy_error"]):
        name = f"{tau:g}"
        times = arrays[f"ts_{name}"]
        np.testing.assert_allclose(times, np.arange(len(times)) * tau, atol=1e-12)
        # Every movement: SciPy's minimum over the angle.
        u = start
        steps = [u]
        for _ in times[1:]:
            b = 2 * dirac_energy(u, 0.9, -0.5)

            def objective(v, u=u, b=b, tau=tau):
                return dirac_energy(v, 0.9, -0.5) + b * (v - u) ** 2 / (2 * tau)

            u = minimize_scalar(objective, bounds=(u, np.pi / 2), method="bounded", options={"xatol": 1e-12}).x
            steps.append(u)
        gaps = np.abs(np.array(steps) - angle(start, 1.4 * times))
        np.testing.assert_allclose(arrays[f"error_{name}"], gaps, atol=1e-6)
        np.testing.assert_allclose(error, gaps.max(), atol=1e-6)
        np.testing.assert_allclose(arrays[f"energy_{name}"], dirac_energy(np.array(steps), 0.9, -0.5), atol=1e-6)
        np.testing.assert_allclose(last, abs(arrays[f"energy_{name}"][-1] - arrays["energy"][-1]), atol=1e-12)
    for name in ("error", "energy_error", "deficit"):
        assert abs(summary[f"{name}_slope"] - 1) < 0.2, name
        assert 0 < summary[f"{name}_slope_std"] < 0.1
    assert summary["largest_rise"] < 0 < summary["least_slack"]
    assert summary["energy_final"] < summary["energy_initial"]


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_drawn_and_an_interrupted_one_resumes_to_the_same_bits(config, tmp_path, monkeypatch, kind):
    experiment = build(config(kind), folder=tmp_path)
    whole, cut = (Request(experiment, tmp_path, RunDirectory(tmp_path / name), "float64") for name in ("whole", "cut"))
    job = prepare(experiment, folder=tmp_path, precision="float64")
    assert all(isinstance(value, str) for value in job.describe().values())
    execute(job, whole, reporter=Quiet())
    assert (whole.run_dir.figures / f"{kind}.png").stat().st_size > 20_000
    summary = json.loads(whole.run_dir.summary.read_text())
    assert summary["status"] == "done"
    if kind != "transport":  # which is one piece
        assert_same_results(whole.run_dir, cut_and_resumed(cut, after=1, monkeypatch=monkeypatch))


def test_a_power_and_its_error_are_those_of_a_regression():
    x, rng = np.array([0.1, 0.2, 0.5, 1.3]), np.random.default_rng(0)
    y = 3 * x**1.7 * np.exp(0.1 * rng.normal(size=4))
    fit = linregress(np.log(x), np.log(y))
    np.testing.assert_allclose(power_law(x, y), (fit.slope, fit.stderr), rtol=1e-12)
    assert power_law(x, np.append(y[:3], 0.0)) == (None, None)
    assert power_law(x[:2], y[:2]) == (None, None)


FREE = {"kind": "constant", "B": [[1, 0], [0, 1]], "V": [[1, 0], [0, 1]]}
TIED = {"kind": "constant", "D": [[1, 0], [0, 1]]}
SHORT = {"kind": "piecewise", "segments": [{"duration": 1, "D": [[1, 0], [0, 1]]}]}
SPHERE = {"kind": "uniform", "n": 3, "dim": 3}
FAR = {"kind": "explicit", "points": [[-1.0, 0.0], [0.0, 1.0]]}

REFUSED = [
    *[(kind, {"weights": FREE}, ["weights", "only tied heads", "free heads B, V", "`D`"]) for kind in KINDS[:-1]],
    ("stability", {"weights": {"kind": "constant", "A": [[1, 0], [0, 1]]}}, ["weights", "only tied heads", "no heads"]),
    ("stability", {"weights": {**TIED, "A": [[1, 0], [0, 1]]}}, ["weights.A", "no feed-forward"]),
    ("stability", {"weights": {"kind": "ou", "heads": [1, 2]}, "solve": {"t1": 1, "dt": 0.1}}, ["weights.heads"]),
    ("stability", {"tokens": SPHERE}, ["weights.D", "3×3, the dimension of the tokens"]),
    ("stability", {"tokens": {"kind": "gaussian", "n": 3, "covariance": [[1, 0], [0, 1]]}}, ["not lie on the sphere"]),
    ("stability", {"neighbours": {"size": [0.1, 0.01]}}, ["neighbours.size", "must increase"]),
    ("stability", {"neighbours": {"size": [0.0]}}, ["neighbours.size[0]", "> 0"]),
    ("stability", {"neighbours": {"size": [1e-14, 0.1]}}, ["neighbours.size[0]", "rounding", "1e-14"]),
    ("stability", {"flow": {"law": "hardmax"}}, ["flow.law", "softmax, steepest, unnormalized"]),
    ("stability", {"solve": {"t1": 1, "dt": 2}}, ["solve.dt", "longer than the run"]),
    ("stability", {"weights": {"kind": "ou", "heads": 1}, "solve": {"t1": 1}}, ["solve.dt", "needs their length"]),
    ("perturbation", {"perturbation": {"eps": [-0.1, 0.1, 0.2]}}, ["perturbation.eps[0]", "> 0"]),
    ("perturbation", {"perturbation": {"eps": [0.1, 0.2]}}, ["perturbation.eps", "length >= 3"]),
    ("perturbation", {"perturbation": {"eps": [0.1, 0.1, 0.2]}}, ["perturbation.eps", "must increase"]),
    ("perturbation", {"perturbation": {"eps": [0.1, 0.2, 1.0]}}, ["perturbation.eps[2]", "below 1"]),
    (
        "perturbation",
        {"perturbation": {"eps": [0.1, 0.2, 0.3], "S": [[0, 1], [-1, 0]]}},
        ["perturbation.S", "symmetric S"],
    ),
    ("perturbation", {"perturbation": {"eps": [0.1, 0.2, 0.3], "S": [[1]]}}, ["perturbation.S", "got: 1×1", "2×2"]),
    (
        "perturbation",
        {"perturbation": {"eps": [0.1, 0.2, 0.3], "S": [[0, 0], [0, 0]]}},
        ["perturbation.S", "no perturbation"],
    ),
    (
        "perturbation",
        {"perturbation": {"eps": [0.1, 0.2, 0.3], "S": [[[1, 0], [0, 1]]] * 2}},
        ["perturbation.S", "same number of heads", "got: 2", "1, as in the weights"],
    ),
    ("perturbation", {"minimum": {"t1": 0}}, ["minimum.t1", "> 0"]),
    ("limits", {"cases": []}, ["cases", "length >= 1"]),
    ("limits", {"cases": [{"name": "a", "weights": FREE}]}, ["cases[0].weights", "only tied heads"]),
    (
        "limits",
        {"cases": [{"name": "a", "weights": TIED}, {"name": "A!", "weights": TIED}]},
        ["cases[1].name", "share a name"],
    ),
    (
        "limits",
        {"cases": [{"name": "a", "weights": {"kind": "constant", "D": [[0, 1], [-1, 0]]}}]},
        ["cases[0].weights.D", "symmetric"],
    ),
    (
        "limits",
        {"cases": [{"name": "a", "weights": SHORT}]},
        ["cases[0].weights.segments", "sum to 1"],
    ),
    ("transport", {"target": SPHERE}, ["target", "differ in dimension", "got: 3", "2, the dimension of the start"]),
    ("transport", {"target": {**FAR, "weights": [1, 1]}}, ["target.weights", "mass is moved", "2 in the target"]),
    ("transport", {"start": {**FAR, "points": [[2.0, 0.0], [0.0, 1.0]]}}, ["start.points[0]", "unit sphere"]),
    ("transport", {"start": {"kind": "octahedron", "n": 3}}, ["start.kind", "did you mean octahedral?"]),
    ("transport", {"distance": {"steps": 9}}, ["distance.steps", "even"]),
    ("transport", {"distance": {"steps": 2}}, ["distance.steps", ">= 4"]),
    ("transport", {"distance": {"split": 3}}, ["distance.split", "power of two"]),
    (
        "transport",
        {
            "weights": SHORT,
            "distance": {"time": 2.0},
        },
        ["distance.time", "at most 1"],
    ),
    ("jko", {"scheme": {"tau": [0.1, 0.2], "t1": 1}}, ["scheme.tau", "length >= 3"]),
    ("jko", {"scheme": {"tau": [0.2, 0.1, 0.05], "t1": 1}}, ["scheme.tau", "must increase"]),
    ("jko", {"scheme": {"tau": [0.1, 0.2, 2.0], "t1": 1}}, ["scheme.tau[2]", "longer than the run"]),
    ("jko", {"scheme": {"tau": [0.1, 0.2, 0.4], "t1": 1, "mobility": "late"}}, ["scheme.mobility", "frozen, implicit"]),
    ("jko", {"weights": {"kind": "ou", "heads": 1}}, ["weights.noise_var", "order of convergence"]),
]


@pytest.mark.parametrize(("kind", "tables", "words"), REFUSED)
def test_configs_that_do_not_fit_are_refused(config, tmp_path, kind, tables, words):
    with pytest.raises(InputError) as raised:
        prepare(build(config(kind, **tables), folder=tmp_path), folder=tmp_path, precision="float64")
    for word in words:
        assert word in str(raised.value), str(raised.value)
