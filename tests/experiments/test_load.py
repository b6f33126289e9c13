"""Do good configs load complete, and do bad ones fail with the place and the remedy?"""

import numpy as np
import pytest

from jaxflow.errors import InputError
from jaxflow.experiments.data import gaussian_data, localised
from jaxflow.experiments.load import build, load, resolved
from jaxflow.experiments.request import first_difference
from jaxflow.experiments.schema.weights import attention_of

EYE = [[1.0, 0.0], [0.0, 1.0]]
SKEW = [[0.0, 1.0], [-1.0, 0.0]]


def refused(data, folder, *words):
    """Build `data`, expect a refusal whose message contains all `words`."""
    with pytest.raises(InputError) as raised:
        build(data, folder=folder)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    "kind",
    [
        *("particles", "moments", "steer", "steer_tokens", "closure", "blocks", "phase", "meanfield"),
        *("transport", "jko", "stability", "perturbation", "limits"),
    ],
)
def test_resolved_configs_load_to_the_same_experiment(config, tmp_path, kind):
    experiment = build(config(kind), folder=tmp_path)
    (tmp_path / "again.toml").write_text(resolved(experiment), encoding="utf-8")
    assert load(tmp_path / "again.toml") == experiment


def test_resolved_config_keeps_segments_and_writes_a_row_per_line(config, tmp_path):
    segments = [{"duration": 1, "A": EYE}, {"duration": 2.0, "A": SKEW}]
    weights = {"kind": "piecewise", "segments": segments}
    experiment = build(config("moments", weights=weights, solve={"t1": 3, "save_at": [0, 3]}), folder=tmp_path)
    text = resolved(experiment)
    assert text.count("[[weights.segments]]") == 2
    assert "    [0.0, 1.0],\n" in text
    (tmp_path / "again.toml").write_text(text, encoding="utf-8")
    assert load(tmp_path / "again.toml") == experiment


def test_defaults_are_written_out(config, tmp_path):
    fixed = build(config("particles", solve={"t1": 20, "dt": 0.005}), folder=tmp_path)
    assert (fixed.solve.method, fixed.solve.save_every, fixed.solve.rtol) == ("rk4", 20, None)
    assert (fixed.flow.law, fixed.flow.geometry, fixed.flow.direction) == ("softmax", "sphere", "descend")
    adaptive = build(config("moments"), folder=tmp_path).solve
    assert (adaptive.method, adaptive.rtol, adaptive.atol) == ("tsit5", 1e-8, 1e-8)
    np.testing.assert_allclose(adaptive.save_at, np.linspace(0, 1, 201), atol=1e-15)
    control = build(config("steer"), folder=tmp_path).control
    assert (control.segments, control.effort, control.iterations, control.learning_rate) == (
        10,
        1e-2,
        1000,
        0.05,
    )
    assert (control.controls, control.heads, control.loss, control.smoothness) == ("constant", 1, "w2", 0.0)
    smooth = {"controls": "fourier", "t1": [1, 2], "bounds": {"b": 2}}
    smooth = build(config("steer", control=smooth), folder=tmp_path)
    assert (smooth.control.segments, smooth.control.limits, smooth.control.earliest) == (3, {"b": 2.0}, 1.0)
    (tmp_path / "smooth.toml").write_text(resolved(smooth), encoding="utf-8")
    assert load(tmp_path / "smooth.toml") == smooth
    constructive = build(config("steer", control={"method": "constructive"}), folder=tmp_path).control
    assert (constructive.segments, constructive.iterations) == (None, None)


def test_diffusing_weights_take_euler(config, tmp_path):
    weights = {"kind": "ou", "heads": 2}
    experiment = build(config("particles", weights=weights), folder=tmp_path)
    assert experiment.solve.method == "euler"
    data = config("particles", weights=weights, solve={"t1": 1, "dt": 0.1, "method": "heun"})
    refused(data, tmp_path, "solve.method", "diffusion path", "expected: euler")


def test_attention_is_named(config, tmp_path):
    kinds = {"tied": {"heads": 3}, "free": {"B": EYE, "V": EYE}, "none": {"A": EYE}}
    for name, keys in kinds.items():
        experiment = build(config("moments", weights={"kind": "constant", **keys}), folder=tmp_path)
        assert attention_of(experiment.weights) == name


