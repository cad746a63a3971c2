"""A signature of a dossier's record, by OpenSSH: whoever has the signer's public key can check it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from private_mcmc.dossier.claims import Skipped, need
from private_mcmc.dossier.record import RECORD
from private_mcmc.errors import OutputError

SIGNATURE = f"{RECORD}.sig"
# What a signature is for: one made for another purpose does not count.
_NAMESPACE = "private-mcmc"
_SECONDS = 60.0


def sign(folder: Path, key: Path) -> Path:
    """Sign ``study.json``, and with its hashes every file, with a private key of OpenSSH (or its agent's).

    Raises:
        OutputError: where there is a signature already, or ``ssh-keygen`` makes none.
    """
    place = folder / SIGNATURE
    if place.exists() or place.is_symlink():
        raise OutputError(f"{place}: exists already; a signature is never overwritten.")
    made = subprocess.run(
        [_program(), "-Y", "sign", "-n", _NAMESPACE, "-f", str(key), str(folder / RECORD)], check=False
    )
    if made.returncode or not place.is_file():
        raise OutputError(f"{place}: ssh-keygen made no signature with the key {key}.")
    return place


def check_signature(folder: Path, record: bytes, allowed: Path | None) -> str:
    """By whom the record was signed, one of those in the file of ``allowed`` signers (ssh-keygen(1)).

    Raises:
        DeclarationError: unless it was.
    """
    if allowed is None:
        raise Skipped("give --allowed-signers, a file as ssh-keygen(1) describes it")
    place = folder / SIGNATURE
    need(place.is_file() and not place.is_symlink(), f"there is no {SIGNATURE}.")
    common = ["-n", _NAMESPACE, "-s", str(place), "-f", str(allowed)]
    found = _asked("find-principals", common, b"")
    signers = [] if found is None else found.splitlines()
    need(bool(signers), f"{SIGNATURE} is of none of the allowed signers.")
    by = [who for who in signers if _asked("verify", [*common, "-I", who], record) is not None]
    need(bool(by), "the record is not what was signed, or by a key that is not allowed at this time.")
    return f"signed by {by[0]}"


def _asked(what: str, options: list[str], content: bytes) -> str | None:
    """What ``ssh-keygen -Y`` prints; ``None`` where it refuses."""
    command = [_program(), "-Y", what, *options]
    done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=_SECONDS)
    return None if done.returncode else done.stdout.decode(errors="replace")


def _program() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise OutputError("ssh-keygen: not found; signatures need OpenSSH 8.2 or later.")
    return found
