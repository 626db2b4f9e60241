"""What the tests of examining share: one desk for a file of tests, and answers written as a learner would."""

import textwrap

from course_utils.exercises import find, reference_source
from course_utils.grading.desk import Desk
from course_utils.grading.model import Answer

SEED = 7


def answer(exercise_id, source, **more):
    """An answer with this source, indented as the test likes."""
    return Answer(exercise_id, textwrap.dedent(source).strip() + "\n", **more)


def reference(exercise_id):
    """The reference, as a learner hands it in."""
    return Answer(exercise_id, reference_source(exercise_id))


def with_body(exercise_id, body):
    """An answer of the exercise's signature with this body."""
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return Answer(exercise_id, f"def {find(exercise_id).signature}:\n{body}\n")


def examine(runner, given, seed=SEED, **options):
    """The result of an answer."""
    return Desk(runner, seed, **options).examine(given.exercise_id, given)
