"""Figures: the right ones for each kind, with labels, without warnings, and nothing drawn after a blow-up."""

import io
from itertools import pairwise
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageSequence

from jaxflow import viz
from jaxflow.viz.animate import between
from jaxflow.viz.controls import distances
from jaxflow.viz.ellipses import ellipse, evenly
from jaxflow.viz.globe import view
from jaxflow.viz.plane import cloud_plane, path_plane
from jaxflow.viz.powers import plot_power
from jaxflow.viz.snapshots import moments_shown
from jaxflow.viz.style import label_ends, new_figure, spread
from jaxflow.viz.sweep import plot_exponent

RNG = np.random.default_rng(0)
INTEGRALS = ("rate_integral", "slope_integral", "dt_energy_integral", "martingale")
BALANCE = ("energy", "rate", "slope", *INTEGRALS, "residual", "slope_residual")


def config(geometry: str = "sphere") -> SimpleNamespace:
    return SimpleNamespace(
        flow=SimpleNamespace(geometry=geometry), solve=SimpleNamespace(t1=1.0), tolerance=1e-3,
        control=SimpleNamespace(limits={"A": 2.0}),
    )  # fmt: skip


def covariances(t: int, d: int) -> np.ndarray:
    L = np.eye(d) + 0.1 * np.cumsum(RNG.standard_normal((t, d, d)), axis=0)
    return L @ np.swapaxes(L, 1, 2)


def particles(*, d: int, n: int = 30, t: int = 12, paths: int = 1, balance: bool = True) -> dict:
    points = RNG.standard_normal((n, d)) + np.cumsum(0.1 * RNG.standard_normal((t, n, d)), axis=0)
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    arrays = {"ts": np.linspace(0, 20, t), "points": points, "final_points": np.stack([points[-1]] * paths)}
    if balance:
        arrays |= {name: np.cumsum(RNG.standard_normal((paths, t)), axis=1) for name in BALANCE}
        arrays["slope"] = np.abs(arrays["slope"])
    return arrays


def moments(*, d: int, t: int = 20, valid: int | None = None) -> dict:
    covariance = covariances(t, d)
    last = valid or t
    covariance[last:] = covariance[last - 1]
    eigenvalues = np.linalg.eigvalsh(covariance)
    arrays = {"ts": np.linspace(0, 2, t), "valid": np.arange(t) < last}
    arrays |= {"mean": np.cumsum(RNG.standard_normal((t, d)), axis=0), "covariance": covariance}
    return arrays | {"eigenvalues": eigenvalues, "kappa": eigenvalues[:, -1].copy()}


def steer(*, d: int, t: int = 21, k: int = 4, history: int = 10, tokens: bool = True, samples: bool = False) -> dict:
    ts = np.linspace(0, 1, t)
    mean, covariance = np.linspace(0, 2, t)[:, None] * np.ones(d), covariances(t, d)
    arrays = {"ts": ts, "mean": mean, "covariance": covariance, "edges": np.linspace(0, 1, k + 1)}
    arrays |= {"target_mean": mean[-1], "target_covariance": covariance[-1]}
    arrays |= {"controls.A": RNG.standard_normal((k, d, d)), "controls.b": RNG.standard_normal((k, d))}
    arrays["history"] = 10.0 ** -np.arange(history)[:, None] * np.ones(2)
    if history > 2:
        arrays["history"][1] = np.inf
        arrays["history"][-1, 1] = 0
    if tokens:
        arrays |= {
            "tokens_ts": ts[::5],
            "tokens": mean[::5, None] + RNG.standard_normal((len(ts[::5]), 80, d)),
        }
    if samples:
        arrays["target_samples"] = mean[-1] + RNG.standard_normal((15, d))
    return arrays


def check(drawn: dict, names: set[str]) -> None:
    """These figures, which can be drawn, with something on every axes that says what they show."""
    assert set(drawn) == names
    for figure in drawn.values():
        figure.draw_without_rendering()
        for ax in figure.axes:
            titles = [ax.get_title(loc) for loc in ("left", "center", "right")]
            assert any([*titles, ax.get_xlabel(), ax.get_ylabel()]), ax


