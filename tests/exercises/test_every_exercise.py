"""Every exercise of the course: right answers pass, wrong ones fail under their own name, over several seeds.

COURSE_SEEDS sets how many seeds; without it 5, and the slow exercises are proved on one.
"""

import ast
import importlib
import inspect
import os
import subprocess
import sys

import pytest

from course_utils.exercises import all_exercises, reference_source
from course_utils.exercises.observing import cases_of, to_text
from course_utils.exercises.plain import plain
from course_utils.exercises.proving import fewest_mistakes, problems, still_to_do, stub

SEEDS = range(int(os.environ.get("COURSE_SEEDS", "5")))
SLOW_SEEDS = SEEDS if "COURSE_SEEDS" in os.environ else SEEDS[:1]
EXERCISES = all_exercises()

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


@every_exercise
def test_nothing_of_it_is_left_to_do(exercise):
    left = still_to_do(exercise)
    assert not left, "\n" + "\n".join(left)


@pytest.fixture(autouse=True)
def _what_is_only_begun_fails_once(request):
    """With one list of what is left to do; the other tests take it up when it is done."""
    exercise = request.node.callspec.params.get("exercise") if hasattr(request.node, "callspec") else None
    if exercise and not request.node.name.startswith("test_nothing_of_it_is_left") and still_to_do(exercise):
        pytest.skip(f"{exercise.id} is only begun")


@every_exercise
def test_right_answers_pass_and_each_mistake_is_named(exercise):
    found = [
        problem for seed in (SLOW_SEEDS if exercise.slow else SEEDS) for problem in problems(exercise, seed)
    ]
    assert not found, "\n\n".join(found)


@every_exercise
def test_enough_mistakes_are_recognised(exercise):
    assert len(exercise.mistakes) >= fewest_mistakes(exercise.lesson)


@every_exercise
def test_there_are_two_right_answers_written_differently(exercise):
    if exercise.is_function:
        texts = {_body(reference_source(exercise.id)), *map(inspect.getsource, exercise.also_right)}
        assert len(texts) >= 2 and exercise.also_right


@every_exercise
def test_the_reference_has_the_signature_that_the_exercise_states(exercise):
    if exercise.is_function and not inspect.isclass(exercise.reference):
        assert list(inspect.signature(exercise.reference).parameters) == list(exercise.parameters.parameters)


@every_exercise
def test_the_reference_stands_alone_as_source(exercise):
    space = {}
    exec(reference_source(exercise.id), space)
    assert exercise.name in space


@every_exercise
def test_cases_are_plain_data_and_the_same_for_the_same_seed(exercise):
    first, again = ([plain(case) for case in cases_of(exercise, 7)] for _ in range(2))
    assert to_text(first) == to_text(again)


@every_exercise
def test_hints_end_before_they_give_the_whole_answer_away(exercise):
    assert all(hint.strip() for hint in exercise.hints) and len(set(exercise.hints)) == len(exercise.hints)
    assert _body(reference_source(exercise.id)) not in exercise.hints


@every_exercise
def test_the_stub_is_defined_under_the_name_of_the_answer(exercise):
    if exercise.is_function:
        assert list(inspect.signature(stub(exercise)).parameters) == list(exercise.parameters.parameters)


def test_no_two_exercises_share_an_id_and_no_two_of_a_lesson_a_name():
    ids = [exercise.id for exercise in EXERCISES]
    names = [(exercise.lesson, exercise.name) for exercise in EXERCISES]
    assert len(set(ids)) == len(ids) and len(set(names)) == len(names)


def test_each_lesson_has_two_exercises_or_more_all_under_its_own_number():
    for lesson in {exercise.lesson for exercise in EXERCISES}:
        module = importlib.import_module(f"course_utils.exercises.lesson_{lesson}")
        assert {exercise.lesson for exercise in module.EXERCISES} == {lesson}
        assert len(module.EXERCISES) >= 2


def test_reading_the_exercises_does_not_import_tensorflow():
    program = (
        "import sys; from course_utils import exercises; exercises.all_exercises(); exercises.progress(); "
        "print('tensorflow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "False", found.stderr


def test_no_expected_result_is_taken_from_the_solutions():
    for lesson in {exercise.lesson for exercise in EXERCISES}:
        source = inspect.getsource(importlib.import_module(f"course_utils.exercises.lesson_{lesson}"))
        assert not any("solutions" in name for name in _imported(ast.parse(source))), f"lesson_{lesson}.py"


def _body(source):
    """The source of an answer without its imports."""
    return ast.unparse(
        [n for n in ast.parse(source).body if not isinstance(n, ast.Import | ast.ImportFrom)][-1]
    )


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield f"{node.module}.{'.'.join(alias.name for alias in node.names)}"
