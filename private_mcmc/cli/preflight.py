"""``private-mcmc preflight MODEL.py:model --rows rows.toml …``: decide from a file, without data."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from private_mcmc.cli.declared import (
    AdjacencyOption,
    ArgsOption,
    Delta,
    Epsilon,
    HtmlOption,
    JsonOption,
    ModelArgument,
    NumRows,
    RowsOption,
    read_rows,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Target, check_adjacency

EXIT_CODES = {"private": 0, "not private": 1, "unknown": 2}


def load_model(place: str) -> Callable[..., Any]:
    """The function ``NAME`` of the file ``FILE.py``, given as ``FILE.py:NAME``.

    Raises:
        DeclarationError: if there is no such file or function, or the file cannot be run.
    """
    path, colon, name = place.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or not file.is_file():
        raise DeclarationError(f"{place!r}: give a file and a function in it, for example model.py:model.")
    spec = importlib.util.spec_from_file_location(f"_model_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"{path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise DeclarationError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    model = getattr(module, name, None)
    if not callable(model):
        raise DeclarationError(f"{path} has no function {name!r}.")
    return model  # type: ignore[no-any-return]


def read_arguments(path: Path | None) -> dict[str, Any]:
    """Public arguments of the model from a TOML file: numbers, words, truth values; lists become arrays.

    Raises:
        DeclarationError: for a file that is not TOML, or an argument of another kind.
    """
    from private_mcmc.domains.rows import read_toml

    return {} if path is None else {key: _argument(key, value) for key, value in read_toml(path).items()}


def _argument(name: str, value: Any) -> Any:
    import numpy as np

    if isinstance(value, bool | int | float | str):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists of different lengths, numbers too large
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DeclarationError(f"argument {name!r}: a number, a word, or a list of numbers in equal rows.")
    return array


def preflight(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    adjacency: AdjacencyOption = "replace_one",
    clip: Annotated[
        float | None, typer.Option(help="bound on every row's gradient that a kernel enforces")
    ] = None,
    temper: Annotated[float, typer.Option(help="power of the likelihood")] = 1.0,
    args: ArgsOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Decide whether a model's posterior is private, from the program and public facts alone.

    Exit code: 0 private, 1 not private, 2 unknown, 3 error.
    """
    from private_mcmc.preflight import preflight as decide

    target = Target(epsilon, delta, check_adjacency(adjacency))
    report = decide(
        load_model(model),
        read_rows(rows),
        target,
        n=n,
        clip=clip,
        temper=temper,
        model_args=read_arguments(args),
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        report.show()
    if html is not None:
        report.to_html(html)
    raise typer.Exit(EXIT_CODES[report.verdict])