GOOD_TOKENS = [
    {"kind": "octahedral", "n": 5, "dim": 3},
    {"kind": "cross_polytope", "n": 5, "dim": 3, "noise": 0},
    {"kind": "uniform", "n": 1, "dim": 3},
    {"kind": "vmf", "n": 5, "dim": 3, "concentration": 2},
    {"kind": "equiangular", "n": 3, "dim": 3, "cosine": 0.5},
    {"kind": "explicit", "points": [[1, 0, 0], [0, 0.6, 0.8]], "weights": [0.25, 0.75]},
]


@pytest.mark.parametrize("tokens", GOOD_TOKENS, ids=lambda tokens: tokens["kind"])
def test_every_kind_of_tokens_loads(config, tmp_path, tokens):
    build(config("particles", tokens=tokens), folder=tmp_path)


BAD_TOKENS = [
    (
        {"kind": "octahedron", "n": 5},
        ["tokens.kind", "'octahedron'", "uniform, vmf", "did you mean octahedral?"],
    ),
    ({"n": 5}, ["tokens.kind", "missing", "octahedral"]),
    ({"kind": "octahedral", "n": -5}, ["tokens.n", "got: -5", "a whole number >= 1"]),
    ({"kind": "octahedral", "n": 2.5}, ["tokens.n", "got: 2.5", "expected: a whole number"]),
    ({"kind": "octahedral"}, ["tokens.n", "required"]),
    ({"kind": "octahedral", "n": 5, "noise": -1}, ["tokens.noise", ">= 0"]),
    ({"kind": "octahedral", "n": 5, "dim": 4}, ["tokens.dim", "got: 4", "expected: 3"]),
    ({"kind": "octahedral", "n": 5, "nosie": 0.1}, ["tokens.nosie", "unknown key", "did you mean noise?"]),
    ({"kind": "uniform", "n": 5, "dim": 4}, ["weights.D", "got: 3×3", "expected: 4×4"]),
    ({"kind": "uniform", "n": 5, "dim": 1}, ["tokens.dim", "sphere"]),
    ({"kind": "equiangular", "n": 3, "dim": 3, "cosine": -0.6}, ["tokens.cosine", "between -0.5 and 1"]),
    ({"kind": "equiangular", "n": 5, "dim": 3, "cosine": 0.5}, ["tokens.dim", "at least 5"]),
    ({"kind": "explicit", "points": [[1, 0], [0]]}, ["tokens.points", "lengths [2, 1]"]),
    ({"kind": "explicit", "points": [[1, 0, 0], [0, 2, 0]]}, ["tokens.points[1]", "length 2"]),
    ({"kind": "explicit", "points": [[1, 0, 0]], "weights": [1, 2]}, ["tokens.weights", "got: 2"]),
    ({"kind": "explicit", "points": [[1, 0, 0]], "weights": [-1]}, ["tokens.weights", "positive"]),
    ({"kind": "explicit", "points": "none.csv"}, ["tokens.points", "none.csv", "does not exist"]),
    ({"kind": "gaussian", "n": 5, "factor": [[1], [0], [0]]}, ["flow.geometry", "euclidean"]),
    ([], ["tokens", "expected: a table"]),
]


@pytest.mark.parametrize(("tokens", "words"), BAD_TOKENS)
def test_bad_tokens_are_refused(config, tmp_path, tokens, words):
    refused(config("particles", tokens=tokens), tmp_path, *words)


BAD_GAUSSIANS = [
    ({"mean": [0, 0]}, ["start", "got: neither", "`factor`"]),
    ({"covariance": EYE, "factor": EYE}, ["start", "got: both"]),
    ({"covariance": [[1, 2], [2, 1]]}, ["start.covariance", "smallest eigenvalue -1"]),
    ({"covariance": [[1, 0.5], [0, 1]]}, ["start.covariance", "not symmetric", "0.5"]),
    ({"covariance": [[1, 0, 0], [0, 1, 0]]}, ["start.covariance", "2×3"]),
    ({"covariance": EYE, "mean": [0, 0, 0]}, ["start.mean", "got: 3", "expected: 2"]),
    ({"covariance": EYE, "mean": [0, float("nan")]}, ["start.mean[1]", "finite"]),
    ({"samples": "x.csv", "mean": [0, 0]}, ["start.mean", "does not apply"]),
    ({"samples": "nan.csv"}, ["start.samples", "nan.csv, line 3, column 2", "not finite"]),
    ({"covariance": "x.csv"}, ["start.covariance", "expected: a list"]),
]


