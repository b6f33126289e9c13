"""`kind = "pretrained"`: a small encoder through the engine, its summary against the library, refusals, figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_models import write_bert, write_modernbert

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.build import stream
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build
from jaxflow.experiments.pretrained import _first_false
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import new_run
from jaxflow.io.arrays import load_arrays
from jaxflow.measures import sample
from jaxflow.pretrained import effective_layer, load, measure_layer, own_gaussian
from jaxflow.pretrained.departures import NAMES
from jaxflow.viz import figures

MEASURE = {"tokens": 24, "repeats": 3, "nulls": 19, "directions": 6, "pairs": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("model") / "small", layers=2).parent


@pytest.fixture(scope="module")
def found(folder):
    """The run of a small BERT, and its encoder."""
    config = {"kind": "pretrained", "seed": 5, "model": {"folder": "small"}, "measure": MEASURE}
    job = prepare(build(config, folder=folder), folder=folder, precision="float64")
    state = job.begin()
    kept = [state["x"]]
    progress = None
    while progress is None or progress.done < progress.total:
        state, progress = job.advance(state)
        kept.append(state["x"])
    return job.finish(state), load(folder / "small", dtype=jnp.float64), kept[:3]


def test_every_layer_is_measured_on_the_hidden_states_of_the_encoder(found):
    run, encoder, kept = found
    start = sample(own_gaussian(encoder), stream(jax.random.key(5), "tokens"), n=72).points.reshape(3, 24, 6)
    states = np.stack([np.asarray(encoder.hidden_states(x)) for x in start], axis=1)
    np.testing.assert_allclose(kept, states, atol=1e-12)
    for i, x in enumerate(states):
        key = jax.random.fold_in(stream(jax.random.key(5), "noise"), i)
        report = measure_layer(jnp.asarray(x), key, nulls=19, directions=6, pairs=24)
        for name in NAMES:
            np.testing.assert_allclose(run.arrays[f"measured_{name}"][i], getattr(report.measured, name), rtol=1e-8)
            assert run.summary[name][i] == pytest.approx(float(getattr(report.measured, name).mean()), rel=1e-8)
            low, high = run.summary[f"{name}_null_low"][i], run.summary[f"{name}_null_high"][i]
            np.testing.assert_allclose([low, high], np.quantile(getattr(report.null, name), [0.025, 0.975]), rtol=1e-8)
        flat = x.reshape(-1, 6)
        assert run.summary["trace"][i] == pytest.approx(np.trace(np.cov(flat.T, bias=True)), rel=1e-9)
        assert run.summary["mean_norm"][i] == pytest.approx(np.linalg.norm(flat.mean(0)), rel=1e-9)


def test_blocks_are_compared_with_the_effective_layers(found):
    run, encoder, kept = found
    for i, (block, x) in enumerate(zip(encoder.blocks, kept)):
        layer = effective_layer(block, jnp.asarray(x))
        assert run.summary["missed"][i] == pytest.approx(float(layer.missed), rel=1e-7)
        assert run.summary["predicted_trace"][i] == pytest.approx(float(jnp.trace(layer.covariance)), rel=1e-9)
        assert run.summary["kappa_max"][i] == pytest.approx(float(layer.kappa.max()), rel=1e-9)
        np.testing.assert_allclose(run.arrays["tilt"][i], layer.tilt, rtol=1e-9)
    close = np.array(run.summary["sliced"]) < 1.5 * np.array(run.summary["sliced_null"])
    expected = [i + 1 for i in range(2) if close[i] and run.summary["missed"][i] <= 0.25]
    assert run.summary["described"] == expected


def test_where_attention_depends_on_positions_the_tokens_are_measured_and_blocks_left_out(tmp_path):
    write_modernbert(tmp_path / "modern")
    config = {"kind": "pretrained", "model": {"folder": "modern"}, "measure": MEASURE}
    job = prepare(build(config, folder=tmp_path), folder=tmp_path, precision="float64")
    state, progress = job.advance(job.begin())
    while progress.done < progress.total:
        state, progress = job.advance(state)
    run = job.finish(state)
    assert "depends on positions" in run.summary["warning"]
    assert len(run.summary["sliced"]) == 3
    assert not {"described", "missed"} & set(run.summary)
    assert set(figures("pretrained", run.arrays, run.summary, job.experiment)) == {"pretrained"}


def test_prescribed_attention_on_two_axes_of_a_modernbert(tmp_path):
    """Without feed-forward layers the moments follow Σ ← (1 + vbΣ)²Σ there and nothing happens elsewhere."""
    write_modernbert(tmp_path / "modern", layers=4)
    config = {"kind": "pretrained", "model": {"folder": "modern"}, "measure": {**MEASURE, "tokens": 400}}
    config["prescribed"] = {"v": -0.4, "kappa": 0.7, "feedforward": False}
    job = prepare(build(config, folder=tmp_path), folder=tmp_path, precision="float64")
    state, progress = job.advance(job.begin())
    start = np.asarray(job.gaussian.covariance)
    while progress.done < progress.total:
        state, progress = job.advance(state)
    summary = job.finish(state).summary
    axes = np.linalg.eigh(start)[1][:, -2:]
    b = 0.7 / np.linalg.eigvalsh(start)[-1]
    attention = job.encoder.blocks[2].attention
    np.testing.assert_allclose(attention.B[0], b * axes @ axes.T, atol=1e-10)
    np.testing.assert_allclose(attention.V[0], -0.4 * axes @ axes.T, atol=1e-10)
    np.testing.assert_allclose(summary["trace_on_axes"], summary["trace_on_axes_by_moments"], rtol=0.1)
    assert summary["trace_on_axes"][-1] < 0.5 * summary["trace_on_axes"][0]
    elsewhere = np.array(summary["trace"]) - np.array(summary["trace_on_axes"])
    np.testing.assert_allclose(elsewhere, elsewhere[0], rtol=0.02)
    assert summary["described"]


def test_how_long_all_layers_are_good():
    assert [_first_false(np.array(x)) for x in ([True, True], [True, False, True], [False, True])] == [1, 0, None]


def test_a_run_leaves_a_config_that_finds_its_model_again_and_a_figure(folder, tmp_path):
    path = folder / "small.toml"
    path.write_text(
        'kind = "pretrained"\n[model]\nfolder = "small"\n[input]\nlaw = "round"\ndeviation = 2.0\n[measure]\n'
        + "\n".join(f"{key} = {value}" for key, value in MEASURE.items())
    )
    request = new_run(path, out=tmp_path / "run")
    job = prepare(request.experiment, folder=request.folder, precision=request.precision)
    run = execute(job, request, reporter=Quiet())
    assert run.summary["status"] == "done"
    assert run.summary["trace"][0] == pytest.approx(6 * 4, rel=0.3)
    assert (tmp_path / "run" / "figures" / "pretrained.png").stat().st_size > 10_000
    again = new_run(tmp_path / "run" / "config.toml", out=tmp_path / "again")
    assert again.experiment.model.folder == str(folder / "small")
    arrays, _ = load_arrays(tmp_path / "run" / "arrays.safetensors")
    assert arrays["kappa"].shape == (2, 2)
    assert arrays["eigenvalues"].shape == (3, 6)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"model": {"folder": "nowhere"}}, ["model.folder", "nowhere", "jaxflow.pretrained.fetch"]),
        ({"model": {}}, ["model.folder"]),
        ({"measure": {**MEASURE, "tokens": 6}}, ["measure.tokens", "more than d = 6"]),
        ({"measure": {**MEASURE, "nulls": 18}}, ["measure.nulls"]),
        ({"measure": {**MEASURE, "repeats": 1}}, ["measure.repeats"]),
        ({"input": {"law": "own", "deviation": 1.0}}, ["input.deviation", "round"]),
        ({"input": {"law": "square"}}, ["input.law"]),
    ],
)
def test_configs_that_do_not_fit_are_refused(folder, tables, words):
    config = {"kind": "pretrained", "model": {"folder": "small"}, "measure": MEASURE} | tables
    with pytest.raises(InputError) as raised:
        build(config, folder=folder)
    for word in words:
        assert word in str(raised.value)


def test_models_that_cannot_be_read_and_single_precision_are_refused(folder, tmp_path):
    write_bert(tmp_path / "odd", kind="gpt2")
    config = {"kind": "pretrained", "model": {"folder": "odd"}, "measure": MEASURE}
    with pytest.raises(InputError, match="gpt2"):
        prepare(build(config, folder=tmp_path), folder=tmp_path, precision="float64")
    config = {**config, "model": {"folder": "small"}}
    prescribed = build({**config, "prescribed": {"v": 1, "kappa": 0.5}}, folder=folder)
    with pytest.raises(InputError, match=r"prescribed\.encoder(.|\n)*pre-norm"):
        prepare(prescribed, folder=folder, precision="float64")
    with pytest.raises(InputError, match=r"--precision(.|\n)*float64"):
        build(config, folder=folder, precision="float32")
