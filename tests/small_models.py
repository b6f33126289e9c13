"""A small BERT or ModernBERT with random weights as a Hugging Face folder, written without transformers."""

import json

import numpy as np
from safetensors.numpy import save_file


def write_bert(folder, *, d=6, layers=3, heads=2, inner=10, words=40, kind="bert", seed=0):
    """Weights of size 0.3 and norms near 1: attention of moderate strength."""
    rng = np.random.default_rng(seed)

    def random(*shape):
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": random(words, d),
        "embeddings.position_embeddings.weight": random(16, d),
        "embeddings.token_type_embeddings.weight": random(2, d),
    }

    def linear(name, out, size):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = random(out, size), random(out)

    def norm(name):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + random(d), random(d)

    norm("embeddings.LayerNorm")
    for i in range(layers):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{at}.attention.{name}", d, d)
        linear(f"{at}.intermediate.dense", inner, d)
        linear(f"{at}.output.dense", d, inner)
        norm(f"{at}.attention.output.LayerNorm")
        norm(f"{at}.output.LayerNorm")
    config = {
        "model_type": kind,
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": words,
        "max_position_embeddings": 16,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_modernbert(folder, *, d=6, layers=2, inner=5, words=40, seed=0):
    """Local and global attention, with the names of a task model."""
    rng = np.random.default_rng(seed)

    def random(*shape):
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    tensors = {"model.embeddings.tok_embeddings.weight": random(words, d), "decoder.bias": random(words)}
    norms = ["embeddings.norm", "final_norm"]
    for i in range(layers):
        at = f"layers.{i}"
        norms += [f"{at}.mlp_norm", *([f"{at}.attn_norm"] if i else [])]
        tensors[f"model.{at}.attn.Wqkv.weight"], tensors[f"model.{at}.attn.Wo.weight"] = random(3 * d, d), random(d, d)
        tensors[f"model.{at}.mlp.Wi.weight"], tensors[f"model.{at}.mlp.Wo.weight"] = (
            random(2 * inner, d),
            random(d, inner),
        )
    tensors |= {f"model.{name}.weight": 1 + random(d) for name in norms}
    config = {"model_type": "modernbert", "hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": 1}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": inner, "vocab_size": words}))
    save_file(tensors, folder / "model.safetensors")
    return folder
