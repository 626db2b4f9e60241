"""A student's results as Gradescope reads those of an autograder: `results.json`.

https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from typing import Any

from course_utils.grading.gradebook import beside, lacks_points, number, whole
from course_utils.grading.model import Graded, Result


def results(graded: Graded) -> dict[str, Any]:
    """The object that goes into results.json. Its score counts what lateness took off, and points by hand."""
    notes = [*graded.notes, *beside(graded)]
    if not whole(graded):
        notes.append("Not everything could be graded yet; the score will change.")
    return {
        "score": round(graded.earned, 2),
        "output": "\n".join(notes),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [test(result) for result in graded.results],
        "extra_data": {"student": graded.student, "key": graded.key, "status": graded.status},
    }


def test(result: Result) -> dict[str, Any]:
    """One exercise. What an instructor should look at is left out: students may see all of this."""
    told: dict[str, Any] = {
        "name": result.title,
        "number": result.exercise_id,
        "score": round(result.points, 2),
        "max_score": result.possible,
        "output": output(result),
        "output_format": "text",
        "visibility": "visible",
        "tags": [f"lesson {result.exercise_id[:2]}"],
        "extra_data": {"outcome": result.outcome, "mistake": result.mistake},
    }
    if lacks_points(result):
        return told
    return {**told, "status": "passed" if result.points >= result.possible else "failed"}


def output(result: Result) -> str:
    """All that the student is told, as plain text."""
    head = f"{result.outcome}{f', {result.mistake}' if result.mistake else ''}"
    if result.by_hand:
        head += f"; {number(result.points)} points by hand"
    table = [f"{line.label}: yours {line.yours}, expected {line.expected}" for line in _shown(result)]
    parts = [head, result.message, result.about, result.where, *table, result.try_this]
    return "\n".join([*filter(None, parts), *result.notes, *filter(None, [result.comment])])


def _shown(result):
    return [line for line in result.lines if not line.equal]
