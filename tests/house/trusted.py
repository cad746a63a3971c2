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
    "private_mcmc/release/price.py",
    "private_mcmc/inference/execute.py",
    "private_mcmc/inference/execute_plan.py",
    "private_mcmc/inference/runs.py",
    "private_mcmc/inference/bookkeeping.py",
    "private_mcmc/inference/checkpoint.py",
    "private_mcmc/inference/columns.py",
    "private_mcmc/inference/ray_engine.py",
)
# Declarations, which say what runs and is priced as they say it; plans and models as they are read, which are
# proposals; public random rows; words and numbers for people, and what was released.
UNTRUSTED = (
    "private_mcmc/accounting/risk.py",
    "private_mcmc/arguments.py",
    "private_mcmc/inference/declared.py",
    "private_mcmc/inference/last_run.py",
    "private_mcmc/domains/synthetic.py",
    "private_mcmc/dossier/",
    "private_mcmc/kernels/langevin.py",
    "private_mcmc/model/",
    "private_mcmc/release/released.py",
    "private_mcmc/report/",
    "private_mcmc/planning/",
    "private_mcmc/preflight/",
    "private_mcmc/data/",
    "private_mcmc/system.py",
)


def listed() -> set[str]:
    """The files that the page names."""
    return set(re.findall(r"private_mcmc/[\w/]+\.py", PAGE.read_text(encoding="utf-8")))


def place(module: str) -> str:
    """The file of a module or a package; empty where the package has none."""
    path = module.replace(".", "/")
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if (ROOT / file).exists()), "")


def imports(file: str, names: set[str] | None = None) -> set[str]:
    """Files of the package that a file imports, wherever in it: where these ``names`` come from, or all.

    A name that a package hands on comes from the file that the package has it from.
    """
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("private_mcmc"):
            continue
        for name in node.names:
            if names is not None and (name.asname or name.name) not in names:
                continue
            whole, part = place(f"{node.module}.{name.name}"), place(str(node.module))
            if (whole or part).endswith("__init__.py"):
                found |= imports(whole or part, None if whole else {name.name})
            else:
                found.add(whole or part)
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
