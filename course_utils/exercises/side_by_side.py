"""Yours beside expected: what strikes the eye about a wrong result, and how two values are shown together."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from course_utils.exercises.plain import is_numeric, same

WINDOW = 10  # entries shown of a longer list
LONGEST_TEXT = 300


@dataclass(frozen=True)
class Line:
    """One line of the table: a label, both values as plain data, and whether they are equal."""

    label: str
    yours: Any
    expected: Any
    equal: bool

    def texts(self) -> tuple[str, str]:
        """Both values as text, with as many digits as it takes to see the difference, lists aligned."""
        for digits in (5, 9, 17):
            yours, expected = _texts(self.yours, self.expected, digits)
            if self.equal or yours != expected:
                break
        return yours, expected

    def without_expected(self) -> "Line":
        """The line of an exercise whose card must not give the answer away."""
        return self if self.equal else replace(self, expected=_HIDDEN)


def beside(yours: Any, expected: Any, tolerance: float) -> tuple[Line, ...]:
    """The lines of the table: one for each key of a dict, or a single one."""
    if not (isinstance(yours, dict) and isinstance(expected, dict)):
        return (Line("result", yours, expected, same(yours, expected, tolerance)),)
    lines = []
    for key in [*expected, *(key for key in yours if key not in expected)]:
        mine, theirs = yours.get(key, _MISSING), expected.get(key, _MISSING)
        lines.append(Line(key, mine, theirs, same(mine, theirs, tolerance)))
    return tuple(lines)


def difference(yours: Any, expected: Any, tolerance: float = 1e-5) -> str:
    """What is odd about a wrong result, in a sentence: shape, NaN, a factor. Empty if nothing strikes.

    Of a dict, a factor is told only where all its wrong numbers have the same: that of one would mislead.
    """
    if isinstance(yours, dict) and isinstance(expected, dict):
        wrong = [line for line in beside(yours, expected, tolerance) if not line.equal]
        pairs = [(line.yours, line.expected) for line in wrong if is_numeric(line.expected)]
    else:
        pairs = [(yours, expected)] if is_numeric(expected) else []
    odd = next((text for text in itertools.starmap(_odd_form, pairs) if text), "")
    factors = {_factor(*pair) for pair in pairs}
    return odd or (factors.pop() if len(factors) == 1 else "")


@dataclass(frozen=True)
class _Instead:
    """Words that stand where one side has no value to show."""

    words: str

    def __repr__(self):
        return self.words


_MISSING = _Instead("(missing)")
_HIDDEN = _Instead("(something else)")


def _odd_form(yours, expected):
    """A shape that is not the expected one, or a NaN."""
    if not is_numeric(yours):
        return ""
    yours, expected = np.asarray(yours, float), np.asarray(expected, float)
    if yours.shape != expected.shape:
        return f"The shape is {yours.shape}, where {expected.shape} is expected."
    if np.isnan(yours).any() and not np.isnan(expected).any():
        return "There is a NaN (not a number) in it: 0 was divided by 0, or infinity by infinity."
    return ""


def _factor(yours, expected):
    """The factor between the two, if it is one and the same everywhere and short to write."""
    if not is_numeric(yours):
        return ""
    yours, expected = np.asarray(yours, float), np.asarray(expected, float)
    if yours.shape != expected.shape or not yours.size:
        return ""
    if not np.all(expected) or not np.all(np.isfinite(yours)):
        return ""
    ratio = float((yours / expected).flat[0])
    if ratio == 0 or not np.allclose(yours, ratio * expected, rtol=1e-4) or np.isclose(ratio, 1, rtol=1e-4):
        return ""
    size = max(abs(ratio), 1 / abs(ratio))
    if abs(size - round(size, 1)) > 1e-3:
        return ""
    if 1 + 1e-4 < size < 1.01:
        return (
            f"The result is close, but {100 * (size - 1):.2g} % too {'large' if abs(ratio) > 1 else 'small'}."
        )
    scale = "" if size < 1.01 else f"{size:.4g} times too {'large' if abs(ratio) > 1 else 'small'}"
    sign = "of the wrong sign" if ratio < 0 else ""
    return f"The result is {' and '.join(part for part in (scale, sign) if part)}."


def _texts(yours, expected, digits):
    if _is_list(yours) and _is_list(expected) and len(yours) and len(expected):
        return _lists(list(yours), list(expected), digits)
    return _text(yours, digits), _text(expected, digits)


def _is_list(value):
    return isinstance(value, list | np.ndarray)


def _lists(yours, expected, digits):
    """Two lists, entry under entry; of long ones, a window around the first difference."""
    if all(_is_list(row) for row in [*yours, *expected]):
        return _rows(yours, expected, digits)
    first, last = _window(yours, expected)
    mine = [_text(value, digits) for value in yours[first:last]]
    theirs = [_text(value, digits) for value in expected[first:last]]
    widths = [max(map(len, pair)) for pair in zip(mine, theirs, strict=False)]
    widths += [0] * abs(len(mine) - len(theirs))
    return _row(mine, widths, first, len(yours)), _row(theirs, widths, first, len(expected))


def _rows(yours, expected, digits):
    """Two lists of lists, a row under the other."""
    pairs = [_texts(a, b, digits) for a, b in zip(yours, expected, strict=False)][:WINDOW]
    more_yours = [_text(row, digits) for row in yours[len(expected) :]]
    more_expected = [_text(row, digits) for row in expected[len(yours) :]]
    return "\n".join([a for a, _ in pairs] + more_yours), "\n".join([b for _, b in pairs] + more_expected)


def _window(yours, expected):
    if max(len(yours), len(expected)) <= WINDOW:
        return 0, WINDOW
    unequal = [i for i, (a, b) in enumerate(zip(yours, expected, strict=False)) if not same(a, b)]
    first = max((unequal[0] if unequal else min(len(yours), len(expected))) - 3, 0)
    return first, first + WINDOW


def _row(texts, widths, first, length):
    """One list as text, each entry as wide as its column; what is left out is counted."""
    entries = ", ".join(text.rjust(width) for text, width in zip(texts, widths, strict=False))
    before = f"… {first} more, " if first else ""
    after = length - first - len(texts)
    return f"[{before}{entries}{f', … {after} more' if after else ''}]"


def _text(value, digits):
    if isinstance(value, bool | np.bool_ | _Instead) or value is None:
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}"
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + "…")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(item, digits)}" for key, item in value.items()) + "}"
    if _is_list(value) and len(value):
        return _lists(list(value), list(value), digits)[0]
    return "[]"
