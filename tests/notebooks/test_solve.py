"""Solved lessons: the reference stands in the answer cell; what a check said is read from the run."""

import pytest

from course_utils import exercises
from course_utils.notebooks import solve, sources

LESSON = """\
# %% [markdown]
# # 04 · Two answers?

# %%
import course_utils as cu

# %% tags=["exercise"] exercise_id="{id}"
{name} = None

# %%
{check}
"""


@pytest.fixture(scope="module")
def exercise():
    """Any exercise that is quick to check."""
    return next(exercise for exercise in exercises.all_exercises() if not exercise.slow)


def lesson(exercise, check):
    return LESSON.format(id=exercise.id, name=exercise.name, check=check)


def test_the_reference_takes_the_place_of_the_answer_and_nothing_else_changes(exercise, write):
    before = sources.read(write(lesson(exercise, exercise.call)))
    after = solve.solved(before)
    assert after.cells[2].text == exercises.reference_source(exercise.id).rstrip("\n")
    assert [cell.id for cell in after.cells] == [cell.id for cell in before.cells]
    assert [cell for cell in after.cells if cell.index != 2] == [
        cell for cell in before.cells if cell.index != 2
    ]


def test_the_outcome_of_each_check_is_what_the_notebook_saw(exercise, write, monkeypatch):
    assert solve.outcomes(write(lesson(exercise, exercise.call))) == {exercise.id: "passed"}
    assert solve.outcomes(write(lesson(exercise, "1"))) == {exercise.id: "not attempted"}
    wrong = f"{exercise.name} = lambda *_: 'wrong'"
    monkeypatch.setattr(exercises, "reference_source", lambda exercise_id: wrong)
    assert solve.outcomes(write(lesson(exercise, exercise.call)))[exercise.id] in ("failed", "raised")