@pytest.mark.parametrize(("start", "words"), BAD_GAUSSIANS)
def test_bad_gaussians_are_refused(config, tmp_path, start, words):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    (tmp_path / "nan.csv").write_text("x,y\n1,2\n3,nan\n")
    refused(config("moments", start=start), tmp_path, *words)


BAD_WEIGHTS = [
    ({"kind": "constant"}, ["weights", "does nothing"]),
    ({"kind": "constant", "B": EYE}, ["weights.V", "only B"]),
    ({"kind": "constant", "B": EYE, "V": [EYE, EYE]}, ["weights.V", "same number of heads", "got: 2"]),
    ({"kind": "constant", "D": EYE, "V": EYE}, ["weights.V", "does not apply", "tied"]),
    ({"kind": "constant", "D": EYE, "heads": 2}, ["weights.D", "does not apply", "at random"]),
    ({"kind": "constant", "D": SKEW}, ["weights.D", "symmetric", "use `B` and `V`"]),
    ({"kind": "constant", "D": [EYE, SKEW]}, ["weights.D[1]", "not symmetric"]),
    ({"kind": "constant", "D": []}, ["weights.D", "no head"]),
    ({"kind": "constant", "A": [[1, 2, 3]]}, ["weights.A", "got: 1×3", "expected: 2×2"]),
    ({"kind": "constant", "A": [[1, 2], [3, "x"]]}, ["weights.A[1][1]", "got: 'x'", "expected: a number"]),
    ({"kind": "constant", "D": [[1, 2], [3, "x"]]}, ["weights.D[1][1]", "got: 'x'"]),
    ({"kind": "constant", "D": [EYE, [[1, 2], [3, "x"]]]}, ["weights.D[1][1][1]", "got: 'x'"]),
    ({"kind": "constant", "D": [1, 2]}, ["weights.D[0]", "got: 1", "expected: a list"]),
    ({"kind": "constant", "b": [1]}, ["weights.b", "got: 1"]),
    ({"kind": "constant", "phase": "locked"}, ["weights.phase", "unknown key", "D, B, V, heads, A, b"]),
    ({"kind": "ou"}, ["weights", "no heads to start from"]),
    ({"kind": "ou", "heads": 1, "mean": SKEW}, ["weights.mean", "symmetric"]),
    ({"kind": "oscillating", "heads": 1, "phase": "lockd"}, ["weights.phase", "did you mean locked?"]),
    ({"kind": "piecewise", "segments": []}, ["weights.segments", "length >= 1"]),
    ({"kind": "piecewise", "segments": [{"duration": 0, "A": EYE}]}, ["weights.segments[0].duration", "> 0"]),
    ({"kind": "piecewise", "segments": [{"duration": 0.5, "A": EYE}]}, ["weights.segments", "sum to 0.5"]),
    (
        {
            "kind": "piecewise",
            "segments": [{"duration": 1, "A": EYE}, {"duration": 1, "A": EYE, "b": [0, 0]}],
        },
        ["weights.segments[1]", "same keys", "got: A, b"],
    ),
    (
        {"kind": "piecewise", "segments": [{"duration": 1, "D": EYE}, {"duration": 1, "D": [EYE, EYE]}]},
        ["weights.segments[1].D", "got: 2"],
    ),
]


@pytest.mark.parametrize(("weights", "words"), BAD_WEIGHTS)
def test_bad_weights_are_refused(config, tmp_path, weights, words):
    refused(config("moments", weights=weights), tmp_path, *words)


