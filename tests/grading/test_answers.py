"""What is run for an answer, and what an instructor is told to look at."""

import ast
import re
from pathlib import Path

import pytest

from course_utils.exercises import all_exercises, model, reference_source
from course_utils.exercises.needs import names_used, needed, statements
from course_utils.grading.answers import flagged, program, release_cells
from course_utils.grading.looking import look
from course_utils.grading.model import Result
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
    "from sys import modules": "sys.modules",
    "import multiprocessing\nmultiprocessing.Process()": "starts other processes",
    "from multiprocessing import Pool": "starts other processes",
    "import multiprocessing as m\nm.Pool()": "starts other processes",
    # changes to anything imported, by whatever name
    "import json\njson.dumps = print": "changes json.dumps",
    "n = np\nn.asarray = print": "changes n.asarray",
    "import json as j, os\na, b = j.encoder, os\na.x = 1": "changes a.x",
    "import json\n(m := json).dumps = print": "json",
    "import json\nfor m in (json, 1):\n    m.dumps = print": "changes m.dumps",
    "import json\ndef f(m):\n    m.dumps = 1\nf(json)": "hands on the module json",
    "import json\n[json][0].dumps = 1": "hands on the module json",
    "from json import encoder\nencoder.JSONEncoder.default = 1": "changes encoder.JSONEncoder",
    "import json\nvars(json)['dumps'] = 1": "changes vars(json)",
    "import json\nvars(json).update(dumps=1)": "reaches into json",
    "import json\njson.__dict__['dumps'] = 1": "changes json.__dict__",
    "import json\njson.__dict__.update(dumps=1)": "reaches into json.__dict__",
    "import json\nsetattr(json, 'dumps', 1)": "changes a part of json",
    "import json\njson.__setattr__('dumps', 1)": "__setattr__",
    "import functools\nfunctools.partial(setattr, 1)": "hands on setattr",
    "import json\nfor json.dumps in (1,):\n    pass": "changes json.dumps",
    "import json\njson.dumps: int = 1": "changes json.dumps",
    "type(x).run = 1": "changes type(x).run",
    "x.__class__.run = 1": "changes x.__class__.run",
    "setattr(type(x), 'run', 1)": "changes a part of type(x)",
    "from unittest import mock": "replaces parts of other code",
    # the call stack, by whatever way
    "import traceback\ntraceback.walk_stack(None)": "imports traceback",
    "from signal import signal": "imports signal",
    "import sys\nsys.setprofile(f)": "watches other code run",
    "import threading\nthreading.settrace(f)": "watches other code run",
    "import weakref": "imports weakref",
    "getattr(f, 'f_locals')": "f_locals, as text",
    "getattr(f, 'f_' + 'locals')": "f_locals, as text",
    "getattr(f, f\"f_{'back'}\")": "f_back, as text",
    "getattr(f, ''.join(['f_', 'back']))": "f_back, as text",
    "getattr(f, 'kcab_f'[::-1])": "f_back, as text",
    "getattr(f, name)": "by a name that it works out",
    "getattr(f, chr(102) + x)": "by a name that it works out",
    "from operator import attrgetter\nattrgetter('f_back.f_locals')(f)": "f_locals, as text",
    "from operator import attrgetter\nattrgetter(name)(f)": "by a name that it works out",
    "vars(f)[name]": "by a name that it works out",
    "match f:\n    case object(f_locals=x):\n        pass": "call stack",
    "(i for i in x).gi_frame": "call stack",
    "object.__subclasses__()": "what is in memory",
    "f.__closure__": "other functions",
    # code that is hidden
    "run = exec\nrun('1')": "runs text as code",
    "__import__('gc')": "roundabout ways",
    "__builtins__['eval']": "what Python itself is made of",
    "import importlib": "roundabout ways",
    "import base64\nexec(base64.b64decode('eA=='))": "hides what is in it",
    "open(7, 'wb', closefd=False)": "by number (closefd)",
    "from os import write": "by number (os.write)",
    "open('/proc/self/mem')": "names a file of the system",
}


