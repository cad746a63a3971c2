"""The report itself: a title and blocks, and the ways to show them."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from private_mcmc.files import write_whole
from private_mcmc.report import html, terminal
from private_mcmc.report.blocks import Block


@dataclass(frozen=True)
class Report:
    """Blocks under a title. Whoever builds one puts only public or released values in."""

    title: str
    blocks: tuple[Block, ...]

    def __add__(self, other: Report) -> Report:
        """This report followed by the blocks of another."""
        return Report(self.title, self.blocks + other.blocks)

    def show(self, console: Any = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        terminal.show(self.title, self.blocks, console)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given.

        Raises:
            OutputError: if the file cannot be written; nothing is half-written then.
        """
        text = html.page(self.title, self.blocks)
        if path is not None:
            write_whole(path, text)
        return text

    def _repr_html_(self) -> str:
        return html.fragment(self.title, self.blocks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: every block with its ``kind``; infinities and NaN, which JSON lacks, as words."""
        return {"title": self.title, "blocks": [plain(block) for block in self.blocks]}

    def to_json(self, path: str | Path | None = None) -> str:
        """``to_dict`` as JSON text, also written to ``path`` where given; raises as ``to_html``."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_whole(path, text)
        return text


def plain(value: Any) -> Any:
    """Dictionaries, lists, strings and finite numbers only, of dataclasses, tuples and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__.lower(), **fields}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf")
