"""The papers' experiments: image files, networks, resuming, and that heuristics are called heuristics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.papers.experiments import HFExperiment, Images, NoiseExperiment
from benchmarks.papers.experiments.adversarial import adversarial_row
from benchmarks.papers.experiments.networks import lenet, perceptron
from benchmarks.papers.experiments.noise import algorithm_1
from benchmarks.papers.experiments.sgld import SGLD
from benchmarks.papers.gradient_noise import GradientNoiseLangevin, per_layer, proportional
from private_mcmc import Box, PrivateMCMC, Rows, Target
from private_mcmc.errors import DoThisInstead
from tests.examples_of_models import normal_mean


def bars(count, seed=0):
    """Images of ten classes that any classifier learns: class ``c`` is bright in a place of its own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(np.int32)
    pixels = rng.uniform(0, 0.1, (count, 8, 8)).astype(np.float32)
    pixels[np.arange(count), labels % 5, 2 + labels // 5] = 1.0
    return Images(pixels, labels)


@pytest.mark.long
def test_lenet_has_the_classical_size():
    assert lenet(28).dim == 61_706
    assert lenet(32, 3).dim == 62_006
    assert perceptron(bars(3), 10).dim == 8 * 8 * 10 + 10 + 100 + 10


@pytest.mark.long
def test_the_claim_of_clipped_sgld_is_the_accountants_and_grows_with_training():
    sgld = SGLD(num_rows=400, batch_size=4, learning_rate=0.001, clip=0.2)
    early, late = sgld.statement(50, 1), sgld.statement(50, 3)
    assert 0 < early.epsilon(1e-5) < late.epsilon(1e-5) < np.inf
    assert early.verify()
    assert SGLD(400, 4, 0.001, None).statement(50, 1) is None


@pytest.mark.long
def test_an_adversarial_row_is_wrong_for_every_model_and_keeps_its_label():
    """Models that read the class off one pixel: changed pixels fool all of them."""
    data = bars(40)
    network = perceptron(data, 4)

    def train(key):
        def step(_, theta):
            losses = lambda t: jax.vmap(network.loss, (None, 0, 0))(t, data.pixels, data.labels).mean()  # noqa: E731
            return theta - 1.0 * jax.grad(losses)(theta)

        return jax.lax.fori_loop(0, 600, step, network.start(key))

    models = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 2))
    row, fooled = adversarial_row(network, models, data)
    said = jax.vmap(network.logits, (0, None))(models, jnp.asarray(fooled.pixels[0])).argmax(axis=-1)
    assert (np.asarray(said) != data.labels[row]).all()
    assert fooled.labels[0] == data.labels[row]
    assert fooled.pixels.min() >= 0 and fooled.pixels.max() <= 1


@pytest.mark.long
def test_an_experiment_goes_on_from_its_finished_chunks_to_the_same_result(tmp_path):
    experiment = HFExperiment(
        num_rows=40, models=4, epochs=6, learning_rate=0.05, clip=1.0, surrogates=2, chunk=8
    )
    whole = experiment.run(bars(120), bars(60, 1), tmp_path / "one")
    (tmp_path / "two").mkdir()
    for name in ("experiment.json", "chunk-0000.npz"):
        (tmp_path / "two" / name).write_bytes((tmp_path / "one" / name).read_bytes())
    done = []
    resumed = experiment.run(bars(120), bars(60, 1), tmp_path / "two", done.append)
    assert resumed.to_dict() == whole.to_dict()
    assert done[0] == experiment.epochs
    assert whole.sound
    assert "after 6 epochs" in whole.report.to_html()


def test_algorithm_1_counts_what_exceeds_and_takes_the_worst_pair():
    without = np.zeros((3, 2, 4))
    without[:, 1, 0] = 1.0
    assert algorithm_1(np.zeros((3, 4)), without, 0.5) == pytest.approx(0.25)
    assert algorithm_1(np.zeros((3, 4)), without, 1.5) == 0.0


def test_algorithm_1_is_positive_on_equal_data_so_it_bounds_nothing(rng):
    assert algorithm_1(rng.normal(size=(5, 40)), rng.normal(size=(5, 3, 40)), 0.1) > 0.1


@pytest.mark.long
def test_shapes_of_noise_are_compared_and_called_a_heuristic():
    small = NoiseExperiment(num_rows=20, hidden=3, steps=20, batch_size=10, pairs=2, repeats=3, runs=2)
    found = small.shapes(bars(40))
    assert [one.name for one in found.found] == ["per layer", "proportional"]
    assert all(np.shape(one.with_row) == np.shape(one.without) == (2, 6) for one in found.found)
    assert all(np.isfinite(one.worst_row).all() and one.worst_row > one.worst_loss for one in found.found)
    assert "heuristic" in found.to_dict()


@pytest.mark.slow
def test_noise_follows_the_gradient_or_its_layers_largest():
    gradient = jnp.array([0.0, -2.0, 3.0])
    np.testing.assert_allclose(proportional(gradient, 0.5), [0.0, 1.0, 1.5])
    np.testing.assert_allclose(per_layer(gradient, np.array([0, 0, 1]), 0.5), [1.0, 1.0, 1.5])


def test_noise_that_depends_on_the_gradient_is_refused_by_name():
    driver = PrivateMCMC(
        GradientNoiseLangevin(normal_mean, step_size=0.1, clip=1.0),
        rows=Rows(y=Box(-1.0, 1.0)),
        target=Target(1.0, 1e-5),
        release="last",
        num_steps=3,
    )
    with pytest.raises(DoThisInstead, match=r"GradientNoiseLangevin.*depends on the private rows"):
        driver.run(y=np.zeros(4))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::private_mcmc.errors.Unprotected")
def test_noise_that_depends_on_the_gradient_runs_under_numpyros_own_driver():
    """At a stationary point of a single state the step stays put: noise vanishes with the gradient."""
    kernel = GradientNoiseLangevin(normal_mean, step_size=0.1, clip=10.0)
    y = jnp.zeros(4)
    with jax.enable_x64(True):
        start = kernel.init(jax.random.key(0), 0, None, (y,), {})
        assert float(kernel.sample(start, (y,), {}).z[0]) == 0.0
        moved = kernel.init(jax.random.key(0), 0, jnp.array([1.0]), (y,), {})
        assert float(kernel.sample(moved, (y,), {}).z[0]) != 1.0