@pytest.mark.parametrize(
    ("d", "geometry"), [(1, "euclidean"), (2, "sphere"), (3, "sphere"), (2, "euclidean"), (5, "sphere")]
)
def test_particles(d, geometry):
    check(viz.figures("particles", particles(d=d, balance=False), {}, config(geometry)), {"snapshots"})


@pytest.mark.parametrize(("paths", "t"), [(1, 12), (3, 2)])
def test_particles_with_a_balance(paths, t):
    check(
        viz.figures("particles", particles(d=3, paths=paths, t=t), {}, config()),
        {"snapshots", "dissipation", "balance"},
    )


def test_of_very_many_tokens_some_are_drawn_and_the_figure_says_so():
    figure = viz.figures("particles", particles(d=5, n=6000, t=3, balance=False), {}, config())["snapshots"]
    drawn = [len(ax.collections[0].get_offsets()) for ax in figure.axes if ax.collections]
    assert set(drawn) == {5000}
    assert figure.get_supxlabel().startswith("5000 of 6000 tokens")


def test_a_rate_that_is_never_positive_can_be_drawn():
    arrays = particles(d=2, paths=2)
    arrays["rate"] = -np.abs(arrays["rate"])
    check(viz.figures("particles", arrays, {}, config()), {"snapshots", "dissipation", "balance"})


@pytest.mark.parametrize(("d", "t"), [(1, 20), (2, 2), (4, 20)])
def test_moments(d, t):
    check(viz.figures("moments", moments(d=d, t=t), {"blowup_time": None}, config()), {"moments"})


@pytest.mark.parametrize("names", [["n400", "n4000", "nodes24"], ["nodes8"], ["n10"]])
@pytest.mark.parametrize("kappa", [[0.5], [0.1, 1.0, 2.5]])
def test_closure(names, kappa):
    arrays = {"kappa": np.array(kappa)}
    for name in names:
        shape = (len(kappa), 1 if name.startswith("nodes") else 3)
        arrays |= {f"gain_{name}": RNG.uniform(0.4, 1.1, shape), f"w2_{name}": 10.0 ** RNG.uniform(-16, 0, shape)}
    arrays[f"w2_{names[-1]}"][-1] = np.nan
    check(viz.figures("closure", arrays, {}, config()), {"closure"})


