"""No two files of the package import each other in a circle, imports inside functions included."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def sources():
    """Module names of the package (and of the models shipped in it) with their text."""
    found = {}
    for folder, package in (
        (ROOT / "private_mcmc", "private_mcmc"),
        (ROOT / "models", "private_mcmc.models"),
    ):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts))] = path.read_text(encoding="utf-8")
    return found


def imports(text):
    """``(module, name)`` of every import statement at any depth; no name for ``import module``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module, alias.name) for alias in node.names)


def graph(files):
    """Which file takes something from which; a name that a package re-exports is taken from its own file."""
    exports = {
        module.removesuffix(".__init__"): {name: origin for origin, name in imports(text) if name}
        for module, text in files.items()
        if module.endswith(".__init__")
    }

    def origin(module, name):
        while module in exports:
            if f"{module}.{name}" in files:
                return f"{module}.{name}"
            if name not in exports[module]:
                return None
            module = exports[module][name]
        return module if module in files else None

    return {
        module: {origin(*taken) for taken in imports(text)} - {None, module}
        for module, text in files.items()
        if not module.endswith(".__init__")
    }


def reachable(edges, start):
    seen, waiting = set(), list(edges[start])
    while waiting:
        if (module := waiting.pop()) not in seen:
            seen.add(module)
            waiting += edges[module]
    return seen


def circles(files):
    edges = graph(files)
    return sorted(module for module in edges if module in reachable(edges, module))


@pytest.mark.slow
def test_no_two_files_import_each_other_in_a_circle():
    files = sources()
    assert len(files) > 150
    assert circles(files) == []


def test_circles_inside_functions_and_through_packages_are_seen():
    files = {
        "p.__init__": "from p.a import A",
        "p.a": "def f():\n    from p.b import B",
        "p.b": "from p import A",
        "p.c": "import p.a",
    }
    assert circles(files) == ["p.a", "p.b"]
