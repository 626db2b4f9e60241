"""What happens to an answer in the sandbox: defined as in a notebook, its errors become sentences."""

import json
import subprocess
import sys

import pytest

from course_utils.exercises import all_exercises
from tests.grading.desk_parts import answer, examine, reference, with_body

BYTES, LOSS = "03.bytes_per_worker", "04.compute_loss"


def test_the_reference_passes_and_what_it_took_is_measured(runner):
    result = examine(runner, reference(LOSS))
    assert (result.outcome, result.points, result.possible) == ("passed", 2.0, 2.0)
    assert result.seconds > 0 and "reduce_sum" in result.source and result.look == ()


def test_nothing_handed_in_is_not_attempted(runner):
    from course_utils.grading.desk import Desk

    result = Desk(runner, 1).examine(LOSS, None)
    assert (result.outcome, result.points) == ("not attempted", 0.0)
    assert "compute_loss" in result.message


@pytest.mark.parametrize(
    "stub", ["def bytes_per_worker(workers, array_bytes): ...", "bytes_per_worker = None"]
)
def test_a_stub_is_not_attempted(runner, stub):
    assert examine(runner, answer(BYTES, stub)).outcome == "not attempted"


def test_a_syntax_error_is_told_with_its_line(runner):
    result = examine(runner, answer(BYTES, "def bytes_per_worker(workers, array_bytes):\n    return 2 *\n"))
    assert (result.outcome, result.where) == ("raised", "line 2: return 2 *")
    assert "cannot read" in result.message and "SyntaxError" in result.message


def test_an_error_inside_the_answer_is_told_with_its_line(runner):
    result = examine(runner, with_body(BYTES, "share = 1\nreturn share / 0"))
    assert (result.outcome, result.where) == ("raised", "line 3: return share / 0")
    assert "ZeroDivisionError" in result.message


def test_an_error_before_the_definition_is_told_with_its_line(runner):
    result = examine(runner, answer(BYTES, "factor = 2 / 0\ndef bytes_per_worker(w, b): return factor"))
    assert (result.outcome, result.where) == ("raised", "line 1: factor = 2 / 0")


def test_a_line_that_fails_after_the_definition_costs_nothing(runner):
    given = reference(BYTES)
    tried = answer(BYTES, given.source + "\nprint(bytes_per_worker(my_workers, 8))")
    assert examine(runner, tried).outcome == "passed"


def test_what_a_notebook_has_besides_python_works(runner):
    calls = (
        f'cu.check("{BYTES}", bytes_per_worker).passed\ncu.hint("{BYTES}")\ncu.progress()\n'
        f'from course_utils import check\ncheck("{BYTES}", bytes_per_worker)\n'
        "from course_utils.exercises import solution\ndisplay(1)\n"
    )
    given = answer(BYTES, reference(BYTES).source + calls + "done = True")
    with_the_end = answer(BYTES, given.source + "\nif not done: del bytes_per_worker")
    result = examine(runner, with_the_end)
    assert result.outcome == "passed", result.message


def test_a_check_inside_the_answer_does_nothing(runner):
    source = reference(BYTES).source.replace(
        "    return", f'    assert not cu.check("{BYTES}", 1)\n    return'
    )
    assert examine(runner, answer(BYTES, source)).outcome == "passed"


def test_a_name_that_is_nowhere_is_told_where_to_go(runner):
    result = examine(runner, with_body(BYTES, "return my_share(workers, array_bytes)"))
    assert (result.outcome, result.where[:6]) == ("raised", "line 2")
    assert "`my_share`" in result.message and "move it into the answer cell" in result.try_this


def test_an_answer_under_another_name_is_told_which_one_is_looked_for(runner):
    result = examine(runner, answer(BYTES, "def bytes_per_workers(workers, array_bytes):\n    return 1"))
    assert (result.outcome, result.points) == ("failed", 0.0)
    assert "defines no function bytes_per_worker." in result.message


def test_an_answer_of_the_wrong_kind_is_told(runner):
    result = examine(runner, answer(BYTES, "bytes_per_worker = 12"))
    assert result.outcome == "failed" and "function" in result.message


def test_a_loop_without_end_runs_out_of_time_inside_and_outside_a_function(runner):
    inside = examine(runner, with_body(BYTES, "while True: pass"), timeout=1)
    outside = examine(runner, answer(BYTES, "while True: pass"), timeout=1)
    assert inside.outcome == outside.outcome == "timed out"
    assert "after 1 seconds" in inside.message


