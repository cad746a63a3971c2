"""What pages show of measurements is what the kept files hold."""

import numpy as np

from benchmarks import boxes, large, written


def test_the_page_shows_the_errors_that_are_kept():
    page = (written.ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    for name, errors in written.kept("boxes.json")["errors"].items():
        assert f"| {name} | {' | '.join(f'{one:.2f}' for one in errors)} |" in page


def test_a_box_and_a_diagonal_metric_of_one_coordinate_are_one_clip():
    g = np.random.default_rng(0).normal(size=(400, 1)) * 3
    information = np.array([[400.0]])
    box, norm = boxes.of_box(g, information), boxes.of_diagonal(g, information)
    assert abs(box / norm - 1) < 0.02  # searches that end within a tenth of a bound
    # Where nothing is clipped the noise alone is left: 2C/m in units of H^{-1/2}.
    assert box <= 2 * np.abs(g).max() / boxes.GDP / 20 + 1e-9


def test_the_page_says_of_ten_million_rows_what_was_measured():
    page = (written.ROOT / "docs/scale.md").read_text(encoding="utf-8")
    assert "\n".join(large.shown(written.kept("large.json"))) in page
