"""The papers' experiments: image files, networks, resuming, and that heuristics are called heuristics."""

import numpy as np
import pytest

from benchmarks.papers.experiments import HFExperiment, Images
from benchmarks.papers.experiments.noise import algorithm_1
from benchmarks.papers.experiments.sgld import SGLD


def bars(count, seed=0):
    """Images of ten classes that any classifier learns: class ``c`` is bright in a place of its own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(np.int32)
    pixels = rng.uniform(0, 0.1, (count, 8, 8)).astype(np.float32)
    pixels[np.arange(count), labels % 5, 2 + labels // 5] = 1.0
    return Images(pixels, labels)


@pytest.mark.long
def test_the_claim_of_clipped_sgld_is_the_accountants_and_grows_with_training():
    sgld = SGLD(num_rows=400, batch_size=4, learning_rate=0.001, clip=0.2)
    early, late = sgld.statement(50, 1), sgld.statement(50, 3)
    assert 0 < early.epsilon(1e-5) < late.epsilon(1e-5) < np.inf
    assert early.verify()
    assert SGLD(400, 4, 0.001, None).statement(50, 1) is None


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


def test_algorithm_1_is_positive_on_equal_data_so_it_bounds_nothing(rng):
    assert algorithm_1(rng.normal(size=(5, 40)), rng.normal(size=(5, 3, 40)), 0.1) > 0.1
