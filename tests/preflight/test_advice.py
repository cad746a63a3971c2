"""Advised numbers are rounded to the safe side and never by more than a digit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.preflight.advice import rounded_down, rounded_up

VALUES = st.floats(1e-9, 1e9, allow_nan=False)


@pytest.mark.long
@given(VALUES)
def test_rounding_down_stays_below_within_two_percent(value: float) -> None:
    assert 0.979 * value < rounded_down(value) <= value


@given(VALUES)
def test_rounding_up_stays_above_within_two_percent(value: float) -> None:
    assert value <= rounded_up(value) < 1.021 * value


@given(VALUES)
def test_rounded_numbers_are_short(value: float) -> None:
    for rounded in (rounded_down(value), rounded_up(value)):
        assert float(f"{rounded:.3g}") == rounded


@given(st.integers(10, 99), st.integers(-6, 6))
def test_short_numbers_stay_as_they_are(digits: int, power: int) -> None:
    value = float(f"{digits}e{power}")
    assert rounded_down(value) == value
    assert rounded_up(value) == value
