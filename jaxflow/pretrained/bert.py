"""BERT, and what has its architecture (MiniLM): post-norm blocks, learned positions."""

from jaxflow.pretrained.attention import SelfAttention
from jaxflow.pretrained.block import Block
from jaxflow.pretrained.config import Config
from jaxflow.pretrained.embeddings import WordEmbedding
from jaxflow.pretrained.encoder import Encoder
from jaxflow.pretrained.parts import MLP
from jaxflow.pretrained.tensors import Tensors

PREFIXES = ("bert.",)
IGNORED = ("pooler.", "cls.", "classifier.", "qa_outputs.", "embeddings.position_ids")


def build(config: Config, tensors: Tensors) -> Encoder:
    """The encoder that `config` describes."""
    config.only("position_embedding_type", "absolute")
    config.only("is_decoder", False)
    d, inner, eps = (
        config.whole("hidden_size"),
        config.whole("intermediate_size"),
        config.number("layer_norm_eps", 1e-12),
    )
    heads, act, longest = config.heads(d), config.activation("hidden_act"), config.whole("max_position_embeddings", 512)
    embedding = WordEmbedding(
        tensors.take("embeddings.word_embeddings.weight", config.whole("vocab_size"), d),
        tensors.take("embeddings.position_embeddings.weight", longest, d),
        tensors.take("embeddings.token_type_embeddings.weight", config.whole("type_vocab_size", 2), d),
        tensors.norm("embeddings.LayerNorm", d, eps),
        longest,
    )

    def block(i: int) -> Block:
        at = f"encoder.layer.{i}"
        Q, K, V = (tensors.linear(f"{at}.attention.self.{name}", d, d) for name in ("query", "key", "value"))
        return Block(
            SelfAttention(Q, K, V, tensors.linear(f"{at}.attention.output.dense", d, d), heads),
            MLP(
                tensors.linear(f"{at}.intermediate.dense", inner, d),
                tensors.linear(f"{at}.output.dense", d, inner),
                act,
            ),
            tensors.norm(f"{at}.attention.output.LayerNorm", d, eps),
            tensors.norm(f"{at}.output.LayerNorm", d, eps),
            post=True,
        )

    return Encoder(embedding, tuple(block(i) for i in range(config.whole("num_hidden_layers"))), None, "bert")
