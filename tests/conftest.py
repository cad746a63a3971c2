"""Shared test settings; the tiers ``slow``, ``long`` and ``some`` (see pyproject.toml) and slices of them."""

import contextlib
import gc
import os
import re
import signal
import tempfile
import time
import zlib
from collections import defaultdict

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import settings
from jax._src import compiler
from jaxtyping import install_import_hook

from tests.shapes import CHECKED

# Array shapes in the kernels' types are checked in every call; before anything imports them.
install_import_hook(CHECKED, "tests.shapes.checked")

from private_mcmc.report import document  # noqa: E402
from private_mcmc.system import OLDER_EMITTERS  # noqa: E402

# Charts of the same numbers are drawn again in every study that is saved, and at every look at it.
DRAWN = {}
DRAW = document.svg


def drawn_once(*plot):
    if (key := repr(plot)) not in DRAWN:
        DRAWN[key] = DRAW(*plot)
    return DRAWN[key]


document.svg = drawn_once

settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("default")

STARTED = time.monotonic()

# Tests compile the same programs again and again, from functions of their own: from the second time on they
# are read from a folder of this process and those that it starts, which ends with it.
if jax.config.jax_compilation_cache_dir is None:
    COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
    jax.config.update("jax_compilation_cache_dir", COMPILED.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def rng():
    """A generator with a fixed seed: statistical tests state their failure rate for fresh seeds."""
    return np.random.default_rng(20260101)


@pytest.fixture
def float64():
    """As ``numpyro.enable_x64()``, without which readings refuse to be evaluated."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def digits():
    """What one test sets of mpmath's global precision, the next one in the same process must not inherit."""
    with mpmath.workdps(60):
        yield


def pytest_addoption(parser):
    tiers = parser.getgroup("tiers")
    tiers.addoption(
        "--slice", metavar="K/N", help="run the part K mod N of N parts, its files in an order that K decides"
    )
    tiers.addoption("--budget", type=float, metavar="SECONDS", help="start no test later than this")
    tiers.addoption("--each", type=int, metavar="SECONDS", default=0, help="fail a test that takes longer")


# Files of few and long tests: two processes that came to them last would not end together.
LONG_FILES = ("tests/soundness/", "tests/auditing/", "tests/golden/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    # Before pytest's own hook chooses by marker.
    mark_cases(items)
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))
    chosen = config.getoption("--slice")
    if chosen:
        kept = part(items, *map(int, chosen.split("/")))
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


def pytest_collection_finish():
    """What was imported stays, and traces are many small objects: the collector of garbage need not look at
    them at every turn."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def mark_cases(items):
    """Of every test with ``some(k)``: k cases, evenly spread, are slow and the rest long."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("some"):
            tests[item.nodeid.split("[")[0]].append(item)
    for cases in tests.values():
        (k,) = cases[0].get_closest_marker("some").args
        default = {j * len(cases) // k for j in range(k)}
        for j, case in enumerate(cases):
            case.add_marker("slow" if j in default else "long")


def part(items, k, n):
    """The items of part ``k mod n``; which part an item is in depends on its name alone.

    Tests of one case of a file are in one part: what they share, such as a reading, is made once.
    """
    cases = [re.sub(r"::[^[]*\[", "[", item.nodeid) for item in items]
    kept = [item for item, case in zip(items, cases, strict=True) if zlib.crc32(case.encode()) % n == k % n]
    # A part that ends early should not always leave out the same files.
    return sorted(kept, key=lambda item: zlib.crc32(f"{k} {item.location[0]}".encode()))


# XLA takes longer to optimise a program of a few rows than the program runs, and twice as long with its newer
# emitters. What is about the bits of numbers and of streams is compiled as users compile it, and so is the
# whole long tier.
QUICK = [*OLDER_EMITTERS.items(), ("xla_cpu_parallel_codegen_split_count", 1)]
USERS_OPTIONS = compiler.get_compile_options


def compile_options(*args, **kwargs):
    options = USERS_OPTIONS(*args, **kwargs)
    if jax.config.read("jax_disable_most_optimizations"):
        options.env_option_overrides = [*options.env_option_overrides, *QUICK]
    return options


compiler.get_compile_options = compile_options
AS_USERS_COMPILE = (
    "tests/golden/",
    "tests/soundness/test_rounding",
    *(f"tests/inference/test_{name}.py" for name in ("streams",)),
    *(f"tests/kernels/test_{name}.py" for name in ("chacha", "clip_extremes", "noise_ahead", "rounding")),
)


def pytest_runtest_setup(item):
    short = not item.get_closest_marker("long")
    bits = item.nodeid.startswith(AS_USERS_COMPILE)
    jax.config.update("jax_disable_most_optimizations", short and not bits)
    budget = item.config.getoption("--budget")
    if budget is not None and time.monotonic() - STARTED > budget:
        pytest.skip(f"not started: the {budget:g} seconds of this run are over")


@contextlib.contextmanager
def within(seconds):
    """Fails the test where what is done within takes longer."""

    def ended(*_):
        pytest.fail(f"longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    seconds = item.config.getoption("--each")
    with within(seconds) if seconds else contextlib.nullcontext():
        return (yield)
