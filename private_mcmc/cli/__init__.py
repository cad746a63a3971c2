"""The command ``private-mcmc``: commands, loaded when they are called, and what ends them in one line."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from private_mcmc.cli.common import ERROR, INTERRUPTED, UNFORESEEN, UNREAD, echo, in_words, quiet_end
from private_mcmc.errors import PrivateMCMCError, Unforeseen, places_of

# Typer brings its own copy of click, whose usage errors have no public name.
UsageError: Any = typer.BadParameter.__mro__[1]

COMMANDS = {
    "init": "private_mcmc.cli.before:init",
    "describe": "private_mcmc.cli.spend:describe",
    "fit": "private_mcmc.cli.spend:fit",
    "summary": "private_mcmc.cli.study:summary",
    "check": "private_mcmc.cli.spend:check",
    "compare": "private_mcmc.cli.spend:compare",
    "verify": "private_mcmc.cli.study:verify",
    "sign": "private_mcmc.cli.study:sign",
    "report": "private_mcmc.cli.study:report",
    "preflight": "private_mcmc.cli.before:preflight",
    "plan": "private_mcmc.cli.before:plan",
    "resume": "private_mcmc.cli.spend:resume",
    "ledger": "private_mcmc.cli.study:ledger",
    "demo": "private_mcmc.cli.before:demo",
}


def keep_programs() -> None:
    """Have JAX keep what it compiles under the user's cache folder, unless the user has said where or not to.

    Programs are functions: rows, states and keys are arguments of theirs and never in them. The folder is
    its owner's alone, since what lies in it is run. To be called before JAX is imported.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(base) / "private-mcmc" / "programs"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
        own = found.st_uid == os.getuid() and not found.st_mode & 0o022
    except OSError:
        return
    if own:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(place))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


class _Lazy(TyperGroup):
    """Imports a command's file only when the command is called or help is asked for."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        target = getattr(importlib.import_module(module), name)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(target)
            target = single
        command = typer.main.get_command(target)
        command.name = cmd_name
        return command


_CODES = (
    "Exit codes: 0 done; 1 a claim fails (preflight: not private, verify: not consistent); "
    "2 preflight: unknown; 3 error, in one line; 4 an unforeseen error; 130 "
    "interrupted; 141 nobody reads the output."
)

app = typer.Typer(
    name="private-mcmc", cls=_Lazy, no_args_is_help=True, pretty_exceptions_enable=False, epilog=_CODES
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        echo(version("private-mcmc"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="after an error, the files and lines that it came through")
    ] = False,
) -> None:
    """Differentially private Bayesian inference for NumPyro models."""


def main(group: typer.Typer = app) -> None:
    """Run a command of ``group``; what stops it is one readable message and an exit code that is not 0."""
    # A scheduler whose time is over ends a run as a person does: what was paid for is kept.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep_programs()
    try:
        code = group(standalone_mode=False, prog_name="private-mcmc" if group is app else None)
    except SystemExit as ended:
        # Typer ends so, and with 1, when nobody reads the output any more.
        sys.exit(UNREAD if ended.code == 1 else ended.code)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            error.show()
        else:
            echo(in_a_line(error), err=True)
        sys.exit(ERROR)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        echo(as_typed(in_words(error), group), err=True)
        if "--debug" in sys.argv[1:]:
            echo("\n".join(f"  {place}" for place in places_of(error)), err=True)
        quiet_end()
        foreseen = isinstance(error, PrivateMCMCError | OSError | ArithmeticError)
        sys.exit(ERROR if foreseen and not isinstance(error, Unforeseen) else UNFORESEEN)
    if code == INTERRUPTED:  # Typer makes an exit of most interruptions
        echo("Interrupted. What was charged to a ledger stays charged.", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def as_typed(words: str, group: typer.Typer) -> str:
    """``n=5`` of Python as ``--n 5``, where the command that was typed has such an option."""
    command: Any = typer.main.get_command(group)
    for word in sys.argv[1:]:
        command = (getattr(command, "get_command", None) or (lambda *_: None))(None, word) or command
    options = (opt[2:] for one in command.params for opt in one.opts if opt.startswith("--"))
    names = "|".join(option.replace("-", "_") for option in options)
    # A field of this name stands after "in": as in age=40,60.
    found = re.compile(rf"(?<!in )(?<![\w.(])({names})=('[^']*'|[^\s,:;()]*[^\s,:;().])")
    return found.sub(lambda one: f"--{one[1].replace('_', '-')} {one[2].strip(chr(39))}", words)


def in_a_line(error: Any) -> str:
    """What is wrong with a command line, and where its options are told."""
    words = error.format_message().replace("\n", " ").strip().rstrip(".")
    path = "private-mcmc" if error.ctx is None else error.ctx.command_path
    return f"{path}: {words}{'' if words.endswith('?') else '.'} What it takes: {path} --help."