@pytest.mark.parametrize(("cases", "depth"), [(1, 1), (3, 40)])
def test_blocks(cases, depth):
    arrays = {"depth": np.arange(depth + 1)}
    for way in ("tokens", "blocks", "ode"):
        covariance = np.stack([covariances(depth + 1, 2) for _ in range(cases)])
        arrays |= {f"{way}_covariance": covariance, f"{way}_kappa": np.trace(covariance, axis1=2, axis2=3)}
        arrays[f"{way}_valid"] = np.arange(depth + 1) < np.full((cases, 1), max(1, depth // 2))
    arrays["blowup_depth"] = np.append(np.full(cases - 1, np.nan), 0.5 * depth)
    summary = {"cases": [f"case {i}" for i in range(cases)]}
    check(viz.figures("blocks", arrays, summary, config()), {"blocks"})


@pytest.mark.parametrize(("blocks", "effective"), [(1, True), (6, True), (4, False)])
def test_pretrained(blocks, effective):
    arrays = {"eigenvalues": np.sort(RNG.uniform(0, 1, (blocks + 1, 5)), axis=1)[:, ::-1]}
    for name in ("sliced", "marginals", "kurtosis"):
        arrays |= {
            f"measured_{name}": RNG.uniform(size=(blocks + 1, 3)),
            f"null_{name}": RNG.uniform(size=(blocks + 1, 19)),
        }
    if effective:
        arrays |= {"kappa": RNG.uniform(size=(blocks, 2)), "tilt": RNG.uniform(0, 9, (blocks, 2))}
        arrays["predicted_eigenvalues"] = RNG.uniform(size=(blocks, 5))
    sizes = SimpleNamespace(measure=SimpleNamespace(tokens=64))
    drawn = viz.figures("pretrained", arrays, {}, sizes)
    check(drawn, {"pretrained"})
    assert len(drawn["pretrained"].axes) == (6 if effective else 4)


@pytest.mark.parametrize(("verdicts", "threshold"), [([0, 3], 0.3), ([1, 2, 3, 4], 0.0), ([3], 0.0), ([0], 9.0)])
def test_phase(verdicts, threshold):
    verdict = RNG.choice(verdicts, (7, 7))
    arrays = {"v": np.linspace(-2, 2, 7), "b": np.linspace(-1, 1, 7), "verdict": verdict}
    arrays |= {
        "blowup_time": RNG.uniform(0.1, 9, (7, 7)),
        "expected_mean": verdict == 0,
        "threshold": np.array(threshold),
    }
    check(viz.figures("phase", arrays, {"disagree": 0, "disagree_in_band": 2}, config()), {"phase"})


def test_the_analytic_boundary_is_a_hyperbola_or_the_axes():
    v, b = np.linspace(-2, 2, 5), np.linspace(-1, 3, 5)
    lines = [line.get_xydata() for line in viz.plot_boundary(v, b, threshold=0.4).lines]
    assert len(lines) == 2
    for line in lines:
        np.testing.assert_allclose(line.prod(1), 0.4, rtol=1e-12)
        assert np.all((line >= [-2 - 1e-9, -1 - 1e-9]) & (line <= [2 + 1e-9, 3 + 1e-9]))
    assert all(np.all(line.get_xydata().prod(1) == 0) for line in viz.plot_boundary(v, b, threshold=0.0).lines)


def test_names_of_ellipses_stay_outside_where_the_mean_sinks():
    mean, covariance = np.array([[0.0, 0.0], [1.0, -3.0]]), np.stack([np.eye(2), 0.5 * np.eye(2)])
    for sign, lower in ((1, "$t = 1$"), (-1, "$t = 0$")):
        ax = viz.plot_moments(np.array([0.0, 1.0]), sign * mean, covariance)
        assert min(ax.texts, key=lambda text: text.xy[1]).get_text() == lower


@pytest.mark.parametrize("valid", [1, 9])
def test_nothing_is_drawn_after_a_blow_up(valid):
    arrays = moments(d=2, valid=valid)
    end = arrays["ts"][valid - 1] + 0.05
    # Had it been drawn, this would show.
    arrays["covariance"][valid:] = 1e8 * np.eye(2)
    arrays["eigenvalues"][valid:] = arrays["kappa"][valid:, None] = 1e8
    drawn = viz.figures("moments", arrays, {"blowup_time": float(end)}, config())
    check(drawn, {"moments"})
    plane, *panels = drawn["moments"].axes
    assert max(np.abs([*plane.get_xlim(), *plane.get_ylim()])) < 1e3
    for ax in panels:
        assert ax.get_ylim()[1] < 1e7
        # The dashed line at the blow-up itself has two points.
        curves = [np.array(line.get_data()) for line in ax.lines if len(line.get_xdata()) == valid]
        assert len(curves) >= 1
        assert all(curve[0].max() < end and curve[1].max() < 1e7 for curve in curves)


@pytest.mark.parametrize("d", [1, 2, 16])
def test_steer(d):
    check(viz.figures("steer", steer(d=d, samples=d < 4), {"w2": 3e-4, "iterations": 9}, config()), {"steering"})


@pytest.mark.parametrize("options", [{"history": 0}, {"t": 2, "tokens": False}, {"k": 1, "history": 1}, {"history": 2}])
def test_steer_at_the_edges(options):
    summary = {"w2": 0.0, "iterations": 0}
    check(viz.figures("steer", steer(d=2, **options), summary, config()), {"steering"})


@pytest.mark.parametrize(
    ("d", "geometry"), [(3, "sphere"), (2, "sphere"), (1, "euclidean"), (2, "euclidean"), (5, "sphere")]
)
@pytest.mark.parametrize("pairs", [1, 6])
def test_steer_tokens(d, geometry, pairs):
    arrays = {
        "ts": np.linspace(0, 1, 12),
        "edges": np.linspace(0, 1, 4),
        "controls.V": RNG.standard_normal((3, 2, d, d)),
    }
    arrays["history"] = np.stack([[np.inf, np.inf], [1.0, 0.5], [0.1, 0.2]])
    for p in range(1, pairs + 1):
        moving = particles(d=d, balance=False)["points"] if geometry == "sphere" else RNG.standard_normal((12, 500, d))
        arrays |= {f"tokens_{p}": moving, f"target_{p}": moving[-1, :20]}
    settings = config(geometry)
    settings.control = SimpleNamespace(loss="energy")
    for summary in ({"w2": 0.12, "w2_start": 1.8}, {"w2": None, "w2_start": None}):
        figure = viz.figures("steer_tokens", arrays, summary, settings)["token_steering"]
        assert ("from 1.8 to 0.12" in figure.axes[0].get_title("left")) == bool(summary["w2"])
        check({"token_steering": figure}, {"token_steering"})


def test_smooth_controls_are_lines_at_their_own_times_and_bounds_are_dashed():
    arrays = steer(d=2)
    times = np.linspace(0, 1, 50)
    arrays |= {"controls_ts": times, "controls.A": times[:, None, None] * np.eye(2), "controls.b": np.ones((50, 2))}
    panel = viz.plot_controls(times, {"A": arrays["controls.A"]}, bounds={"A": 3.0})
    curve, bound = panel.lines
    np.testing.assert_allclose(np.array(curve.get_data()), [times, np.sqrt(2) * times], atol=1e-15)
    assert bound.get_ydata()[0] == 3.0
    check(viz.figures("steer", arrays, {"w2": 0.1, "stop": "bounds"}, config()), {"steering"})
    assert viz.plot_controls(np.arange(5.0), {"A": np.ones((4, 2, 2))}).patches


@pytest.mark.parametrize("options", [{"d": 2, "samples": True}, {"d": 5}, {"d": 2, "tokens": False}])
def test_the_film_moves_from_the_start_to_the_end_and_rests_there(options, tmp_path):
    arrays = steer(**options)
    names = ("target_mean", "target_covariance", "tokens", "tokens_ts", "target_samples")
    film = viz.animate_steering(
        *(arrays[name] for name in ("ts", "mean", "covariance")), **{name: arrays.get(name) for name in names},
        frames=4, rest=2,
    )  # fmt: skip
    film.save(tmp_path / "a.gif", writer="pillow")
    with Image.open(tmp_path / "a.gif") as gif:
        # Equal pictures become one that stays longer.
        pictures = [np.asarray(picture.convert("L"), float) for picture in ImageSequence.Iterator(gif)]
    assert len(pictures) == 4
    assert all(np.abs(x - y).mean() > 0.1 for x, y in pairwise(pictures))


def test_between_two_times_everything_moves_on_a_straight_line():
    ts, values = np.array([0.0, 1.0, 3.0]), np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 5.0]])
    np.testing.assert_allclose(between(ts, values, np.array([0.0, 0.5, 2.0, 3.0])), [[0, 1], [1, 1], [2, 3], [2, 5]])


