"""What is run for an answer, and what an instructor is told to look at."""

import pytest

from course_utils.exercises import all_exercises, reference_source
from course_utils.grading.answers import look, program, release_cells
from course_utils.grading.needs import names_used, needed, statements
from tests.grading.desk_parts import answer, reference

ID = "04.compute_loss"
CELLS = [
    "import numpy as np\nimport tensorflow as tf\n%matplotlib inline",
    "%%workers --n 2\nsecret = 1",
    "half = 0.5\n\ndef halved(x):\n    return scaled(x) * half\n\ndef scaled(x):\n    return np.asarray(x)",
    "history = train(1)\nprint(history)",
]


def before(source, **more):
    return program(answer(ID, source, **more), CELLS).before.split("\n")


def test_what_an_answer_needs_of_the_lesson_comes_along_and_no_more():
    run = before("def compute_loss(errors, batch):\n    return halved(errors)")
    assert run[0] == "import numpy as np" and "half = 0.5" in run
    assert not any("tensorflow" in line or "history" in line or "secret" in line for line in run)


def test_an_answer_that_needs_nothing_is_run_alone():
    assert (
        program(
            answer(ID, "import math\ndef compute_loss(half, np):\n    return half + math.pi"), CELLS
        ).before
        == ""
    )


def test_its_own_imports_come_first():
    run = before("def compute_loss(e, b):\n    return np.sum(e)", imports="import numpy.ma as np\nimport os")
    assert run == ["import numpy.ma as np"]


def test_an_edited_cell_of_the_lesson_gains_nothing():
    run = before(
        "def compute_loss(e, b):\n    return halved(e)", helpers="def halved(x):\n    return 'edited'"
    )
    assert not any("edited" in line for line in run)


def test_helpers_bring_what_they_need():
    helpers = "def mine(x):\n    return np.sum(scaled(x)) / share\n\nshare = 4"
    run = "\n".join(before("def compute_loss(e, b):\n    return mine(e)", helpers=helpers))
    assert all(part in run for part in ("import numpy", "def scaled", "def mine", "share = 4"))


def test_names_that_are_nowhere_are_known():
    given = answer(
        ID, "def compute_loss(e, b):\n    for i in e:\n        other = i\n    return other + elsewhere"
    )
    assert program(given, CELLS).missing == ("elsewhere",)


def test_a_star_import_may_bring_any_name():
    given = answer(ID, "def compute_loss(e, b):\n    return sqrt(e)", imports="from math import *")
    assert program(given, CELLS) == program(given, [])
    assert program(given, CELLS).before == "from math import *" and program(given, CELLS).missing == ()


@pytest.mark.parametrize("source", ["def f(:", "(" * 500, "-" * 100_000 + "1", "x" + ".y" * 100_000, "a\0b"])
def test_text_that_is_no_program_is_run_as_it_is(source):
    given = program(answer(ID, source), CELLS)
    assert given.source.strip() == source.strip() and given.before == ""
    assert look(source) == ()


def test_the_lessons_cells_come_without_answers():
    cells = "\n".join(release_cells("04"))
    assert "def squared_error" in cells and "def compute_loss" not in cells
    assert release_cells("99") == ()


def test_only_names_from_outside_a_function_are_needed():
    source = (
        "def f(a, b=c):\n    d = a\n    global g\n    g = [h for h in i]\n    return lambda j: j + d + k\n"
    )
    assert names_used(source) == {"c", "i", "k"}


def test_the_later_of_two_definitions_counts():
    both = statements("x = 1\nx = 2\ny = x")
    assert [statement.text for statement in needed(both, ["y"])] == ["x = 2", "y = x"]


ODD = {
    "import sys\nsys._getframe(1).f_back": "call stack",
    "import inspect": "imports inspect",
    "from gc import get_objects": "imports gc",
    "import ctypes as c": "Python's own memory",
    "import os\nos.write(5, b'')": "by number (os.write)",
    "import os\nos.fork()": "starts other processes",
    "np.allclose = print": "changes np.allclose",
    "del tf.Variable": "changes tf.Variable",
    "setattr(tf.nn, 'relu', print)": "changes a part of tf.nn",
    "cu.exercises.judging.judge = 1": "reaches into course_utils.exercises",
    "from course_utils.exercises import judging": "imports course_utils.exercises.judging",
    "import course_utils.grading": "how answers are judged",
    "from course_utils import solutions": "imports course_utils.solutions",
    "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame": "call stack",
    "f.__globals__['x'] = 1": "other functions",
    "eval('1')": "runs text as code",
    "import sys\nsys.modules['x']": "sys.modules",
}


@pytest.mark.parametrize("source", ODD, ids=lambda source: source.split("\n")[-1].strip())
def test_the_instructor_is_told_what_no_honest_answer_needs(source):
    told = look(source)
    assert any(ODD[source] in sentence for sentence in told), told
    assert all(sentence.startswith("Line ") and sentence.endswith(".") for sentence in told)


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_a_right_answer_needs_no_look_and_nothing_that_is_missing(exercise):
    source = reference_source(exercise.id)
    assert look(source) == ()
    assert program(reference(exercise.id), release_cells(exercise.lesson)).missing == ()


def test_the_learners_verbs_need_no_look():
    verbs = (
        "from course_utils.exercises import check\nfrom course_utils import hint\nimport course_utils as cu\n"
    )
    assert look(verbs + "cu.check('04.compute_loss', compute_loss)\nhint('04.compute_loss')") == ()
