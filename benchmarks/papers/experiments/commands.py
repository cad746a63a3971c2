"""``python -m benchmarks.papers.experiments hf|noise|batch-size``: the papers' attacks on networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.audit import finish
from private_mcmc.cli.common import HtmlOption, JsonOption

if TYPE_CHECKING:
    from benchmarks.papers.experiments import NoiseExperiment

ImagesOption = Annotated[
    Path | None,
    typer.Option(help="folder of MNIST-like idx files, plain or .gz; left out: scikit-learn's digits"),
]
SeedOption = Annotated[int, typer.Option(help="of everything; the experiment is reproducible")]


def hf(
    images: ImagesOption = None,
    num_rows: Annotated[int, typer.Option(help="rows of D")] = 256,
    models: Annotated[int, typer.Option(help="networks in each of the four groups")] = 50,
    epochs: Annotated[int, typer.Option(help="epochs, each attacked for itself")] = 40,
    learning_rate: Annotated[float, typer.Option(help="what multiplies a batch's sum")] = 0.02,
    batch_size: Annotated[int, typer.Option(help="rows of a batch")] = 4,
    clip: Annotated[float | None, typer.Option(help="clip rows, and compare with the claim")] = None,
    as_rows: Annotated[int, typer.Option(help="weight the likelihood as of so many rows")] = 60_000,
    delta: Annotated[float, typer.Option(help="bound ε at this δ")] = 1e-5,
    failure: Annotated[float, typer.Option(help="of each epoch's lower bound")] = 0.1,
    chunk: Annotated[int, typer.Option(help="networks trained side by side")] = 100,
    out: Annotated[Path | None, typer.Option(help="folder that keeps finished chunks, to go on from")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Attack LeNet5 trained by SGLD on digit images (Heller, Fetaya 2023, Section V and Appendix E).

    The defaults take minutes on two cores. The paper's size, for a GPU: --images DIR --num-rows 60000
    --models 250 --learning-rate 0.001 --epochs 30 --chunk 1000 --out FOLDER.

    Exit code: 0 sound, 1 claim refuted, 3 error.
    """
    from benchmarks.papers.experiments import HFExperiment, load_images
    from private_mcmc.report.document import progress

    experiment = HFExperiment(
        num_rows=num_rows,
        models=models,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        clip=clip,
        as_rows=as_rows,
        delta=delta,
        failure_probability=failure,
        chunk=chunk,
        seed=seed,
    )
    train, test = load_images(images, seed)
    with progress("epochs", experiment.chunks * epochs, not as_json) as on_epoch:
        found = experiment.run(train, test, out, on_epoch)
    finish(found.sound, found.report, found.to_dict(), as_json, html)


def noise(
    images: ImagesOption = None,
    num_rows: Annotated[int, typer.Option(help="rows of D")] = 200,
    hidden: Annotated[int, typer.Option(help="hidden units")] = 10,
    steps: Annotated[int, typer.Option(help="steps of training")] = 1_000,
    batch_size: Annotated[int, typer.Option(help="rows of a batch")] = 50,
    pairs: Annotated[int, typer.Option(help="adjacent pairs of data sets")] = 4,
    repeats: Annotated[int, typer.Option(help="trainings on each")] = 10,
    deviation: Annotated[bool, typer.Option(help="the noise's entries are standard deviations")] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Noise per layer against noise in proportion to the gradient, with histograms of a row's loss.

    Borovykh, Kantas, Parpas, Pavliotis, Sections 6.2 and 6.4. Heuristic numbers: they bound nothing.
    The paper's size: --images DIR --num-rows 1000 --steps 10000 --batch-size 100 --pairs 10.
    """
    experiment = _experiment(num_rows, hidden, steps, batch_size, pairs, repeats, seed)
    _compared(replace(experiment, deviation=deviation), images, None, as_json, html)


def batch_size(
    images: ImagesOption = None,
    num_rows: Annotated[int, typer.Option(help="rows of D")] = 200,
    hidden: Annotated[int, typer.Option(help="hidden units")] = 10,
    steps: Annotated[int, typer.Option(help="steps of training")] = 1_000,
    sizes: Annotated[str, typer.Option(help="rows of a batch")] = "25,100,200",
    pairs: Annotated[int, typer.Option(help="adjacent pairs of data sets")] = 4,
    repeats: Annotated[int, typer.Option(help="trainings on each")] = 10,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Plain SGD with several sizes of batch (the same paper, Section 6.3). Heuristic: nothing is bounded."""
    chosen = _whole_numbers(sizes)
    experiment = _experiment(num_rows, hidden, steps, max(chosen), pairs, repeats, seed)
    _compared(experiment, images, chosen, as_json, html)


def _whole_numbers(text: str) -> tuple[int, ...]:
    from private_mcmc.errors import DeclarationError

    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise DeclarationError(f"--sizes {text}: whole numbers and commas, as in 25,100.") from error


def _experiment(
    num_rows: int, hidden: int, steps: int, batch_size: int, pairs: int, repeats: int, seed: int
) -> NoiseExperiment:
    from benchmarks.papers.experiments import NoiseExperiment

    return replace(
        NoiseExperiment(),
        num_rows=num_rows,
        hidden=hidden,
        steps=steps,
        batch_size=batch_size,
        pairs=pairs,
        repeats=repeats,
        seed=seed,
    )


def _compared(
    experiment: NoiseExperiment,
    images: Path | None,
    sizes: tuple[int, ...] | None,
    as_json: bool,
    html: Path | None,
) -> None:
    from benchmarks.papers.experiments import load_images

    train, _ = load_images(images, experiment.seed)
    found = experiment.shapes(train) if sizes is None else experiment.batches(train, sizes)
    finish(True, found.report, found.to_dict(), as_json, html)