def test_only_steering_in_the_plane_or_above_has_a_film():
    # The line has its own picture, against time.
    assert viz.animations("steer", steer(d=1)) == {}
    assert viz.animations("moments", moments(d=2)) == {}


def test_the_title_tells_the_result():
    figure = viz.figures("steer", steer(d=2), {"w2": 3.14e-4, "iterations": 57}, config())["steering"]
    assert figure.axes[0].get_title("left") == r"Steered to $W_2 = 3.1\times 10^{-4}$ in 57 iterations"


def density(*, dim: int, t: int = 5, clouds: bool = True, balance: bool = True) -> dict:
    K = 9 if dim == 2 else 16
    c = 0.02 * RNG.standard_normal((t, K))
    c[:, 0] = 1 / np.sqrt(2 * np.pi * (dim - 1))
    arrays = {"ts": np.linspace(0, 2, t), "coefficients": c, "dim": np.array(dim)}
    arrays |= {"least": np.linspace(0.05, -0.01, t), "largest": np.linspace(0.1, 0.4, t), "power": np.ones((t, 5)) ** 2}
    if clouds:
        n = np.array([100, 1000])
        arrays |= {"clouds": n, "distances": n[:, None] ** -0.5 * [0.9, 1.1], "sampling": n**-0.5}
    if balance:
        arrays |= {name: np.abs(RNG.standard_normal((1, t))) for name in BALANCE}
    return arrays


