"""Compiled programs: room for them in a process, and where the commands keep them from one to the next."""

from __future__ import annotations

import os
from pathlib import Path

from private_mcmc.errors import OutputError

# XLA maps each program into memory, and a process may have so many mappings. A fit compiles some two hundred
# programs in 2,000 mappings; Linux allows a process 65,530.
_SHARE_KEPT, _NEEDED = 0.25, 4_000
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


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


def mappings() -> tuple[int, int] | None:
    """Mappings of this process, and how many it may have; ``None`` where the system does not say."""
    try:
        with _MAPS.open("rb") as lines:
            return sum(1 for _ in lines), int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None


def make_room() -> None:
    """Forget compiled programs where there are many, which bounds what a process of many fits holds.

    Called before anything is charged: a compiler that finds no room ends the process.

    Raises:
        OutputError: where too few mappings are left all the same.
    """
    found = mappings()
    if found is None or found[0] < _SHARE_KEPT * found[1]:
        return
    import jax  # here: commands need none of it for their help

    jax.clear_caches()  # type: ignore[no-untyped-call]
    found = mappings()
    if found is not None and found[1] - found[0] < _NEEDED:
        raise OutputError(
            f"this process has {found[0]:,} memory mappings and may have {found[1]:,}: too few are left to "
            "compile a run. Nothing was charged. Run it in a new process, or raise vm.max_map_count."
        )
