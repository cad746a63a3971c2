"""What pages show of measurements is what the kept files hold."""

import numpy as np

from benchmarks import boxes, large, noise_aware, written


def test_the_page_shows_the_errors_that_are_kept():
    page = (written.ROOT / "benchmarks/measured/boxes.md").read_text(encoding="utf-8")
    kept = written.kept("boxes.json")
    for name, errors in kept["errors"].items():
        assert f"| {name} | {' | '.join(f'{one:.2f}' for one in errors)} |" in page
    assert "\n".join(boxes.said(kept["norm over box, drawn"])) in page


def test_a_box_and_a_diagonal_metric_of_one_coordinate_are_one_clip():
    g = np.random.default_rng(0).normal(size=(400, 1)) * 3
    box, norm = boxes.of_box(g), boxes.of_diagonal(g)
    assert abs(box / norm - 1) < 0.02  # searches that end within a tenth of a bound
    # Where nothing is clipped the noise alone is left: 2C/m in units of H^{-1/2}.
    assert box <= 2 * np.abs(g).max() / boxes.GDP / np.sqrt(np.sum(g**2)) + 1e-9


def test_a_clip_that_leaves_nothing_of_the_slope_errs_without_bound():
    """Released at the truth a score of zeros would look right: its root is anywhere."""
    g = np.random.default_rng(1).normal(size=(400, 2))
    errors = [boxes.error(g, np.clip(g, -c, c), np.eye(2)) for c in (10.0, 0.1, 1e-4)]
    assert errors[0] < errors[1] < errors[2] and errors[2] > 100 * errors[0]


def test_the_page_says_of_a_large_folder_what_was_measured():
    page = (written.ROOT / "benchmarks/measured/large.md").read_text(encoding="utf-8")
    assert "\n".join(large.shown(written.kept("large.json"))) in page


def test_the_page_compares_with_noise_aware_peers_as_measured():
    page = (written.ROOT / "benchmarks/measured/utility.md").read_text(encoding="utf-8")
    assert "\n".join(noise_aware.page(written.kept(noise_aware.KEPT))) in page


def test_scores_of_intervals_against_a_posterior_that_is_known():
    """Means one sd off, intervals twice as wide, of which the second coefficient's misses the truth."""
    run = {"truth": [0.0, 3.5], "sd": [1.0, 2.0], "exact mean": [0.0, 0.0], "exact ends": [[-1, 1], [-2, 2]]}
    run |= {"ours mean": [1.0, -2.0], "ours ends": [[-1, 3], [-6, 2]]}
    assert noise_aware.scores([run, run], "ours") == (1.0, 2, 4, 2.0)