@pytest.mark.parametrize("dim", [2, 3])
def test_densities_have_a_picture_of_themselves_their_resolution_and_their_clouds(dim):
    summary = {"exponent": -0.5, "exponent_std": 0.01}
    drawn = viz.figures("meanfield", density(dim=dim), summary, config())
    check(drawn, {"densities", "resolution", "clouds", "dissipation", "balance"})
    assert "-0.500" in drawn["clouds"].axes[0].get_title("left")
    few = viz.figures("meanfield", density(dim=dim, t=1, clouds=False, balance=False), {}, config())
    check(few, {"densities", "resolution"})


def test_the_globe_shows_the_density_where_it_is():
    """ρ = (1 + ½⟨c, x⟩)/4π, c the direction of the eye: brightest in the middle of the disc; outside nothing."""
    c, eye = np.zeros(4), np.linalg.solve(view(np.eye(3)).T, [0.0, 0.0, 1.0])
    c[0] = 1 / np.sqrt(4 * np.pi)
    c[[3, 1, 2]] = 0.5 * eye / np.sqrt(12 * np.pi)
    image = np.asarray(viz.plot_density_globe(c).images[-1].get_array().filled(np.nan))
    middle = image.shape[0] // 2
    np.testing.assert_allclose(image[middle, middle], 1.5 / (4 * np.pi), rtol=1e-3)
    np.testing.assert_allclose(np.nanmin(image), 1 / (4 * np.pi), rtol=0.05)
    assert np.isnan(image[0, 0])


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("split", [1, 4])
def test_transport(d, split):
    path = particles(d=d, n=2 * split, t=9, balance=False)["points"]
    arrays = {"ts": np.linspace(0, 1, 9), "path": path, "mass": np.repeat([0.7, 0.3], split) / split}
    levels = [9.0, 8.5, 8.4][: split.bit_length()]
    summary = {"weighted": 2.9, "weighted_error": 0.01 * (split > 1), "w2": 2.0, "sliced_w2": 1.0, "lower": 1.0}
    drawn = viz.figures("transport", arrays, {**summary, "upper": 4.0, "actions": [*levels, 8.39]}, config())
    check(drawn, {"transport"})
    picture, refinement, _ = drawn["transport"].axes
    assert len(picture.collections) >= 2 * split
    label = refinement.get_legend_handles_labels()[1]
    assert label == (["2.90 ± 0.01"] if split > 1 else ["2.9"])


def test_a_path_on_the_circle_is_unwound_and_one_on_the_sphere_hides_behind_the_ball():
    angle = np.linspace(0, 1.5 * np.pi, 20)
    ts, circle = np.linspace(0, 1, 20), np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
    ax = viz.plot_paths(ts, circle, np.ones(1))
    assert ax.collections[0].get_segments()[-1][-1] == pytest.approx((1.0, 1.5 * np.pi))
    sphere = np.concatenate([circle, np.zeros((20, 1, 1))], axis=2)
    shades = viz.plot_paths(ts, sphere, np.ones(1)).collections[0].get_colors()[:, 3]
    assert set(np.round(shades, 6)) == {0.3, 0.9}


@pytest.mark.parametrize("sharp", [True, False])
def test_stability(sharp):
    ts = np.linspace(0, 2, 8)
    w2 = np.array([0.01, 0.01, 0.1])[:, None] * np.exp(0.3 * ts)
    rates = np.diff(np.log(w2), axis=1) / np.diff(ts)
    rates[0, -1] = np.nan
    arrays = {"ts": ts, "w2": w2, "rates": rates, "size": np.array([0.01, 0.01, 0.1])}
    if sharp:
        arrays["sharp"] = np.full(8, 0.5)
    for bound in (1.5, 900.0):
        drawn = viz.figures("stability", arrays, {"bound": bound}, config())
        check(drawn, {"stability"})
        # The bound leaves the picture where it is far above all clouds.
        assert drawn["stability"].axes[0].get_ylim()[1] < 100


