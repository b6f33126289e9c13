"""Which Gaussian enters the first block? One with the mean and covariance of the model's own first hidden states, or
a round one of the same size."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow.linalg import sqrtm, symmetrize
from jaxflow.measures import Gaussian
from jaxflow.pretrained.embeddings import PatchEmbedding, WordEmbedding
from jaxflow.pretrained.encoder import Encoder

ROWS = 4096
"""So many rows of a table of words are embedded at a time."""


def own_gaussian(encoder: Encoder) -> Gaussian:
    """The mean and covariance of what the model's embedding lets into the first block.

    words: over the whole table, each word at one position, the positions in turn (after the embedding's norm).
    patches: for images of white noise, whose patches are N(b, W Wᵀ) exactly, plus the table of positions:
    μ = b + mean P, Σ = W Wᵀ + cov P.
    """
    embedding = encoder.embedding
    mean, covariance = _words(embedding) if isinstance(embedding, WordEmbedding) else _patches(embedding)
    return Gaussian(mean, sqrtm(covariance))


def round_gaussian(encoder: Encoder, *, deviation: float | None = None) -> Gaussian:
    """N(0, σ² I). σ: `deviation`, or that of the model's own first hidden states, σ² = tr Σ/d."""
    d = encoder.dim
    if deviation is None:
        factor = own_gaussian(encoder).factor
        sigma = jnp.sqrt(jnp.sum(factor**2) / d)
    else:
        sigma = jnp.asarray(deviation, encoder.dtype)
    return Gaussian(jnp.zeros(d, encoder.dtype), sigma * jnp.eye(d, dtype=encoder.dtype))


def _words(embedding: WordEmbedding) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    table = embedding.table
    if embedding.positions is not None:
        at = jnp.arange(table.shape[0]) % embedding.positions.shape[0]
        table = table + embedding.positions[at]
    if embedding.segments is not None:
        table = table + embedding.segments[:1]
    x = embedding.norm(table)
    mean = jnp.mean(x, axis=0)
    centred = x - mean[None]
    return mean, symmetrize(centred.T @ centred / x.shape[0])


def _patches(embedding: PatchEmbedding) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    W = embedding.kernel.reshape(embedding.kernel.shape[0], -1)
    P = embedding.positions[embedding.extra.shape[0] :]
    mean = jnp.mean(P, axis=0)
    centred = P - mean[None]
    return embedding.bias + mean, symmetrize(W @ W.T + centred.T @ centred / P.shape[0])
