"""The tensors of a DINOv2 in an ONNX file, under the names of Hugging Face.

Exporting to ONNX keeps the names of biases and norms, but multiplies by anonymous, transposed matrices: their names
come from the nodes that use them, "/backbone/encoder/layer.3/mlp/fc1/MatMul" for "encoder.layer.3.mlp.fc1.weight". The
table of positions was cut into that of CLS and that of the patches, and comes out of the two nodes that use those.
"""

import numpy as np

from jaxflow.errors import InputError

BACKBONE = "backbone."
EPS = 1e-6


def dinov2_tensors(data: bytes, *, layers: int) -> dict[str, np.ndarray]:
    """Tensors by the names that `transformers` gives a Dinov2Model, without its mask token.

    Args:
        data: an ONNX file whose graph has the backbone of a Dinov2 under "backbone".
        layers: how many blocks must be there.

    Raises:
        InputError: the extra `pretrained` is not installed; the file is of another make.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        raise InputError(
            "reading ONNX needs the package onnx", where="dinov2", fix="pip install 'jaxflow[pretrained]'"
        ) from None
    graph = onnx.load_from_string(data).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    named = {name.removeprefix(BACKBONE): x for name, x in stored.items() if name.startswith(BACKBONE)}
    weights, positions, eps = {}, {}, set()
    for node in graph.node:
        path = node.name.strip("/").split("/")
        if path[0] != BACKBONE.strip("."):
            continue
        anonymous = [stored[name] for name in node.input if name in stored and not name.startswith(BACKBONE)]
        if node.op_type == "MatMul" and anonymous:
            weights[".".join(path[1:-1]) + ".weight"] = np.ascontiguousarray(anonymous[0].T)
        elif path[1] == "embeddings" and anonymous:
            positions[node.op_type] = anonymous[0]
        elif node.op_type == "Constant" and path[-2].startswith(("norm", "layernorm")) and path[-1] == "Constant_1":
            eps.add(float(numpy_helper.to_array(node.attribute[0].t)))
    if (
        len(weights) != 6 * layers
        or set(positions) != {"Concat", "Reshape"}
        or {round(x / EPS, 6) for x in eps} != {1.0}
    ):
        raise InputError(
            "is of another make than the one that is known",
            where="dinov2",
            got=f"{len(weights)} matrices, positions at {sorted(positions)}, eps {sorted(eps)}",
            expected=f"{6 * layers} matrices, positions at ['Concat', 'Reshape'], eps {EPS}",
        )
    table = np.concatenate([positions["Concat"], positions["Reshape"]], axis=1)
    return named | weights | {"embeddings.position_embeddings": table}