@pytest.mark.parametrize("minimum", [True, False])
def test_perturbation(minimum):
    eps = np.array([0.01, 0.1, 0.5])
    arrays, summary = {"eps": eps}, {}
    for family in ("shift", "decay"):
        for name in ("w2", "energy_gap", *(("minimum_gap", "minimum_w2") if minimum else ())):
            arrays[f"{family}_{name}"] = 2 * eps
            summary |= {f"{family}_{name}_slope": 1.0, f"{family}_{name}_slope_std": 1e-3}
        arrays |= {f"{family}_w2_bound": 1e9 * eps, f"{family}_energy_gap_bound": 9 * eps}
    # A minimiser that does not move has no power.
    arrays["decay_w2"], summary["decay_w2_slope"] = np.zeros(3), None
    if minimum:
        arrays["minimiser"] = np.ones((7, 1, 2))
    drawn = viz.figures("perturbation", arrays, summary, config())
    check(drawn, {"perturbation"})
    assert len(drawn["perturbation"].axes) == (4 if minimum else 2)
    words = [text.get_text() for text in drawn["perturbation"].axes[1].get_legend().get_texts()]
    assert all("1.000 ± 0.001" in word for word in words)


@pytest.mark.parametrize("cases", [1, 7])
def test_limits(cases):
    ts, fine = np.linspace(0, 3, 9), np.linspace(0, 3, 50)
    falling = np.exp(-9 * ts) * np.ones((cases, 1))
    arrays = {"ts": ts, "speed_ts": fine, "speed": np.ones((cases, 50)), "limit_upper": 0 * falling}
    arrays |= dict.fromkeys(("energy", "slope", "rate", "limit_energy"), falling)
    drawn = viz.figures("limits", arrays, {"cases": [f"case {i}" for i in range(cases)]}, config())
    check(drawn, {"limits"})
    legend = drawn["limits"].axes[0].get_legend().get_texts()
    assert len(legend) == cases
    assert legend[0].get_text().endswith("$3")


def test_jko():
    arrays, summary = {"ts": np.linspace(0, 1, 9), "energy": np.linspace(1, 0, 9), "tau": np.array([0.5, 0.2])}, {}
    for tau in (0.2, 0.5):
        times = np.linspace(0, 1, round(1 / tau) + 1)
        arrays |= {f"ts_{tau:g}": times, f"energy_{tau:g}": 1 - times}
    for name in ("error", "energy_error", "deficit"):
        arrays[name] = arrays["tau"] ** 2
        summary |= {f"{name}_slope": 2.0, f"{name}_slope_std": 0.01}
    drawn = viz.figures("jko", arrays, summary, config())
    check(drawn, {"jko"})
    assert "2.000 ± 0.01" in drawn["jko"].axes[1].get_legend().get_texts()[0].get_text()


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="nothing"):
        viz.figures("nothing", {}, {}, config())


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(mpl.rcParams)
    viz.figures("moments", moments(d=2), {}, config())["moments"].savefig(io.BytesIO(), format="pdf")
    assert dict(mpl.rcParams) == before


def test_plots_draw_on_the_axes_given_or_on_their_own():
    ax = new_figure(3.0).add_subplot()
    assert viz.plot_globe(np.eye(3), ax=ax) is ax
    assert viz.plot_energy(np.arange(3.0), np.ones((2, 3))) is not ax


def test_the_ellipse_of_s_deviations():
    mean, covariance = np.array([1.0, -2.0]), np.array([[2.0, 0.9], [0.9, 0.7]])
    x = ellipse(mean, covariance, deviations=1.5) - mean
    np.testing.assert_allclose(np.einsum("ni,ij,nj->n", x, np.linalg.inv(covariance), x), 1.5**2, atol=1e-12)
    radius = np.linalg.norm(ellipse(mean, covariance, n=100_001) - mean, axis=1)
    np.testing.assert_allclose([radius.min(), radius.max()], np.sqrt(np.linalg.eigvalsh(covariance)), rtol=1e-8)


