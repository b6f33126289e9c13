"""Runs of kind meanfield: against the library, stopped and resumed, with clouds, unresolved, and what is refused."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from interrupted import assert_same_results, cut_and_resumed

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build
from jaxflow.experiments.meanfield_report import count_peaks
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import Request
from jaxflow.io.arrays import load_arrays
from jaxflow.io.rundir import RunDirectory
from jaxflow.meanfield import Density, DensityFlow, balance, growth_rates, sampling_distance
from jaxflow.particles import OrnsteinUhlenbeckLimit, uniform_energy
from jaxflow.solve import solve
from jaxflow.weights import Constant

EYE = [[1.0, 0.0], [0.0, 1.0]]
KEYS = {
    "status", "t_final", "energy_initial", "energy_final", "rate_integral", "slope_integral", "dt_energy_integral",
    "martingale", "balance_residual", "rate_final", "energy_floor", "mass_error", "least", "largest", "order", "peaks",
    "resolution", "growth_rates", "fastest_mode", "degree", "harmonic_degree", "grid_degree", "steps",
}  # fmt: skip


@pytest.fixture
def request_of(config, tmp_path):
    """A request for the smallest config with some tables changed; None leaves a table out."""

    def make(name="run", **tables):
        base = {key: value for key, value in {**config("meanfield"), **tables}.items() if value is not None}
        experiment = build(base, folder=tmp_path)
        return Request(experiment, tmp_path, RunDirectory(tmp_path / name), "float64")

    return make


def run(request):
    """The run directory, summary and arrays."""
    job = prepare(request.experiment, folder=request.folder, precision=request.precision)
    execute(job, request, reporter=Quiet())
    return request.run_dir, json.loads(request.run_dir.summary.read_text()), load_arrays(request.run_dir.arrays)[0]


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])


def test_a_run_is_that_of_the_library_and_resumes_to_the_same_bits(request_of, monkeypatch):
    run_dir, summary, arrays = run(request_of())
    assert summary.keys() >= KEYS | {"clouds", "distance", "distance_std", "sampling_distance", "exponent"}
    assert summary["status"] == "done"
    figures = {path.stem for path in run_dir.figures.iterdir()}
    assert figures == {"densities", "resolution", "clouds", "dissipation", "balance"}

    c = np.array([1.0, 1.0]) / np.sqrt(2)
    part = Density.from_function(lambda x: jnp.exp(2 * (x @ c)), dim=2, degree=16, normalize=True)
    u = Density.uniform(dim=2, degree=16)
    start = Density(0.7 * part.coefficients + 0.3 * u.coefficients, 2)
    flow = DensityFlow(Constant(D=np.array([[1.0, 0.2], [0.2, 0.5]])), direction="descend")
    sol = solve(flow, start, t1=0.4, dt=0.1, save_every=1, observe=balance)
    np.testing.assert_allclose(arrays["coefficients"], sol.states.coefficients, atol=1e-15)
    np.testing.assert_allclose(arrays["energy"][0], sol.observables.energy, rtol=1e-14)
    np.testing.assert_allclose(summary["balance_residual"], sol.observables.residual[-1], atol=1e-15)
    np.testing.assert_allclose(summary["order"], np.linalg.norm(sol.final.mean), rtol=1e-13)
    assert summary["mass_error"] < 1e-15
    assert 0 < summary["least"] < 1 / (2 * np.pi) < summary["largest"]
    assert summary["growth_rates"] is None  # D is no multiple of the identity
    sampling = [float(sampling_distance(sol.final, n=n, degree=4)) for n in (100, 400)]
    np.testing.assert_allclose(summary["sampling_distance"], sampling, rtol=1e-12)
    assert np.abs(np.log(np.array(summary["distance"]) / sampling)).max() < 0.9
    assert min(summary["distance_std"]) > 1e-3
    assert summary["least"] == pytest.approx(arrays["least"].min())
    slope = np.diff(np.log(summary["distance"]))[0] / np.log(4)
    np.testing.assert_allclose(summary["exponent"], slope, rtol=1e-12)

    # Once among the steps, once among the clouds.
    for after in (2, 7):
        cut = cut_and_resumed(request_of(f"cut{after}"), after=after, monkeypatch=monkeypatch)
        assert_same_results(run_dir, cut)


def test_infinitely_many_heads_and_saved_times(request_of, undrawn):
    weights = {"kind": "infinite", "noise_var": 2.0, "stationary": True}
    density = {"kind": "wave", "dim": 3, "degree": 6, "mode": 2, "size": 0.5}
    solve_table = {"t1": 60.0, "dt": 0.2, "save_at": [0, 6, 60]}
    clouds = {"n": [60], "repeats": 2}
    _, summary, arrays = run(request_of(weights=weights, density=density, solve=solve_table, clouds=clouds))
    kernel = OrnsteinUhlenbeckLimit(noise_var=2.0, stationary=True)
    np.testing.assert_allclose(summary["energy_floor"], uniform_energy(kernel, dim=3, t=60.0), rtol=1e-14)
    np.testing.assert_allclose(summary["energy_final"], summary["energy_floor"], rtol=1e-8)
    assert arrays["ts"].tolist() == [0, 6, 60]
    assert arrays["distances"].shape == (1, 2)
    assert "exponent" not in summary
    assert summary["fastest_mode"] is None
    assert summary["peaks"] == count_peaks(Density(jnp.asarray(arrays["final_coefficients"]), 3))
    rates = growth_rates(kernel, dim=3, degree=6, law="unnormalized", direction="descend")
    np.testing.assert_allclose(summary["growth_rates"], rates[1:], rtol=1e-12)
    # 1 + ½P₂(z): smallest at the equator, where P₂ = −½.
    c0 = Density(jnp.asarray(arrays["coefficients"][0]), 3)
    np.testing.assert_allclose(c0(jnp.eye(3)), np.array([0.75, 0.75, 1.5]) / (4 * np.pi), rtol=1e-12)


def test_a_run_that_clusters_ends_unresolved_with_advice_and_finite_arrays(request_of, undrawn):
    ripples = {"kind": "ripples", "dim": 2, "degree": 12, "modes": 4, "size": 0.1}
    tables = {"density": ripples, "weights": {"kind": "constant", "D": [[4.0, 0.0], [0.0, 4.0]]}}
    for name, solve_table in {"fixed": {"dt": 0.05}, "adaptive": {"save_at": [0, 0.1, 5]}}.items():
        request = request_of(name, flow={"direction": "ascend"}, solve={"t1": 5.0, **solve_table}, **tables)
        _, summary, arrays = run(request)
        assert summary["status"] == "unresolved"
        assert "raise the degree" in summary["advice"]
        assert 0.1 < summary["t_final"] < 5
        assert "clouds" not in summary
        assert summary["fastest_mode"] == 3
        assert all(np.isfinite(x).all() for x in arrays.values())
        assert arrays["ts"][-1] <= summary["t_final"] + 1e-12


def test_noisy_heads_smoothed_clouds_and_flows_without_energy(request_of, undrawn):
    cloud = {"kind": "cloud", "degree": 10, "tokens": {"kind": "equispaced", "n": 30}, "bandwidth": 0.5}
    weights, solve_table = {"kind": "ou", "heads": 2}, {"t1": 0.2, "dt": 0.05}
    _, summary, _ = run(request_of(density=cloud, weights=weights, solve=solve_table, clouds={"n": [50], "repeats": 2}))
    assert summary["status"] == "done"
    assert summary["martingale"] != 0
    free = {"kind": "constant", "B": [[0.3, 0.5], [-0.2, 0.1]], "V": EYE}
    _, summary, arrays = run(request_of("free", weights=free, flow={"kappa": 2.0}, clouds=None))
    assert summary["energy_final"] is None
    assert "energy" not in arrays
    assert summary["status"] == "done"


def test_peaks_are_counted():
    angles = np.array([0.0, 2.0, 4.0])

    def bumps(x):
        centres = jnp.asarray(np.stack([np.cos(angles), np.sin(angles)]))
        return jnp.sum(jnp.exp(20 * (x @ centres - 1)), axis=1)

    assert count_peaks(Density.from_function(bumps, dim=2, degree=30, normalize=True)) == 3
    octahedron = Density.from_function(
        lambda x: jnp.sum(jnp.exp(15 * (jnp.abs(x) - 1)), axis=1), dim=3, degree=24, normalize=True
    )
    assert count_peaks(octahedron) == 6
    assert count_peaks(Density.uniform(dim=3, degree=8)) == 0


REFUSED = [
    ({"density": {"kind": "mixtur", "dim": 2, "degree": 4}}, ["density.kind", "did you mean mixture?"]),
    ({"density": {"kind": "wave", "dim": 4, "degree": 4, "mode": 1, "size": 0.5}}, ["density.dim"]),
    ({"density": {"kind": "wave", "dim": 2, "degree": 4, "mode": 5, "size": 0.5}}, ["density.mode", "degree = 4"]),
    ({"density": {"kind": "wave", "dim": 2, "degree": 4, "mode": 1, "size": 1.5}}, ["density.size", "<= 1"]),
    (
        {"density": {"kind": "mixture", "dim": 2, "degree": 8, "centres": [[1, 0, 0]], "concentration": 1}},
        ["density.centres[0]", "density.dim"],
    ),
    (
        {"density": {"kind": "mixture", "dim": 2, "degree": 8, "centres": [[0, 0]], "concentration": 1}},
        ["density.centres[0]", "direction"],
    ),
    (
        {"density": {"kind": "mixture", "dim": 2, "degree": 8, "centres": [EYE[0]], "concentration": 1, "shares": [2]}},
        ["density.shares", "at most 1"],
    ),
    (
        {"density": {"kind": "mixture", "dim": 2, "degree": 8, "centres": [EYE[0]], "concentration": 90}},
        ["density:", "negative values", "larger degree than 8"],
    ),
    (
        {"density": {"kind": "cloud", "degree": 8, "tokens": {"kind": "uniform", "n": 9, "dim": 2}, "bandwidth": 0.1}},
        ["density.bandwidth", "finer than the degree"],
    ),
    (
        {"density": {"kind": "cloud", "degree": 8, "tokens": {"kind": "uniform", "n": 9, "dim": 5}}},
        ["density.tokens", "S¹ and S²"],
    ),
    ({"density": {"kind": "ripples", "dim": 2, "degree": 8, "modes": 4, "size": 5}}, ["density:", "negative values"]),
    ({"weights": {"kind": "constant", "D": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}}, ["weights.D", "2×2"]),
    ({"weights": {"kind": "infinite"}, "flow": {"law": "softmax"}}, ["flow.law", "no closed form"]),
    ({"weights": {"kind": "constant", "heads": [1, 2]}}, ["weights.heads"]),
    ({"weights": {"kind": "constant", "A": EYE}, "flow": {"law": "softmax"}}, ["flow.law", "no heads"]),
    ({"weights": {"kind": "constant", "B": EYE, "V": EYE}, "flow": {"law": "steepest"}}, ["flow.law", "steepest"]),
    ({"weights": {"kind": "constant", "B": EYE, "V": EYE}, "flow": {"direction": "ascend"}}, ["flow.direction"]),
    ({"weights": {"kind": "constant", "D": [[900, 0], [0, 1]]}}, ["weights", "above 400"]),
    ({"flow": {"law": "hardmax"}}, ["flow.law", "steepest"]),
    ({"flow": {"grid": 7}}, ["flow.grid", "density.degree = 16"]),
    ({"flow": {"kappa": 2.0}}, ["clouds.n", "flow.kappa"]),
    ({"clouds": {"n": [400, 100]}}, ["clouds.n", "increase"]),
    ({"clouds": {"n": [100], "repeats": 1}}, ["clouds.repeats", ">= 2"]),
    ({"clouds": {"n": [100], "degree": 40}}, ["clouds.degree", "density.degree = 16"]),
    ({"solve": {"t1": 1.0, "dt": 2.0}}, ["solve.dt"]),
]


@pytest.mark.parametrize(("tables", "words"), REFUSED)
def test_configs_that_do_not_fit_are_refused_with_their_place(config, tmp_path, tables, words):
    with pytest.raises(InputError) as raised:
        prepare(build(config("meanfield", **tables), folder=tmp_path), folder=tmp_path, precision="float64")
    for word in words:
        assert word in str(raised.value), str(raised.value)