BAD_SOLVES = [
    ({"t1": 1, "dt": 2}, ["solve.dt", "got: 2", "solve.t1 = 1"]),
    ({"t1": 0}, ["solve.t1", "> 0"]),
    ({"t1": float("inf")}, ["solve.t1", "finite"]),
    ({"t1": 1, "dt": 0.1, "rtol": 1e-3}, ["solve.rtol", "does not apply", "rk4"]),
    ({"t1": 1, "method": "euler"}, ["solve.dt", "needs"]),
    ({"t1": 1, "method": "tsit5", "dt": 0.1}, ["solve.dt", "does not apply", "tsit5"]),
    ({"t1": 1, "save_every": 2}, ["solve.save_every", "does not apply"]),
    ({"t1": 1, "dt": 0.1, "save_every": 2, "save_at": [1]}, ["solve.save_every", "only one"]),
    ({"t1": 1, "save_at": [0.5, 0.2]}, ["solve.save_at", "increasing"]),
    ({"t1": 1, "save_at": [0.5, 2]}, ["solve.save_at", "[0, 1"]),
    ({"t1": 1, "method": "rk45"}, ["solve.method", "one of dopri8, euler", "did you mean rk4?"]),
]


@pytest.mark.parametrize(("solve", "words"), BAD_SOLVES)
def test_bad_solves_are_refused(config, tmp_path, solve, words):
    refused(config("moments", solve=solve), tmp_path, *words)


def test_rounding_may_shorten_the_segments(config, tmp_path):
    segments = [{"duration": 0.1, "A": EYE}] * 3
    build(
        config("moments", weights={"kind": "piecewise", "segments": segments}, solve={"t1": 0.3}),
        folder=tmp_path,
    )


BAD_FLOWS = [
    ({"B": EYE, "V": EYE}, {"direction": "ascend"}, ["flow.direction", "does not apply", "sign"]),
    ({"A": EYE}, {"direction": "ascend"}, ["flow.direction", "does not apply", "no heads"]),
    ({"B": EYE, "V": EYE}, {"law": "steepest"}, ["flow.law", "tied"]),
    ({"A": EYE}, {"causal": True}, ["flow.causal", "does not apply"]),
    ({"A": EYE}, {"law": "hardmax"}, ["flow.law", "does not apply", "no heads"]),
    ({"D": EYE}, {"normalization": "pre"}, ["flow.normalization", "leave the sphere", 'flow.geometry = "euclidean"']),
    ({"D": EYE}, {"normalization": "peri"}, ["flow.normalization", "leave the sphere"]),
    (
        {"D": EYE},
        {"normalization": "post", "geometry": "euclidean"},
        ["flow.normalization", "keeps tokens on the sphere", 'flow.geometry = "sphere"'],
    ),
    ({"D": EYE}, {"normalization": "past"}, ["flow.normalization", "one of peri, post, pre"]),
    (
        {"D": EYE},
        {"normalization": "pre", "geometry": "euclidean", "law": "steepest"},
        ["flow.law", "not normalised"],
    ),
    (
        {"D": EYE, "A": EYE},
        {"normalization": "peri", "geometry": "euclidean"},
        ["flow.normalization", "own norm", "remove A and b"],
    ),
    ({"D": EYE}, {"kappa": 0}, ["flow.kappa", "> 0"]),
    ({"D": EYE}, {"law": "steep"}, ["flow.law", "did you mean steepest?"]),
    ({"D": EYE}, {"causal": 1}, ["flow.causal", "true or false"]),
]


@pytest.mark.parametrize(("heads", "flow", "words"), BAD_FLOWS)
def test_bad_flows_are_refused(config, tmp_path, heads, flow, words):
    tokens = {"kind": "uniform", "n": 4, "dim": 2}
    data = config("particles", tokens=tokens, weights={"kind": "constant", **heads}, flow=flow)
    refused(data, tmp_path, *words)


BAD_METHODS = [
    ({"law": "hardmax"}, {"t1": 1}, ["solve.method", "jumps", "got: tsit5", "euler, heun, rk4"]),
    ({"law": "hardmax"}, {"t1": 1, "method": "dopri8"}, ["solve.method", "jumps"]),
    ({"kappa": 2}, {"t1": 1, "dt": 0.1, "method": "rk4"}, ["solve.method", "noisy tokens", "expected: euler"]),
    ({"kappa": 2}, {"t1": 1, "method": "tsit5"}, ["solve.method", "noisy tokens"]),
    ({"kappa": 2}, {"t1": 1}, ["solve.dt", "needs their length"]),
]


@pytest.mark.parametrize(("flow", "solve", "words"), BAD_METHODS)
def test_methods_that_a_flow_cannot_take_are_refused(config, tmp_path, flow, solve, words):
    refused(config("particles", flow=flow, solve=solve), tmp_path, *words)


