"""What the text and the HTML of a card have in common."""

import itertools

from course_utils.exercises.model import Outcome

GLYPHS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.RAISED: "!",
    Outcome.TIMED_OUT: "∞",
    Outcome.NOT_ATTEMPTED: "○",
}
LABELS = {
    Outcome.PASSED: "Passed",
    Outcome.FAILED: "Not right yet",
    Outcome.RAISED: "Raised an error",
    Outcome.TIMED_OUT: "Timed out",
    Outcome.NOT_ATTEMPTED: "Not attempted",
}
MOST_LINES = 12


def points(exercise, outcome: Outcome) -> str:
    """ "2 of 2 points"."""
    earned = exercise.points if outcome is Outcome.PASSED else 0
    return f"{earned} of {counted(exercise.points, 'point')}"


def advice(found) -> str:
    """The label of what to do next: particular where the mistake is known."""
    return "Try this" if found.mistake else "Next"


def counted(number: int, thing: str) -> str:
    """ "1 point", "2 points"."""
    return f"{number} {thing}{'s' * (number != 1)}"


def shown(lines) -> tuple[list, str]:
    """The lines that a card has room for, and a word on those left out."""
    left = lines[MOST_LINES:]
    wrong = sum(not line.equal for line in left)
    return list(
        lines[:MOST_LINES]
    ), f"… and {counted(len(left), 'line')} more, {wrong} of them wrong" if left else ""


def by_lesson(rows):
    """The rows of the progress table in groups: (lesson, rows of it)."""
    return [(lesson, list(group)) for lesson, group in itertools.groupby(rows, key=lambda row: row[0].lesson)]


def total(rows) -> tuple[int, int]:
    """Points earned and points possible."""
    earned = sum(exercise.points for exercise, outcome, _ in rows if outcome is Outcome.PASSED)
    return earned, sum(exercise.points for exercise, *_ in rows)
