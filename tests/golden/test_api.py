"""Other people's scripts rest on the public names: a change of one is a change of tests/golden/api.txt."""

import inspect

import pytest

import private_mcmc as pmc
from tests.golden import api, commands


@pytest.mark.slow
def test_public_names_and_signatures_are_those_on_file():
    assert api.text() == api.FILE.read_text(encoding="utf-8"), "python -m tests.golden.api, and the changelog"


def test_every_option_of_every_command_is_on_the_page_of_the_commands():
    assert commands.text() == commands.shown(), "python -m tests.golden.commands"
    assert "- `--max-error`: " in commands.shown() and "**`ledger init" in commands.shown()


def test_options_of_all_commands_have_one_name_for_what_is_written_and_one_way_of_helping():
    options = [each for command in commands.leaves().values() for each in command.params]
    assert sum("--out" in each.opts for each in options) == 6
    assert {"--output", "-o", "--folder"}.isdisjoint(name for each in options for name in each.opts)
    own = [each for each in options if "--help" not in each.opts and each.help]
    assert [each.help for each in own if each.help[:1].isupper() and each.help[1:2].islower()] == [
        each.help for each in own if each.help.startswith(("Ray", "OpenDP", "Table Schema"))
    ]
    assert not [each.help for each in own if each.help.endswith(".")]
    # A terminal breaks lines of later paragraphs where the source does.
    helps = [(command.help or "").split("\n\n")[1:] for command in commands.leaves().values()]
    assert not [part for parts in helps for part in parts if "\n" in part.strip()]


def test_an_argument_that_is_renamed_is_seen():
    def plan(model, rows, *, n, epsilon=1.0): ...

    assert api.arguments(plan) == "(model, rows, *, n, epsilon=1.0)"
    assert api.arguments(plan) != api.arguments(lambda model, rows, *, n, eps=1.0: None)


def test_every_public_name_is_on_the_page_of_the_reference():
    page = (api.FILE.parents[2] / "docs/api.md").read_text(encoding="utf-8")
    modules = {name for name in pmc.__all__ if inspect.ismodule(getattr(pmc, name))}
    assert [name for name in pmc.__all__ if f"::: private_mcmc.{name}\n" not in page] == sorted(modules)