def test_the_ellipse_of_rank_one_is_a_segment():
    x = ellipse(np.zeros(2), np.array([[4.0, 2.0], [2.0, 1.0]]))
    np.testing.assert_allclose(x @ [-1, 2], 0, atol=1e-7)
    np.testing.assert_allclose(np.abs(x).max(0), [2, 1], rtol=1e-6)


@pytest.mark.parametrize("d", [3, 16])
def test_the_plane_holds_the_shift_and_keeps_lengths(d):
    mean, covariance = RNG.standard_normal((7, d)), covariances(7, d)
    plane = path_plane(mean, covariance)
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)
    y = plane.points(mean)
    np.testing.assert_allclose(np.linalg.norm(mean[-1] - mean[0]) * np.array([1, 0]), y[-1] - y[0], atol=1e-9)
    np.testing.assert_allclose(plane.covariances(covariance)[2], plane.axes @ covariance[2] @ plane.axes.T)


def test_the_plane_of_a_start_without_spread():
    plane = path_plane(np.eye(3)[:2], np.zeros((2, 3, 3)))
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)


def test_principal_coordinates_find_the_plane_of_the_tokens():
    frame = np.linalg.qr(RNG.standard_normal((5, 5)))[0][:2]
    points = RNG.standard_normal((4, 50, 2)) * [3, 1] @ frame
    plane = cloud_plane(points)
    np.testing.assert_allclose(plane.points(points) @ plane.axes + plane.origin, points, atol=1e-12)


def test_the_view_is_a_rotation():
    np.testing.assert_allclose(view(np.eye(3)) @ view(np.eye(3)).T, np.eye(3), atol=1e-14)
    assert np.linalg.det(view(np.eye(3))) == pytest.approx(1)


def test_distances_to_the_target():
    mean, covariance = np.array([[0.0, 0.0], [3.0, 4.0]]), np.stack([np.diag([4.0, 9.0]), np.eye(2)])
    np.testing.assert_allclose(distances(mean, covariance, mean[1], np.eye(2)), [np.sqrt(25 + 1 + 4), 0], atol=1e-7)


def test_the_moments_shown():
    ts = np.linspace(0, 20, 801)
    np.testing.assert_allclose(ts[moments_shown(ts)], [0, 1, 5, 16, 18, 20])
    assert list(moments_shown(np.array([0.0, 3.0]))) == [0, 1]
    assert list(evenly(np.array([0.0, 0.1, 0.2, 1.0]), 3)) == [0, 2, 3]


@pytest.mark.parametrize("heights", [[0.5, 0.5, 0.5], [0.0, 1.0, 0.02], [0.9, 1.0, 0.95, 0.1], [0.3]])
def test_labels_keep_apart_in_order(heights):
    placed = np.array(spread(heights, gap=0.1))
    order = np.argsort(heights, kind="stable")
    assert np.all(np.diff(placed[order]) >= 0.1 - 1e-12)
    assert placed.min() >= 0.03 - 1e-12
    assert placed.max() <= 1 + 1e-12


def test_labels_lie_at_the_ends_of_their_curves():
    ax = new_figure(3.0).add_subplot()
    ax.set(ylim=(1, 100), yscale="log")
    label_ends(ax, [(10.0, "a", "black")])
    assert ax.texts[0].xy == pytest.approx((1, 0.5))


def test_a_fitted_power_passes_through_points_that_follow_it():
    x = np.array([1.0, 2.0, 8.0])
    y = 3 * x**-1.5
    kinds = {"error": 0.01, "name": "y", "color": "blue"}
    errors = plot_power(x, y, slope=-1.5, **kinds)
    means = plot_exponent(x.astype(int), np.stack([y, y], 1), exponent=-1.5, **kinds)
    for ax in (errors, means):
        lines = [line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 3]
        np.testing.assert_allclose(lines[0].get_ydata(), y, rtol=1e-12)
