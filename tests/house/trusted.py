"""Which files a statement rests on, by ``docs/trusted.md``, and how many lines they have.

``python -m tests.house.trusted`` prints them.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trusted.md"
# Where rows are, and what prices them: all that these import is trusted, too, but for what is named below.
ROOTS = (
    "private_mcmc/inference/price.py",
    "private_mcmc/inference/execute.py",
    "private_mcmc/inference/execute_plan.py",
    "private_mcmc/inference/bookkeeping.py",
    "private_mcmc/inference/columns.py",
    "private_mcmc/inference/sums.py",
)
# Words and numbers for people, plans that only propose stages, and records of what was released.
UNTRUSTED = (
    "private_mcmc/report/",
    "private_mcmc/planning/",
    "private_mcmc/preflight/",
    "private_mcmc/data/",
)


def listed() -> set[str]:
    """The files that the page names."""
    return set(re.findall(r"private_mcmc/[\w/]+\.py", PAGE.read_text(encoding="utf-8")))


def imports(file: str) -> set[str]:
    """Files of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                for module in (f"{node.module}.{name.name}", node.module):
                    place = f"{module.replace('.', '/')}.py"
                    if place.startswith("private_mcmc/") and (ROOT / place).exists():
                        found.add(place)
                        break
    return found


def reached() -> set[str]:
    """What the roots import, through files that are trusted."""
    seen: set[str] = set()
    todo = list(ROOTS)
    while todo:
        file = todo.pop()
        if file in seen or file.startswith(UNTRUSTED):
            continue
        seen.add(file)
        todo += imports(file)
    return seen


def lines(file: str) -> int:
    """Lines of a file."""
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print every file with its lines, and the sum."""
    for file in sorted(listed()):
        print(f"{lines(file):6,} {file}")
    print(f"{sum(map(lines, listed())):6,} in {len(listed())} files")


if __name__ == "__main__":
    main()
