"""What a learner calls: `check`, `hint`, `solution`, `progress`. Each returns a card that shows itself."""

import dataclasses
from typing import Any

from course_utils.errors import ExerciseError
from course_utils.exercises import cards, solutions, under_nbgrader
from course_utils.exercises.catalogue import all_exercises, find
from course_utils.exercises.judging import Verdict, judge
from course_utils.exercises.model import Exercise
from course_utils.exercises.observing import LEARNER_SEED, observe
from course_utils.exercises.progress import Progress

_FORGOTTEN = object()


def check(exercise_id: str, answer: Any = _FORGOTTEN) -> Verdict:
    """The verdict on an answer: a card in a notebook, text elsewhere; `.outcome`, `.mistake`, `.points`.

    Raises ExerciseError for a call that cannot be meant (unknown id, swapped arguments, no answer), never for
    anything that the answer does. Only where nbgrader runs the notebook, an answer that is not right raises
    NotPassed: that is what nbgrader goes by.
    """
    exercise = _meant(exercise_id, answer)
    if under_nbgrader.running():  # its runs are not the learner's: they leave no progress behind
        with under_nbgrader.without_stderr():
            return under_nbgrader.settled(_verdict(exercise, answer))
    verdict = _verdict(exercise, answer)
    trouble = Progress.here().record(exercise.id, verdict.outcome)
    return dataclasses.replace(verdict, note=trouble)


def hint(exercise_id: str, number: int | None = None) -> cards.Card:
    """The next hint of an exercise each time it is called, or the one with that number, counted from 1."""
    exercise = find(exercise_id)
    total = len(exercise.hints)
    if number is not None and (type(number) is not int or number not in range(1, total + 1)):
        raise ExerciseError(
            f"{exercise.id} has {total} hints; there is no hint {number!r}.",
            expected=f"a whole number from 1 to {total}, or none for the next hint.",
        )
    saved = Progress.here()
    number = number or min(saved.hints(exercise.id) + 1, total)
    trouble = saved.record_hint(exercise.id, number)
    return cards.hint_card(exercise, number, trouble)


def solution(exercise_id: str) -> cards.Card:
    """Our answer, with a word to try first if it was never attempted. A release says that it has none."""
    exercise = find(exercise_id)
    if not solutions.available(exercise):
        return cards.no_solution_card(exercise)
    attempted = Progress.here().attempts(exercise.id) > 0
    return cards.solution_card(exercise, solutions.reference_source(exercise.id), attempted)


def progress() -> cards.Card:
    """A table of all exercises with outcome and points."""
    return cards.progress_card(all_exercises(), Progress.here())


def _verdict(exercise, answer):
    return judge(exercise, observe(exercise, answer, LEARNER_SEED), LEARNER_SEED)


def _meant(exercise_id, answer) -> Exercise:
    if not isinstance(exercise_id, str) and isinstance(answer, str):
        raise ExerciseError(
            "The two arguments are swapped.", cure=f"The id comes first: {find(answer).call}."
        )
    exercise = find(exercise_id)
    if answer is _FORGOTTEN:
        raise ExerciseError(f"There is no answer to check for {exercise.id}.", cure=f"Write {exercise.call}.")
    return exercise
