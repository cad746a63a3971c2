"""Numbers that a command measured, put into a page of ``measured/`` between two comments that name it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def put(page: str, command: str, lines: list[str]) -> None:
    """Replace what stands in ``measured/page`` between ``<!-- command -->`` and ``<!-- end -->``."""
    path = ROOT / "benchmarks" / "measured" / page
    before, rest = path.read_text(encoding="utf-8").split(f"<!-- {command} -->\n", 1)
    after = rest.split("<!-- end -->", 1)[1]
    text = "\n".join(["", *lines, "", ""])
    path.write_text(f"{before}<!-- {command} -->\n{text}<!-- end -->{after}", encoding="utf-8")


def keep(name: str, found: Any) -> None:
    """Write ``benchmarks/measured/name``."""
    path = ROOT / "benchmarks" / "measured" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept(name: str) -> Any:
    """What :func:`keep` wrote."""
    return json.loads((ROOT / "benchmarks" / "measured" / name).read_text(encoding="utf-8"))