@pytest.mark.parametrize("source", ODD, ids=lambda source: source.split("\n")[-1].strip())
def test_the_instructor_is_told_what_no_honest_answer_needs(source):
    told = look(source)
    assert any(ODD[source] in sentence for sentence in told), told
    assert all(sentence.startswith("Line ") and sentence.endswith(".") for sentence in told)


HONEST = [
    "import os, json\nos.environ['TF_CONFIG'] = json.dumps({})\ndel os.environ['TF_CONFIG']",
    "import matplotlib.pyplot as plt\nplt.rcParams['font.size'] = 9",
    "options = tf.data.Options()\noptions.experimental_distribute.auto_shard_policy = tf.data.x.OFF",
    "class A:\n    def __init__(self, x):\n        self.x, self.y = x, np.zeros(3)\n        self.y[0] += 1",
    "getattr(keras.applications, name)\ngetattr(x, 'shape', None)\nvars(epoch)\nsetattr(self, 'x', 1)",
    "model.compile('sgd', 'mse')\nimport re\nre.compile('a')",
    "import random, time\ndef f(random, time):\n    return sum(time) + random",
    "chunks[right][chunk] = chunks[right][chunk] + send(rank, right)",
]


@pytest.mark.parametrize("source", HONEST)
def test_what_honest_answers_do_needs_no_look(source):
    assert look(source) == ()


def test_code_that_nests_too_deep_to_look_at_is_told():
    assert "deeper" in look("x = y" + ".z" * 2000 + " = 1\nimport a as y")[0]


def source_of(exercise, wrong):
    """A known wrong answer as source, with all that it uses of the lesson's file."""
    name = f"lesson_{exercise.lesson}.py"
    text = (Path(model.__file__).parent / name).read_text(encoding="utf-8")
    code = getattr(wrong, "__code__", None)
    if code is None or not code.co_filename.endswith(name):
        return ""
    parts = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Lambda | ast.FunctionDef) and node.lineno == code.co_firstlineno
    ]
    assert parts, "its source is not where its code says"
    used = {name for part in parts for name in names_used(part)}
    lesson = [s.text for s in needed(statements(text), used)]
    # In a notebook it says `import tensorflow as tf` for `tf = lazy("tensorflow")`.
    own = [re.sub(r"^(\w+) = lazy\('(.+)'\)$", r"import \2 as \1", text) for text in lesson]
    return "\n".join([*(text for text in own if "course_utils.exercises" not in text), *parts])


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_a_known_mistake_needs_no_look(exercise):
    for mistake in exercise.mistakes:
        for wrong in mistake.answers:
            assert look(source_of(exercise, wrong)) == (), mistake.name


def test_what_comes_from_other_cells_is_shown_and_looked_at():
    given = answer(
        ID,
        "_swap()\ndef compute_loss(e, b):\n    return np.sum(e)",
        imports="import numpy as np\nimport gc",
        helpers="def _swap():\n    return gc.get_objects()",
    )
    ran = program(given, CELLS)
    assert ran.shown.startswith(given.source.rstrip()) and "from other cells" in ran.shown
    assert "import gc" in ran.shown and "def _swap" in ran.shown
    assert "numpy" not in ran.shown, "what the lesson has too is none of the learner's"
    result = flagged(Result(ID, "", "passed", 2.0, 2.0, source=given.source), ran)
    assert result.source == ran.shown
    assert any("imports gc" in sentence for sentence in result.look)
    number = int(result.look[0].split()[1])
    assert "import gc" in result.source.split("\n")[number - 1]


def test_an_answer_that_stands_alone_is_shown_as_it_is():
    given = answer(ID, "def compute_loss(e, b):\n    return halved(e)")
    assert program(given, CELLS).shown == given.source


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