def test_tokens_at_zero_have_no_direction(config, tmp_path):
    tokens = {"kind": "explicit", "points": [[1, 0, 0], [0, 0, 0]]}
    for placement in ("pre", "peri"):
        flow = {"geometry": "euclidean", "normalization": placement}
        refused(config("particles", tokens=tokens, flow=flow), tmp_path, "tokens.points[1]", "no direction", placement)
    build(config("particles", tokens=tokens, flow={"geometry": "euclidean"}), folder=tmp_path)


def test_flows_of_tokens_load_with_their_options(config, tmp_path):
    noisy = build(config("particles", flow={"kappa": 2}), folder=tmp_path)
    assert (noisy.flow.kappa, noisy.solve.method) == (2.0, "euler")
    hard = build(config("particles", flow={"law": "hardmax", "normalization": "post"}), folder=tmp_path)
    assert (hard.flow.law, hard.solve.method) == ("hardmax", "rk4")
    (tmp_path / "again.toml").write_text(resolved(noisy), encoding="utf-8")
    assert load(tmp_path / "again.toml") == noisy


BAD_STEERS = [
    ({"target": {"covariance": [[1.0]]}}, ["target", "got: 1", "expected: 2"]),
    ({"control": {"allow": "ABX"}}, ["control.allow", "ABVb"]),
    ({"control": {"allow": ""}}, ["control.allow"]),
    ({"control": {"method": "lbfgs", "learning_rate": 0.1}}, ["control.learning_rate", "does not apply"]),
    ({"control": {"method": "constructive", "iterations": 3}}, ["control.iterations", "constructive"]),
    ({"control": {"method": "newton"}}, ["control.method", "gauss-newton"]),
    ({"control": {"controls": "spline"}}, ["control.controls", "constant, fourier, linear, mlp"]),
    ({"control": {"controls": "mlp", "segments": 3}}, ["control.segments", "network of time"]),
    ({"control": {"heads": 2, "allow": "Ab"}}, ["control.heads", "need B and V"]),
    ({"control": {"symmetric_B": True, "allow": "Ab"}}, ["control.symmetric_B", "B is not in control.allow"]),
    ({"control": {"bounds": {"B": 1.0}, "allow": "Ab"}}, ["control.bounds.B", "not in control.allow"]),
    ({"control": {"bounds": {"C": 1.0}}}, ["control.bounds.C", "unknown key"]),
    ({"control": {"bounds": {"A": 0}}}, ["control.bounds.A", "> 0"]),
    ({"control": {"loss": "l2"}}, ["control.loss", "kl, moments, w2"]),
    ({"control": {"method": "gauss-newton", "loss": "kl"}}, ["control.loss", "gauss-newton does not read it"]),
    ({"control": {"method": "constructive", "controls": "linear"}}, ["control.controls", "constructive"]),
    ({"control": {"method": "constructive", "t1": [0.5, 1]}}, ["control.t1", "one fixed time"]),
    ({"control": {"t1": [2.0, 1.0]}}, ["control.t1", "increase"]),
    ({"control": {"t1": [1.0]}}, ["control.t1", "length >= 2"]),
    ({"control": {"time_weight": 0.1}}, ["control.time_weight", "one fixed time"]),
    ({"control": {"t1": [0.01, 1]}, "tokens": {"dt": 0.02}}, ["tokens.dt", "control.t1 = 0.01"]),
    ({"tolerance": 0}, ["tolerance", "> 0"]),
    ({"tokens": {"n": -1}}, ["tokens.n", ">= 0"]),
    ({"tokens": {"dt": 2}}, ["tokens.dt", "control.t1 = 1"]),
    ({"solve": {"method": "rk4"}}, ["solve.method", "dopri8, kvaerno5, tsit5"]),
    ({"seed": -1}, ["seed", ">= 0"]),
    ({"paths": 2}, ["paths", "unknown key", "tolerance"]),
]


@pytest.mark.parametrize(("tables", "words"), BAD_STEERS)
def test_bad_steering_is_refused(config, tmp_path, tables, words):
    refused(config("steer", **tables), tmp_path, *words)


@pytest.mark.parametrize("data", [{}, {"kind": "particle"}])
def test_the_kinds_are_listed(tmp_path, data):
    refused(data, tmp_path, "kind", "particles, moments, steer")


