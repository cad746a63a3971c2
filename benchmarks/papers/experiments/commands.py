"""``python -m benchmarks.papers.experiments hf|figure``: the papers' attacks on networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import HtmlOption, JsonOption, show

ImagesOption = Annotated[
    Path | None,
    typer.Option(help="folder of idx files or CIFAR-10's PNG batches; left out: scikit-learn's digits"),
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
    show(found.report, found.to_dict(), as_json, html)
    raise typer.Exit(0 if found.sound else 1)


def figure(
    name: Annotated[
        str, typer.Argument(help="001-figure-2, 004-table-1-setting-1, …; left out: the list")
    ] = "",
    size: Annotated[
        str, typer.Option(help="paper; here: what the pages show; fast: seconds, on digits")
    ] = "here",
    images: ImagesOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="put the record among those that the pages show")
    ] = False,
) -> None:
    """Train a figure or table of 001 or 004 and print its record."""
    from benchmarks.papers.experiments.figures import FIGURES, train, write
    from private_mcmc.report.document import progress

    if not name:
        for key, found in FIGURES.items():
            typer.echo(f"{key:34}{found.title}, {found.data}")
        return
    steps = 1 if name not in FIGURES else FIGURES[name].ticks(size)
    with progress("runs", steps, keep) as on_run:
        record = train(name, size, images, on_run)
    if keep:
        typer.echo(f"written: {write(record)}")
    else:
        typer.echo(json.dumps(record, indent=1, ensure_ascii=False))
