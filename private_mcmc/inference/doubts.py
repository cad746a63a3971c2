"""What to doubt of an answer before it is paid for, from public facts alone."""

from __future__ import annotations

from private_mcmc.planning import Prediction
from private_mcmc.report import number

# A predicted error, in posterior sds, beyond which intervals are mostly the prior's.
_LARGE_ERROR = 3.0
_FEW_ROWS = 30
# What bounding rows' influence may cost, in the same unit, before a person is told.
_LARGE_BIAS = 0.5


def doubts(n: int, prediction: Prediction, ranges: str = "") -> tuple[str, ...]:
    """Why what comes out may say little that the prior does not; from public facts only.

    ``ranges`` is said of a prediction for other ranges than those of the run.
    """
    found = []
    if n < _FEW_ROWS:
        found.append(
            f"{n} rows are few: noise that hides one of them hides most of what they say together, and the "
            "answer is nearly the prior's."
        )
    if not prediction.rms <= _LARGE_ERROR:
        found.append(
            f"The predicted error is {number(prediction.rms, 2)} {prediction.unit}: what comes out says "
            "little that the prior does not. "
            + (ranges or "More rows, a larger ε, fewer terms or narrower ranges help.")
        )
    if prediction.bias >= _LARGE_BIAS and not ranges:
        found.append(
            f"Bounding rows' influence is expected to move effects by {number(prediction.bias, 2)} "
            f"{prediction.unit} on average, and more where few rows tell of them: rare levels, rare "
            "outcomes, long tails. Narrower ranges, levels put together, or more rows help."
        )
    return tuple(found)