@pytest.fixture
def file(config, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(resolved(build(config("moments"), folder=tmp_path)), encoding="utf-8")
    return path


def test_settings_change_tables_lists_and_text(file):
    settings = ["solve.t1=2", "solve.save_at=[0, 2]", "solve.method = dopri8", "start.covariance.0=[2, 0.5]"]
    experiment = load(file, settings)
    assert (experiment.solve.t1, experiment.solve.method) == (2.0, "dopri8")
    assert experiment.start.covariance == [[2.0, 0.5], [0.5, 1.0]]


def test_settings_make_optional_tables(config, tmp_path):
    path = tmp_path / "s.toml"
    data = config("steer")
    path.write_text(f"kind = 'steer'\nstart = {{covariance = {EYE}}}\ntarget = {{covariance = {EYE}}}\n")
    assert load(path, ["control.segments=4"]).control.segments == 4
    assert "control" not in data


BAD_SETTINGS = [
    ("solve.t1", "key.path=value"),
    ("=3", "key.path=value"),
    ("solve.t2=3", "unknown key"),
    ("nothing.at.all=3", "unknown key"),
    ("start.covariance.5=3", "from 0 to 1"),
    ("start.covariance.x=3", "list of 2 items"),
    ("solve.t1.x=3", "single value"),
    ("solve.t1=-1", "> 0"),
    ("solve.t1=1\nseed=2", "a number"),
]


@pytest.mark.parametrize(("setting", "word"), BAD_SETTINGS)
def test_bad_settings_are_refused(file, setting, word):
    with pytest.raises(InputError, match=word):
        load(file, [setting])


def test_broken_toml_names_file_and_line(tmp_path):
    (tmp_path / "c.toml").write_text("kind = 'steer'\ntolerance = \n")
    with pytest.raises(InputError, match=r"c\.toml, line 2"):
        load(tmp_path / "c.toml")
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "d.toml")


def test_samples_give_mean_and_covariance(config, tmp_path):
    samples = np.random.default_rng(0).normal(size=(20, 2))
    np.save(tmp_path / "x.npy", samples)
    experiment = build(config("moments", start={"samples": "x.npy"}), folder=tmp_path)
    found = gaussian_data(experiment.start, where="start", folder=tmp_path, precision="float64")
    np.testing.assert_allclose(found.mean, samples.mean(0))
    np.testing.assert_allclose(found.covariance, np.cov(samples.T, bias=True))
    assert found.factor is None


def test_an_absent_mean_is_zero(config, tmp_path):
    experiment = build(config("steer", target={"factor": [[1], [2]]}), folder=tmp_path)
    found = gaussian_data(experiment.target, where="target", folder=tmp_path, precision="float32")
    assert found.factor is not None
    assert (found.mean.tolist(), found.factor.shape, found.factor.dtype) == ([0, 0], (2, 1), np.float32)


def test_data_files_move_beside_the_config(config, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("1,2\n3,4\n")
    experiment = build(config("steer", start={"samples": "a/x.csv"}, target={"samples": "b/x.csv"}), folder=tmp_path)
    local, files = localised(experiment, folder=tmp_path)
    assert (local.start.samples, local.target.samples) == ("x.csv", "target-x.csv")
    assert {name: path.parent.name for name, path in files.items()} == {"x.csv": "a", "target-x.csv": "b"}


def test_explicit_points_move_beside_the_config(config, tmp_path):
    (tmp_path / "p.csv").write_text("1,0,0\n0,1,0\n")
    tokens = {"kind": "explicit", "points": str(tmp_path / "p.csv")}
    experiment = build(config("particles", tokens=tokens), folder=tmp_path)
    local, files = localised(experiment, folder=tmp_path)
    assert local.tokens.points == "p.csv"
    assert files == {"p.csv": tmp_path / "p.csv"}


def test_the_first_difference_is_found():
    old = {"a": 1, "b": {"c": [1, 2]}}
    assert first_difference(old, {"a": 1, "b": {"c": [1, 2]}}) is None
    assert first_difference(old, {"a": 1, "b": {"c": [1, 3]}}) == (("b", "c", 1), 2, 3)
    assert first_difference(old, {"a": 1, "b": {"d": 0}}) == (("b",), {"c": [1, 2]}, {"d": 0})
