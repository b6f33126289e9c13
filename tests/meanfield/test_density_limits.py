"""Theorems on curves of densities: ω-limits under weights that settle, perturbed weights, two starts."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles

from jaxflow.meanfield import Density, DensityFlow, balance
from jaxflow.solve import solve
from jaxflow.weights import Constant, Function, make_layer

# Near the identity, so that a density that descends spreads and stays resolved.
D, S = (jnp.asarray(b * np.eye(2) + oracles.symmetric(1, 2, scale=0.1, seed=seed)) for b, seed in ((1, 3), (0, 4)))
A = oracles.general(2, scale=0.8, seed=6)
START = Density.from_function(lambda x: jnp.exp(x @ A), dim=2, degree=16, normalize=True)


def test_omega_limits_are_stationary_if_the_weights_settle_and_need_not_be_if_they_do_not():
    """arXiv:2605.18870: ∫|Θ̇| < ∞ makes limits stationary for the last energy: I + e^{−t}S, but not I + S cos t."""

    def curve(settles):
        def layer(t):
            return make_layer(D=jnp.eye(2)[None] + jnp.where(settles, jnp.exp(-t), jnp.cos(t)) * S)

        flow = DensityFlow(Function(layer), direction="descend", norm=3.0)
        sol = solve(flow, START, t1=60.0, dt=0.05, save_every=60, observe=balance)
        still = flow.field(60.0, sol.final, Constant(D=jnp.eye(2)).layer)[0]
        return sol.observables.slope, sol.observables.energy, jnp.linalg.norm(still), sol.valid

    slope, energy, still, valid = jax.jit(jax.vmap(curve))(jnp.array([True, False]))
    assert bool(jnp.all(valid))
    assert float(slope[0, -1]) < 1e-6 * float(slope[0, 0])
    assert float(still[0]) < 1e-4
    # From t = 45 on the energy of the first is at rest, that of the second goes up and down with the weights.
    assert np.ptp(energy[0, 15:]) < 1e-5
    assert np.ptp(energy[1, 15:]) > 2e-4
    assert float(jnp.max(slope[1, 15:])) > 100 * float(slope[0, -1])


def test_perturbed_weights_move_energies_uniformly_and_flows_at_the_rate_of_the_perturbation():
    """|E^ε − E| ≤ ½e^R(e^{ε|S|} − 1) for every density; densities at t = 1 part like ε, under D + εS and (1 − ε)D."""
    eps = jnp.array([0.0, 0.025, 0.05, 0.1])

    def ends(e):
        def one(heads):
            flow = DensityFlow(Constant(D=heads), direction="descend", norm=3.0)
            sol = solve(flow, START, t1=1.0, dt=0.1, observe=balance)
            return sol.final.coefficients, sol.observables.energy[0]

        return one(D + e * S), one((1 - e) * D)

    R = float(jnp.max(jnp.abs(jnp.linalg.eigvalsh(D))))
    for (c, energy), size in zip(jax.jit(jax.vmap(ends))(eps), (S, D)):
        gap = np.linalg.norm(np.asarray(c[1:] - c[:1]), axis=1)
        slope = np.polyfit(np.log(eps[1:]), np.log(gap), 1)[0]
        assert abs(slope - 1) < 0.05, gap
        norm = float(jnp.max(jnp.abs(jnp.linalg.eigvalsh(size))))
        bound = 0.5 * np.exp(R) * np.expm1(np.asarray(eps) * norm)
        assert (np.abs(np.asarray(energy - energy[0])) <= bound + 1e-15).all()
        assert np.abs(np.asarray(energy - energy[0]))[1:].min() > 1e-5


def test_two_densities_part_no_faster_than_the_bound():
    """W₂ on S¹ by SciPy-free quantiles: the largest growth rate of W₂ against L = R² + 2R + e^{2R}(2R² + R)."""
    R = float(jnp.max(jnp.abs(jnp.linalg.eigvalsh(D))))
    L = R**2 + 2 * R + np.exp(2 * R) * (2 * R**2 + R)
    angles = np.linspace(0, 2 * np.pi, 4001)
    x = jnp.asarray(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    near = Density.from_function(lambda x: jnp.exp(x @ A) * (1 + 0.1 * x[:, 1]), dim=2, degree=16, normalize=True)

    def path(c):
        flow = DensityFlow(Constant(D=D), direction="ascend", norm=3.0)
        return solve(flow, Density(c, 2), t1=1.0, dt=0.05, save_every=4).states.coefficients

    c = jax.jit(jax.vmap(path))(jnp.stack([START.coefficients, near.coefficients]))
    rho = np.asarray(jax.jit(jax.vmap(jax.vmap(lambda c: Density(c, 2)(x))))(c))
    h = angles[1]
    F = np.concatenate([np.zeros((*rho.shape[:2], 1)), np.cumsum((rho[..., 1:] + rho[..., :-1]) * h / 2, -1)], -1)
    F /= F[..., -1:]
    u = (np.arange(2000) + 0.5) / 2000

    def circle(p, q):
        """The best cut of the circle: quantiles of one shifted against the other."""
        P = np.interp(u, p, angles)
        turns = [np.interp((u + s) % 1, q, angles) + 2 * np.pi * np.floor(u + s) for s in np.linspace(-0.1, 0.1, 401)]
        return np.sqrt(min(np.mean((P - Q) ** 2) for Q in turns))

    W = np.array([circle(p, q) for p, q in zip(*F)])
    growth = np.log(W[1:] / W[0]) / np.linspace(0, 1, len(W))[1:]
    assert W[0] > 0.02
    assert 0.05 < growth.max() < L, (growth, L)
