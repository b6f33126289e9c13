"""The public names, all of them: adding or removing one is a decision, and shows here."""

import subprocess
import sys

import pytest

import jaxflow as jf

TOP = {
    "Cloud", "Dopri8", "Euclidean", "Euler", "Gaussian", "Heun", "InputError", "JaxflowError", "Kvaerno5",
    "NumericalError", "Observe", "RK4", "Solution", "Sphere", "Status", "Tsit5", "UnreachableError", "solve",
}  # fmt: skip

ROOMS = {
    "attention": {
        "AbstractKernel", "AbstractPairing", "Affine", "Auto", "Chunked", "Coupling", "Dense", "Harmonic", "L2",
        "Pallas", "Sinkhorn", "Softmax", "Tilted", "hardmax",
    },
    "control": {
        "AbstractCurve", "Cheapest", "Lines", "ManyPlan", "Network", "Plan", "Problem", "Search", "Steps",
        "Stop", "ThroughPlan", "TokenPlan", "TokenProblem", "TokenSearch", "Waves", "advance", "advance_tokens",
        "attention_only", "begin", "begin_tokens", "cheapest", "check_bounds", "check_reachable",
        "check_tokens_reachable", "constant_linear", "constructive_controls", "curve_of", "effort", "geodesic",
        "kinetic", "kinetic_energy", "kl_divergence", "make_plan", "make_token_plan", "moment_residual",
        "name_of", "smoothness", "steer", "steer_many", "steer_through", "steer_tokens", "track",
        "two_piece_linear", "why",
    },
    "errors": {"InputError", "JaxflowError", "NumericalError", "UnreachableError"},
    "gaussian": {
        "BlowUp", "ClosureFlow", "Ensemble", "Equilibrium", "Gaussian", "MomentFlow", "MomentReport", "PHASES",
        "Riccati", "TunedMean", "Verdict", "bernoulli", "blowup_bounds", "blowup_threshold", "blowup_time",
        "classify", "classify_many", "commuting", "covariance_spectrum", "ensemble", "equilibrium",
        "held_covariance", "is_hurwitz", "kappa_eff", "linear", "mean_converges", "mean_spectrum",
        "mixture_attention", "moments", "negative_part", "newton_covariance", "phase_of", "propagator",
        "relu_bound", "relu_bound_slope", "relu_true_slope", "riccati", "riccati_blowup_time",
        "scalar_blowup_time", "scalar_variance", "tune_mean",
    },
    "geometry": {"AbstractGeometry", "Euclidean", "Sphere"},
    "linalg": {
        "bures_gap", "bures_squared", "factor_of", "matrix_sign", "polar", "safe_norm", "solve_lyapunov",
        "solve_stable_lyapunov", "sqrtm", "symmetrize",
    },
    "meanfield": {
        "Density", "DensityBalance", "DensityFlow", "InfiniteDensityFlow", "balance", "cloud_distance", "coefficients",
        "energy", "fastest_mode", "fluctuations", "growth_rates", "least", "sampling_distance",
    },
    "measures": {"Cloud", "Gaussian", "gauss_hermite", "sample"},
    "particles": {
        "AbstractLimit", "AttentionFlow", "Balance", "Cloud", "InfiniteHeads", "LimitBalance", "OrnsteinUhlenbeckLimit",
        "PairingFlow", "balance", "count_clusters", "cross_polytope", "dissipation", "energy", "energy_gap_bound",
        "equiangular", "equispaced", "gauss_hermite", "head_speed", "limit_balance", "limit_of", "lipschitz_bound",
        "mobility", "octahedral", "order_parameter", "perturbation_bound", "sample", "spreading_rate", "stationarity",
        "uniform", "uniform_energy", "von_mises_fisher",
    },
    "pretrained": {
        "Block", "Departures", "EffectiveLayer", "Encoder", "LayerReport", "SelfAttention", "departures",
        "PrescribedAttention", "effective_layer", "load", "measure_layer", "prescribe",
        "own_gaussian", "p_values", "round_gaussian",
    },
    "runtime": {"Finding", "compiled_gap", "configure", "doctor"},
    "scenarios": {"Check", "Result", "checks"},
    "transport": {
        "Ended", "MinimisingMovement", "WeightedDistance", "energy_distance", "jko", "name_of", "sinkhorn_divergence",
        "sliced_wasserstein", "sliced_wasserstein_squared", "wasserstein_clouds", "wasserstein_gaussian",
        "wasserstein_path", "wasserstein_squared", "weighted_distance",
    },
    "weights": {
        "AbstractRandom", "AbstractSchedule", "Constant", "Diffusion", "Fourier", "Function", "Layer",
        "OrnsteinUhlenbeck", "Oscillating", "Perturbed", "Piecewise", "Relaxing", "Sampled", "Values", "largest_norm",
        "make_layer", "make_values", "random_heads",
    },
}  # fmt: skip


def test_the_top_level_names_are_these():
    assert set(jf.__all__) == TOP | set(ROOMS) | {"viz"}
    assert all(getattr(jf, name) is not None for name in jf.__all__)
    assert set(dir(jf)) == {*jf.__all__, "__version__"}


def test_every_room_offers_these_names():
    for room, names in ROOMS.items():
        missing = [name for name in names if not hasattr(getattr(jf, room), name)]
        assert not missing, (room, missing)


def test_public_names_have_docstrings():
    for room, names in ROOMS.items():
        for name in names:
            value = getattr(getattr(jf, room), name)
            assert value.__doc__, (room, name)


def test_importing_jaxflow_loads_no_jax_and_sets_nothing():
    code = "import sys, jaxflow; assert not {'jax', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_solve_stays_the_function_after_its_package_is_imported():
    import jaxflow.solve  # noqa: F401

    assert callable(jf.solve)
    assert jf.solve.__name__ == "solve"


def test_an_unknown_name_is_an_attribute_error_that_lists_the_names():
    with pytest.raises(AttributeError, match="solve"):
        jf.sovle  # noqa: B018
