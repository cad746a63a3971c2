"""The options of every command, in ``commands.md``; ``python -m tests.golden.commands`` writes them."""

from pathlib import Path
from typing import Any

import typer

from private_mcmc.cli import app

PAGE = Path(__file__).parent / "commands.md"
BEGIN, END = "<!-- options: python -m tests.golden.commands -->", "<!-- end of options -->"
# Every command has these.
_COMMON = {"--help", "--json"}


def leaves(command: Any = None, words: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command that does something itself, by its words."""
    command = typer.main.get_command(app) if command is None else command
    if not hasattr(command, "list_commands"):
        return {" ".join(words): command}
    found: dict[str, Any] = {}
    for name in command.list_commands(None):
        found |= leaves(command.get_command(None, name), (*words, name))
    return found


def text() -> str:
    """A list of options with their help for every command."""
    lines = []
    for name, command in leaves().items():
        given = [each for each in command.params if set(each.opts).isdisjoint(_COMMON)]
        places = " ".join(each.name.upper() for each in given if each.param_type_name == "argument")
        lines += ["", f"**`{name}{' ' * bool(places)}{places}`**", ""]
        for each in given:
            words = (each.help or "").replace("<", "&lt;")
            if each.param_type_name == "option":
                lines.append(
                    f"- `{', '.join([*each.opts, *each.secondary_opts])}`{': ' * bool(words)}{words}"
                )
    return "\n".join(lines).strip()


def shown() -> str:
    """What the record has."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
