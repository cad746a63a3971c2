"""A small, deterministic part of the soundness sweep; `make audit` runs all of it."""

from private_mcmc.audit.settings import POINTS, settings
from private_mcmc.audit.sweep import sweep


def test_the_sweep_covers_every_combination_of_at_least_three_hundred():
    every = list(settings())
    assert len(every) * len(POINTS) >= 300
    assert len({setting.name for setting in every}) == len(every)
    for field, least in (("kernel", 5), ("release", 4), ("adjacency", 3), ("model", 4)):
        assert len({getattr(setting, field) for setting in every}) >= least


def one_of_every_kernel():
    """One setting of each kernel, in which every model, release and adjacency occurs."""
    every = list(settings())
    kernels = dict.fromkeys(setting.kernel for setting in every)
    of_kernel = [[setting for setting in every if setting.kernel == kernel] for kernel in kernels]
    return [found[(17 * index) % len(found)] for index, found in enumerate(of_kernel)]


def test_no_claim_of_a_part_of_the_sweep_is_refuted():
    """Fails with probability 1e-6 if all claims hold."""
    part = one_of_every_kernel()
    for field in ("model", "kernel", "release", "adjacency"):
        seen = {getattr(setting, field) for setting in part}
        assert seen == {getattr(setting, field) for setting in settings()}, field
    found = sweep(part, num_runs=2_000, failure_probability=1e-6)
    assert found.sound, found.refuted
    assert sum(one.result.tightness > 0.3 for one in found.found) > len(found.found) / 4


def test_the_report_of_a_sweep_names_every_setting():
    part = list(settings())[:1]
    text = sweep(part, num_runs=400).report.to_html()
    assert part[0].name in text
    assert "sound" in text
