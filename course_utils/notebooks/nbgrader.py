"""What nbgrader needs to know of a lesson's cells, so that its own tools take our notebooks.

An answer cell is a *solution*: the learner's. The cell that checks it is a *grade*: locked, and worth the
exercise's points where it runs without an error.
https://nbgrader.readthedocs.io/en/stable/contributor_guide/metadata.html
"""

import re

SCHEMA = 3

_CHECK = re.compile(r"""^[^#\n]*\bcheck\(\s*["']([^"']+)["']""", re.MULTILINE)


def checked(text: str) -> list[str]:
    """Ids of the exercises that the code of a cell checks, in order."""
    return _CHECK.findall(text)


def cell_metadata(cell) -> dict:
    """What stands under "nbgrader" in the metadata of a `sources.Cell`: {} for a cell that it need not know.

    An exercise that the course does not have gets none; the lint says that it is unknown.
    """
    if cell.kind != "code":
        return {}
    if cell.exercise_id is not None:
        return _answer(cell.exercise_id) if _points(cell.exercise_id) else {}
    ids = checked(cell.text)
    return _check(ids[0], _points(ids[0])) if ids and _points(ids[0]) else {}


def _answer(exercise_id):
    return _common("answer", exercise_id) | {"grade": False, "locked": False, "solution": True}


def _check(exercise_id, points):
    graded = {"grade": True, "locked": True, "points": points, "solution": False}
    return _common("check", exercise_id) | graded


def _common(kind, exercise_id):
    # A grade id is made of letters, digits, _ and -.
    grade_id = f"{kind}-{exercise_id.replace('.', '-')}"
    return {"schema_version": SCHEMA, "grade_id": grade_id, "task": False}


def _points(exercise_id):
    from course_utils.exercises import all_exercises

    return {exercise.id: exercise.points for exercise in all_exercises()}.get(exercise_id)
