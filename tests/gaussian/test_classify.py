"""Verdicts: known layers of every regime, and random ones against simulation by another method."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.gaussian import Gaussian, blowup_time, classify, classify_many, ensemble
from jaxflow.solve import Status, Tsit5
from jaxflow.weights import make_layer

EYE = np.eye(2)
TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
SKEWED = np.array([[0.5, 1.0], [0.0, 0.3]])


def gaussian(L):
    return Gaussian(jnp.zeros(len(L)), jnp.asarray(L))


@pytest.mark.parametrize(
    ("matrices", "L", "regime", "mean", "evidence"),
    [
        ({"A": -EYE + TURN}, EYE, "decays", "settles", "theorem"),
        ({"A": SKEWED}, EYE, "grows", "undecided", "theorem"),
        ({"A": SKEWED, "B": EYE, "V": -EYE}, EYE, "settles", "settles", "theorem"),
        ({"A": SKEWED, "B": -EYE, "V": EYE}, EYE, "settles", "diverges", "theorem"),
        ({"A": SKEWED, "B": EYE, "V": EYE}, EYE, "blows_up", "undecided", "theorem"),
        ({"A": SKEWED - EYE, "B": EYE, "V": EYE}, 0.3 * EYE, "decays", "diverges", "theorem"),
        ({"A": SKEWED - EYE, "B": EYE, "V": EYE}, 2 * EYE, "blows_up", "undecided", "theorem"),
        ({"B": np.diag([1.0, 0.0]), "V": -EYE}, EYE, "settles", "settles", "theorem"),
        ({"B": EYE, "V": -np.diag([1.0, 2.0])}, SKEWED, "decays", "settles", "theorem"),
        ({"A": TURN, "B": EYE, "V": np.diag([1.0, 2.0])}, SKEWED, "blows_up", "undecided", "theorem"),
        ({"A": SKEWED, "B": EYE, "V": -np.diag([1.0, 2.0])}, SKEWED, "settles", "settles", "simulation"),
        ({"A": np.diag([0.3, -0.4]), "B": np.diag([0.0, 1.0]), "V": EYE}, 0.3 * EYE, "grows", "undecided", "theorem"),
    ],
)
def test_one_layer_of_every_kind(matrices, L, regime, mean, evidence):
    verdict = classify(make_layer(**matrices), gaussian(L))
    assert (verdict.regime, verdict.mean, verdict.evidence) == (regime, mean, evidence), verdict.reason
    assert verdict.reason
    assert np.isfinite(verdict.blowup_time) == (regime == "blows_up")
    if regime == "blows_up":
        found = blowup_time(make_layer(**matrices), gaussian(L))
        np.testing.assert_allclose(verdict.blowup_time, found.time, rtol=1e-7)


def test_what_turns_for_ever_is_undecided():
    verdict = classify(make_layer(A=TURN), gaussian(np.diag([1.0, 2.0])), horizon=50.0)
    assert verdict.regime == "undecided"
    assert "up to the horizon" in verdict.reason


def test_a_start_of_rank_one_is_judged_on_its_own_directions():
    """V > 0 > B hold a line of growth; the flow keeps its rank and settles on the line that grows fastest."""
    verdict = classify(make_layer(A=SKEWED, B=EYE, V=-EYE), gaussian(np.array([[1.0], [0.2]])))
    assert verdict.regime == "settles"
    assert np.linalg.matrix_rank(verdict.limit, tol=1e-8) == 1


def random_layers(kind, d, N, kept=None):
    """The first `kept` of N: a family of one size, of which a test judges as many as it has time for."""
    rng = np.random.default_rng([d, len(kind)])
    h = 2 if kind == "two heads" else 1
    A = 0.7 * rng.normal(size=(N, d, d)) - rng.uniform(-0.5, 1.5, size=(N, 1, 1)) * np.eye(d)
    B, V = 0.7 * rng.normal(size=(2, N, h, d, d))
    L = 0.6 * rng.normal(size=(N, d, 1 if kind == "two heads" else d))
    if kind == "V = vI":
        V = rng.normal(size=(N, 1, 1, 1)) * np.eye(d)
    if kind == "definite":
        M, sign = rng.normal(size=(2, N, 1, d, d)), np.sign(rng.normal(size=(2, N, 1, 1, 1)))
        V, B = sign * (M @ np.swapaxes(M, -1, -2) + 0.1 * np.eye(d))
    A, B, V, L = (x[:kept] for x in (A, B, V, L))
    return make_layer(A=A, B=B, V=V, lead=1), Gaussian(jnp.zeros((len(L), d)), jnp.asarray(L))


LATE, LATER = 60.0, 600.0
followed = eqx.filter_jit(ensemble)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(
    ("kind", "undecided"), [("V = vI", 0.02), ("definite", 0.04), ("two heads", 0.12), ("general", 0.2)]
)
def test_no_verdict_is_wrong(kind, undecided, d):
    """64 layers of each kind and dimension, 512 in all, against Tsit5 at another tolerance. LAYERS=256: all 2048."""
    layers, starts = random_layers(kind, d, 256, kept=int(os.environ.get("LAYERS", "64")))
    verdicts = classify_many(layers, starts)
    numerics = {"method": Tsit5(), "rtol": 1e-8, "atol": 1e-13, "max_steps": 4000}
    late = followed(layers, starts, t1=LATE, **numerics)
    later = followed(layers, late.final, t1=LATER, **numerics)
    blown = np.asarray(late.status == Status.blow_up)
    reached = np.asarray(late.status == Status.done)
    size = [np.trace(np.asarray(x.covariance), axis1=1, axis2=2) for x in (starts, late.final, later.final)]
    for i, verdict in enumerate(verdicts):
        note = (kind, d, i, verdict.reason, verdict.numbers)
        if verdict.regime == "blows_up":
            if verdict.blowup_time < LATE:
                assert blown[i], note
                np.testing.assert_allclose(late.t_end[i], verdict.blowup_time, rtol=1e-4, err_msg=str(note))
            continue
        if verdict.regime != "undecided":
            assert not blown[i], note
        if verdict.regime == "decays" and reached[i]:
            assert size[2][i] < 0.3 * size[1][i] or size[2][i] < 1e-9 * size[0][i], note
        if verdict.regime == "settles" and reached[i]:
            gap = np.abs(np.asarray(later.final.covariance[i]) - verdict.limit).max()
            assert gap < 1e-4 * np.abs(verdict.limit).max(), (*note, gap)
        if verdict.regime == "grows":
            assert size[1][i] > 30 * size[0][i], note
    share = np.mean([verdict.regime == "undecided" for verdict in verdicts])
    assert share <= undecided, share


def test_many_equal_one_by_one():
    layers, starts = random_layers("V = vI", 2, 6)
    together = classify_many(layers, starts)
    for i, verdict in enumerate(together):
        alone = classify(*jax.tree.map(lambda x, i=i: x[i], (layers, starts)))
        assert (alone.regime, alone.mean, alone.evidence) == (verdict.regime, verdict.mean, verdict.evidence)
        np.testing.assert_allclose(alone.blowup_time, verdict.blowup_time, rtol=1e-8)


def test_rotating_everything_changes_no_verdict():
    layers, starts = random_layers("definite", 3, 8)
    Q = oracles.rotation(3)

    def turned(X):
        return jnp.asarray(Q @ np.asarray(X) @ Q.T)

    rotated = make_layer(A=turned(layers.A), B=turned(layers.B), V=turned(layers.V), lead=1)
    before = classify_many(layers, starts)
    after = classify_many(rotated, Gaussian(starts.mean, jnp.asarray(Q @ np.asarray(starts.factor))))
    assert [x.regime for x in before] == [x.regime for x in after]
