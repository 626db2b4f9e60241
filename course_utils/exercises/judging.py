"""The half of a check that decides, from plain data alone: which outcome, which mistake, which words.

Nothing here runs what a learner wrote. The known wrong answers are run (they are ours), once a seed, and
each on as many cases only as it takes to tell that it is another one.
"""

import functools
import re
from dataclasses import dataclass, field

from course_utils.exercises.model import Exercise, Mistake, Outcome
from course_utils.exercises.observing import LEARNER_SEED, cases_of, observe
from course_utils.exercises.plain import plain, same
from course_utils.exercises.side_by_side import Line, beside, difference

# What code that expects a certain form raises when it meets another one.
ODD_FORM = (TypeError, KeyError, ValueError, IndexError, ArithmeticError, AttributeError)
NOTHING = {"kind": "unusable", "message": "No result came back for this case."}


@dataclass(frozen=True)
class Verdict:
    """What a check found: `outcome`, `mistake` (its name, or None), `points`, and the learner's words."""

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

        return cards.text.verdict(self)

    def _repr_html_(self) -> str:
        from course_utils.exercises import cards

        return cards.html.verdict(self)


def judge(exercise: Exercise, records: list[dict], seed: int = LEARNER_SEED) -> Verdict:
    """The verdict over the records that `observing.observe` made with the same seed."""
    if [record["kind"] for record in records] == ["not attempted"]:
        return _not_attempted(exercise)
    cases = cases_of(exercise, seed)
    records = [*records[: len(cases)], *[NOTHING] * (len(cases) - len(records))]
    expected = expected_of(exercise, seed)
    right = [_is_right(exercise, *each) for each in zip(records, expected, strict=True)]
    if all(right):
        return Verdict(exercise, Outcome.PASSED, message=_praise(len(cases)))
    return _failure(exercise, cases, records, expected, right, seed)


@functools.lru_cache(maxsize=256)
def expected_of(exercise: Exercise, seed: int) -> tuple:
    """The right results of the cases of a seed, as plain data; computed once, be it for a hundred answers."""
    return tuple(plain(exercise.expected(case)) for case in cases_of(exercise, seed))


@functools.lru_cache(maxsize=4096)
def known_wrong_record(exercise: Exercise, mistake: Mistake, variant: int, seed: int, index: int) -> dict:
    """What a known wrong answer gives on one case of a seed; run once."""
    return observe(exercise, mistake.answers[variant], seed, only=index)[0]


def _not_attempted(exercise):
    missing = f"Write {exercise.name}" if exercise.is_function else f"Give {exercise.name} a value"
    return Verdict(
        exercise,
        Outcome.NOT_ATTEMPTED,
        message=f"Nothing to check yet. {missing}: {exercise.length}.",
        try_this=f'If you are stuck, `cu.hint("{exercise.id}")` helps a little at a time.',
    )


def _is_right(exercise, record, expected):
    return record["kind"] == "value" and same(record["value"], expected, exercise.tolerance)


def _praise(cases):
    return "Right." if cases == 1 else f"Right, in all {cases} cases."


def _failure(exercise, cases, records, expected, right, seed):
    first = right.index(False)
    record, case, wanted = records[first], cases[first], expected[first]
    mistake = _recognised(exercise, cases, records, expected, first, seed)
    message, advice = (
        _explained(exercise, mistake, case, record, wanted)
        if mistake
        else _unexplained(exercise, record, wanted)
    )
    return Verdict(
        exercise,
        {"raised": Outcome.RAISED, "timed out": Outcome.TIMED_OUT}.get(record["kind"], Outcome.FAILED),
        mistake=mistake.name if mistake else None,
        message=message,
        try_this=advice,
        about=_about(case, right) if "where" in record or record["kind"] == "value" else "",
        lines=_lines(exercise, record, wanted),
        where=record.get("where", ""),
    )


def _lines(exercise, record, wanted):
    if record["kind"] != "value":
        return ()
    lines = beside(record["value"], wanted, exercise.tolerance)
    return lines if exercise.shows_expected else tuple(line.without_expected() for line in lines)


def _about(case, right):
    told = case.get("about", "")
    return f"{told} ({sum(right)} of {len(right)} cases right)" if told and any(right) else told


def _explained(exercise, mistake, case, record, expected):
    seen = record.get("value")
    try:
        text = mistake.explained(case, seen, expected)
    except ODD_FORM:
        text = record.get("message") or _odd(exercise, seen, expected)
    return text, mistake.try_this


def _odd(exercise, seen, expected):
    return difference(seen, expected, exercise.tolerance) or "The result is not the expected one."


def _recognised(exercise, cases, records, expected, first, seed) -> Mistake | None:
    """The first known mistake that fits all cases, looked for from the first wrong case on."""
    order = [first, *(i for i in range(len(cases)) if i != first)]

    def fits(mistake):
        if mistake.recognises:
            return _asked(mistake, cases, records, expected)
        return any(fits_variant(mistake, variant) for variant in range(len(mistake.answers)))

    def fits_variant(mistake, variant):
        known = (known_wrong_record(exercise, mistake, variant, seed, i) for i in order)
        return all(_alike(records[i], k, exercise.tolerance) for i, k in zip(order, known, strict=True))

    return next((mistake for mistake in exercise.mistakes if fits(mistake)), None)


def _asked(mistake, cases, records, expected):
    if any(record["kind"] != "value" for record in records):
        return False
    try:
        return bool(mistake.recognises(cases, [record["value"] for record in records], expected))
    except ODD_FORM:
        return False


def _alike(one, other, tolerance):
    if one["kind"] != other["kind"]:
        return False
    if one["kind"] == "value":
        return same(one["value"], other["value"], tolerance)
    if one["kind"] == "raised":
        return one["type"] == other["type"] and _unnumbered(one["message"]) == _unnumbered(other["message"])
    return one.get("message") == other.get("message")  # neither has one: both timed out


def _unnumbered(message):
    """The message without what Keras and Python count: the second layer of a process is called dense_1."""
    return re.sub(r"(?<=[a-z])_\d+\b|\b0x[0-9a-f]+\b", "", message)


def _unexplained(exercise, record, expected):
    """What can be said of an answer that is none of the known mistakes, and what to do next."""
    hint = f'`cu.hint("{exercise.id}")` points the way.'
    if record["kind"] == "value":
        return _odd(exercise, record["value"], expected), hint
    if record["kind"] == "raised":
        told = f"{record['type']}: {record['message']}" if record["message"] else record["type"]
        return f"An error stopped your answer. {told}", _after_an_error(exercise, record["message"])
    if record["kind"] == "timed out":
        seconds = round(record["seconds"], 2)
        return (
            f"Your answer had not come to its end after {seconds:g} seconds and was stopped.",
            "Look for a loop whose condition never changes, or a wait for something that never comes.",
        )
    return record.get("message", NOTHING["message"]), hint


def _after_an_error(exercise, message):
    if exercise.is_function and "unexpected keyword argument" in message:
        return f"Keep the parameters' names, which the check uses: `{exercise.signature}`."
    return "Call it yourself in a new cell until it runs."