def test_a_known_mistake_is_named_with_yours_beside_expected(runner):
    result = examine(runner, with_body(LOSS, "return tf.reduce_mean(per_example_loss)"))
    assert (result.outcome, result.points) == ("failed", 0.0)
    assert result.mistake and result.message and result.try_this
    assert any(not line.equal and line.yours and line.expected for line in result.lines)


def test_what_is_printed_is_kept(runner):
    source = reference(BYTES).source.replace("    return", '    print("halfway")\n    return')
    assert examine(runner, answer(BYTES, source)).printed.startswith("halfway\n")


def test_an_answer_that_starts_tensorflow_when_it_is_defined_still_has_its_replicas(runner):
    source = reference(LOSS).source + "\nhalf = tf.constant(0.5)\n"
    assert examine(runner, answer(LOSS, source)).outcome == "passed"


def test_autograph_finds_the_source_of_an_answer(runner):
    body = """
        @tf.function
        def total(errors):
            if tf.reduce_sum(errors) > -1.0:  # only AutoGraph can turn this into a graph
                return tf.reduce_sum(errors)
            return 0.0
        return total(per_example_loss) / global_batch_size
    """
    assert examine(runner, with_body(LOSS, body)).outcome == "passed"


def test_an_answer_finds_the_lessons_names_and_its_own_helpers(runner):
    body = "return parted(tf.reduce_sum(squared_error(1.0, per_example_loss, 0)) ** 0, per_example_loss)"
    helpers = (
        "def parted(one, errors):\n    return one * tf.reduce_sum(errors) / size_of_batch\nsize_of_batch = 1"
    )
    given = with_body(LOSS, body)
    result = examine(runner, answer(LOSS, given.source, helpers=helpers))
    assert result.mistake == "not divided" or result.outcome == "failed", result.message
    assert "not defined" not in result.message


def test_a_cluster_works_in_the_sandbox(runner):
    assert examine(runner, reference("08.one_file")).outcome == "passed"


FIND_TRACES = """
import gc, json, sys, types
from course_utils.cluster import warm
from course_utils import devices
from course_utils.exercises import all_exercises
from course_utils.exercises.model import Exercise
from course_utils.grading import examining

def places(code):
    yield [code.co_filename[-12:], code.co_firstlineno, code.co_name]
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from places(inner)

def alive():
    gc.collect()
    found = [o.__code__ for o in gc.get_objects() if isinstance(o, types.FunctionType)]
    knowing = [o for o in gc.get_objects() if isinstance(o, Exercise) and (o.mistakes or any(o.hints))]
    return [p for c in found if "lesson_" in c.co_filename for p in places(c)], len(knowing)

gc.collect()
gc.freeze()  # what was imported so far is none of the lessons', and need not be looked through each time
prepared = {}
for exercise_id in json.loads(sys.argv[1]):
    kept = examining.prepare({"exercise": exercise_id, "seed": 1, "token": "", "program": {}})
    prepared[exercise_id] = alive()
    del kept
    for name in [name for name in sys.modules if name.startswith("lesson_")]:
        del sys.modules[name]
lessons = [name for name in sys.modules if name.startswith("course_utils.exercises.lesson")]
all_exercises()
print(json.dumps({"prepared": prepared, "loaded": alive(), "lessons": lessons}))
"""


@pytest.fixture(scope="module")
def traces():
    """What code of the lessons' exercises is alive once each is prepared, and once they are all loaded."""
    ids = json.dumps([exercise.id for exercise in all_exercises()])
    run = subprocess.run(
        [sys.executable, "-c", FIND_TRACES, ids], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_no_code_that_knows_the_right_result_is_alive_beside_an_answer(traces, exercise):
    places, knowing = traces["prepared"][exercise.id]
    alive = {tuple(place) for place in places}
    assert (_place(exercise.observe) in alive, knowing, traces["lessons"]) == (True, 0, [])
    assert set(_known_by(exercise)) & alive == set()


def test_the_look_for_such_code_finds_it_where_it_is(traces):
    places, knowing = traces["loaded"]
    loaded = {tuple(place) for place in places}
    assert knowing == len(all_exercises())
    assert all(_place(exercise.expected) in loaded for exercise in all_exercises())


def _known_by(exercise):
    """Where the right result, the known wrong answers and the other right ones are written."""
    answers = [a for mistake in exercise.mistakes for a in mistake.answers]
    for function in [exercise.expected, *answers, *exercise.also_right, exercise.reference]:
        if hasattr(function, "__code__"):
            yield _place(function)


def _place(function):
    code = function.__code__
    return code.co_filename[-12:], code.co_firstlineno, code.co_name
