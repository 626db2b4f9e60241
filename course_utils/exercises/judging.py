"""The half of a check that decides, from plain data alone: which outcome, which mistake, which words.

Nothing here runs what a learner wrote. The known wrong answers are run (they are ours), once a seed.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_utils.exercises.model import Exercise, Mistake, Outcome
from course_utils.exercises.observing import LEARNER_SEED, cases_of, observe
from course_utils.exercises.plain import is_numeric, plain, same

EXPLAINS = {
    Outcome.RAISED: "An error stopped your answer before it gave a result.",
    Outcome.TIMED_OUT: "Your answer did not come to an end.",
}


@dataclass(frozen=True)
class Line:
    """One line of the table "yours beside expected"."""

    label: str
    yours: Any
    expected: Any
    equal: bool


@dataclass(frozen=True)
class Verdict:
    """What a check found: `outcome`, `mistake` (its name, or None), `points`, and the words for the learner."""

    exercise: Exercise = field(repr=False)
    outcome: Outcome
    mistake: str | None = None
    message: str = ""
    try_this: str = ""
    about: str = ""
    lines: tuple[Line, ...] = ()
    where: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.outcome is Outcome.PASSED

    @property
    def points(self) -> int:
        """The points earned."""
        return self.exercise.points if self.passed else 0

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        from course_utils.exercises import cards

        return cards.verdict_text(self)

    def _repr_html_(self) -> str:
        from course_utils.exercises import cards

        return cards.verdict_html(self)


def judge(exercise: Exercise, records: list[dict], seed: int = LEARNER_SEED) -> Verdict:
    """The verdict over the records that `observing.observe` made with the same seed."""
    cases = cases_of(exercise, seed)
    kinds = [record["kind"] for record in records]
    if kinds == ["not attempted"]:
        return _not_attempted(exercise)
    expected = [plain(exercise.expected(case)) for case in cases]
    wrong = _first_wrong(exercise, records, expected)
    if wrong is None and len(records) == len(cases):
        return Verdict(exercise, Outcome.PASSED, message=_praise(exercise, len(cases)))
    return _failure(exercise, cases, records, expected, wrong or 0, seed)


@functools.lru_cache(maxsize=256)
def known_wrong_records(exercise: Exercise, mistake: Mistake, variant: int, seed: int) -> list[dict]:
    """What a known wrong answer gives on the cases of a seed; run once."""
    return observe(exercise, mistake.answers[variant], seed)


def _not_attempted(exercise):
    missing = f"Write {exercise.name}" if exercise.is_function else f"Give {exercise.name} a value"
    return Verdict(
        exercise,
        Outcome.NOT_ATTEMPTED,
        message=f"Nothing to check yet. {missing}: {exercise.length}.",
        try_this=f'Stuck? hint("{exercise.id}") helps a little at a time.',
    )


def _first_wrong(exercise, records, expected):
    for index, record in enumerate(records):
        right = record["kind"] == "value" and same(record["value"], expected[index], exercise.tolerance)
        if not right:
            return index
    return None


def _praise(exercise, cases):
    return "Right." if cases == 1 else f"Right, in all {cases} cases."


def _failure(exercise, cases, records, expected, wrong, seed):
    record, case = records[wrong], cases[wrong]
    outcome = {"raised": Outcome.RAISED, "timed out": Outcome.TIMED_OUT}.get(record["kind"], Outcome.FAILED)
    mistake = _recognised(exercise, cases, records, expected, seed)
    seen = record.get("value")
    if mistake:
        message, advice = _said(mistake.went_wrong, case, seen, expected[wrong]), mistake.try_this
    else:
        message, advice = _unknown_mistake(exercise, record, expected[wrong])
    return Verdict(
        exercise,
        outcome,
        mistake=mistake.name if mistake else None,
        message=message,
        try_this=advice,
        about=case.get("about", ""),
        lines=_beside(seen, expected[wrong], exercise.tolerance) if record["kind"] == "value" else (),
        where=record.get("where", ""),
    )


def _said(text, case, seen, expected):
    return text(case, seen, expected) if callable(text) else text


def _recognised(exercise, cases, records, expected, seed) -> Mistake | None:
    return next((m for m in exercise.mistakes if _is_this(exercise, m, cases, records, expected, seed)), None)


def _is_this(exercise, mistake, cases, records, expected, seed):
    if mistake.recognises:
        return _asked(mistake, cases, records, expected)
    return any(
        _alike(records, known_wrong_records(exercise, mistake, variant, seed), exercise.tolerance)
        for variant in range(len(mistake.answers))
    )


def _asked(mistake, cases, records, expected):
    if any(record["kind"] != "value" for record in records):
        return False
    try:
        return bool(mistake.recognises(cases, [record["value"] for record in records], expected))
    except (TypeError, KeyError, ValueError, IndexError, ZeroDivisionError, AttributeError):
        return False  # what was seen has another form than this mistake gives


def _alike(records, others, tolerance):
    return len(records) == len(others) and all(
        _alike_one(a, b, tolerance) for a, b in zip(records, others, strict=True)
    )


def _alike_one(one, other, tolerance):
    if one["kind"] != other["kind"]:
        return False
    if one["kind"] == "value":
        return same(one["value"], other["value"], tolerance)
    if one["kind"] == "raised":
        return one["type"] == other["type"]
    return one["kind"] == "timed out" or one["message"] == other["message"]


def _unknown_mistake(exercise, record, expected):
    hint = f'hint("{exercise.id}") points the way.'
    if record["kind"] == "unusable":
        return record["message"], hint
    if record["kind"] == "raised":
        told = f": {record['message']}" if record["message"] else "."
        return (
            f"{EXPLAINS[Outcome.RAISED]} {record['type']}{told}",
            "Call it yourself in a new cell, then mend that.",
        )
    if record["kind"] == "timed out":
        seconds = record["seconds"]
        return (
            f"{EXPLAINS[Outcome.TIMED_OUT]} It was stopped after {seconds:g} seconds.",
            "Look for a loop whose condition never changes, or a wait for something that never comes.",
        )
    return _difference(record["value"], expected) or "The result is not the expected one.", hint


def _difference(seen, expected):
    """What strikes the eye about a wrong result, in a sentence; empty if nothing does."""
    if isinstance(seen, dict) and isinstance(expected, dict):
        told = [
            _difference(seen.get(key), expected[key])
            for key in expected
            if not same(seen.get(key), expected[key])
        ]
        return next((text for text in told if text), "")
    if not (is_numeric(seen) and is_numeric(expected)):
        return ""
    return _numeric_difference(np.asarray(seen, float), np.asarray(expected, float))


def _numeric_difference(seen, expected):
    if seen.shape != expected.shape:
        return f"The shape is {seen.shape}, where {expected.shape} is expected."
    if np.isnan(seen).any() and not np.isnan(expected).any():
        return (
            "There is a NaN (not a number) in the result: something was divided by zero, or of infinite size."
        )
    if np.allclose(seen, -expected) and np.any(expected):
        return "The sign is the wrong way round."
    if np.all(expected != 0):
        ratios = seen / expected
        if (
            np.allclose(ratios, ratios.flat[0], rtol=1e-4)
            and ratios.flat[0] > 0
            and not np.allclose(ratios, 1)
        ):
            return _factor(float(ratios.flat[0]))
    return ""


def _factor(ratio):
    nice = ratio if ratio > 1 else 1 / ratio
    if abs(nice - round(nice, 2)) > 1e-3 * nice:
        return ""
    return f"The result is exactly {nice:.4g} times too {'large' if ratio > 1 else 'small'}."


def _beside(seen, expected, tolerance):
    if isinstance(seen, dict) and isinstance(expected, dict):
        keys = [*expected, *(key for key in seen if key not in expected)]
        return tuple(
            Line(
                k,
                seen.get(k, "missing"),
                expected.get(k, "not there"),
                same(seen.get(k), expected.get(k), tolerance),
            )
            for k in keys
        )
    return (Line("result", seen, expected, same(seen, expected, tolerance)),)
