"""No price is printed to the nearest digit: beside ε, δ and GDP stand numbers that one helper has rounded."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "private_mcmc"
SIGNS = ("ε", "δ", "GDP", "epsilon", "delta", "budget")
HELPERS = {"rounded_up", "rounded_down", "at_most", "at_least"}
# What people typed, said back to them, and numbers that are no prices.
ALLOWED = {"cli/before.py"}


def nearest(source):
    """Lines of texts in which a number beside a sign of a price is rounded to the nearest digit."""
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before = str(part.value)
                continue
            spec = ast.unparse(part.format_spec) if part.format_spec is not None else ""
            called = {
                call.func.id
                for call in ast.walk(part.value)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            rounds = (
                any(sign in spec for sign in "gfe") or called & {"round", "number"}
            ) and not called & HELPERS
            after = text.values[text.values.index(part) + 1 :]
            unit = after and isinstance(after[0], ast.Constant) and str(after[0].value).startswith("-GDP")
            named = any(sign in ast.unparse(part.value) for sign in ("epsilon", "delta", "gdp", "budget"))
            if rounds and (unit or named or before.rstrip(" =≤^").endswith(SIGNS)):
                yield part.lineno
            before = ""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('f"ε = {x:.3g}"', [1]),
        ('f"spend ε = {self.whole.epsilon:g}. The"', [1]),
        ('f"{cost:.12g}-GDP"', [1]),
        ('f"δ = {round(x, 3)}"', [1]),
        ('f"{target.delta:g} is large"', [1]),
        ('f"ε = {at_most(x)}"', []),
        ('f"{rounded_up(x, 6):.6g}-GDP"', []),
        ('f"{count:,} rows"', []),
    ],
)
def test_a_price_to_the_nearest_digit_is_found_and_what_the_helper_has_rounded_is_not(text, lines):
    assert list(nearest(text)) == lines


def test_no_price_is_printed_to_the_nearest_digit():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in ALLOWED
        for line in nearest(path.read_text(encoding="utf-8"))
    ]
    assert found == []
