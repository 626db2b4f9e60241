"""Reading what was handed in: every answer is found that is there, and what cannot be read says why."""

import copy
import json
import os
import random
import resource
import subprocess
import sys

import pytest

from course_utils.exercises.catalogue import all_exercises, find
from course_utils.exercises.solutions import reference_source
from course_utils.grading import reading
from course_utils.grading.cells import is_untouched
from course_utils.grading.model import Notebook
from course_utils.notebooks.sources import FOLDER
from tests.grading.handed_in import (
    L2,
    LOSS,
    OTHER,
    RIGHT,
    STUB,
    UNEVEN,
    answer_cell,
    as_bytes,
    code,
    lesson,
    place,
)

SPLIT = RIGHT.splitlines()


def read(content, name="04.ipynb"):
    return reading.read(content if isinstance(content, bytes) else as_bytes(content), name)


def loss(content):
    """The answer to the first exercise of lesson 04."""
    notebook = read(content)
    assert not notebook.error
    return notebook.answers[LOSS]


def without_metadata(content):
    content["metadata"] = {}
    for cell in content["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    return content


def runs(source, **names):
    """The names that Python text defines."""
    space = dict(names)
    exec(source, space)
    return space


# --- what is there is found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem[:2])
def test_every_lesson_is_read_whole_and_untouched(path):
    notebook = reading.read_file(path)
    assert (notebook.lesson, notebook.error, notebook.notes) == (path.stem[:2], "", ())
    assert list(notebook.answers) == [e.id for e in all_exercises() if e.lesson == notebook.lesson]
    assert all(is_untouched(find(i), answer.source) for i, answer in notebook.answers.items())
    assert not any(answer.notes or answer.helpers for answer in notebook.answers.values())


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_no_right_answer_counts_as_untouched(exercise):
    assert not is_untouched(exercise, reference_source(exercise.id))


@pytest.mark.parametrize("body", ["...", "pass", "return None", "raise NotImplementedError", '"""Words."""'])
def test_what_computes_nothing_is_untouched(body):
    assert is_untouched(find(LOSS), f"def compute_loss(a, b):\n    # about 1 line\n    {body}")


def test_answers_are_found_by_metadata():
    assert loss(lesson(compute_loss=RIGHT)).source == RIGHT
    assert loss(lesson(compute_loss=RIGHT)).notes == ()


def test_without_any_metadata_answers_and_lesson_are_found_by_the_names_defined():
    notebook = read(without_metadata(lesson(compute_loss=RIGHT)))
    assert notebook.lesson == "04" and set(notebook.answers) == {LOSS, L2, UNEVEN}
    assert notebook.answers[LOSS].source == RIGHT
    assert "Found by its name, `compute_loss`, in cell 27" in notebook.answers[LOSS].notes[0]


@pytest.mark.parametrize("number", ["07", "10"])
def test_a_name_that_two_lessons_share_belongs_to_the_notebooks_own(number):
    content = lesson(number, is_chief="def is_chief(x):\n    return x")
    for cell in content["cells"]:
        cell["metadata"].pop("exercise_id", None)
        cell["metadata"].pop("nbgrader", None)
        cell.pop("id", None)
    assert read(content).answers[f"{number}.is_chief"].source == "def is_chief(x):\n    return x"
    assert {exercise_id[:2] for exercise_id in read(content).answers} == {number}


@pytest.mark.parametrize("mark", ["exercise_id", "nbgrader", "id"])
def test_each_mark_of_an_answer_cell_is_enough(mark):
    content = lesson(compute_loss="mine = 1")  # the name does not give it away
    cell = answer_cell(content, LOSS)
    cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == mark}
    if mark != "id":
        cell["id"] = "x"
    assert loss(content).source == "mine = 1"


def test_the_release_is_read():
    content = lesson()
    content["metadata"]["course"]["release"] = "0.1.0+abc"
    assert read(content).release == "0.1.0+abc"


# --- cells that were moved about


def test_order_does_not_matter():
    content = lesson(compute_loss=RIGHT)
    content["cells"].reverse()
    assert loss(content).source == RIGHT


def test_a_deleted_cell_is_named_and_the_others_are_found():
    content = lesson(l2_loss="def loss_with_l2(*a):\n    return 1")
    content["cells"].remove(answer_cell(content, LOSS))
    notebook = read(content)
    assert set(notebook.answers) == {L2, UNEVEN}
    assert notebook.notes == (
        "There is no cell for 04.compute_loss (A loss that survives any number of replicas): it was deleted, "
        "or `compute_loss` was renamed.",
    )


@pytest.mark.parametrize("stub_first", [True, False])
def test_a_copy_that_is_still_the_stub_is_left_out(stub_first):
    content = lesson(compute_loss=RIGHT)
    copied = {**copy.deepcopy(answer_cell(content, LOSS)), "source": STUB}
    content["cells"].insert(place(content, LOSS) + (not stub_first), copied)
    answer = loss(content)
    assert answer.source == RIGHT and not answer.notes


def test_equal_copies_count_once():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append(copy.deepcopy(answer_cell(content, LOSS)))
    assert loss(content).source == RIGHT


def test_of_two_attempts_the_later_counts():
    content = lesson(compute_loss=OTHER)
    content["cells"].append({**copy.deepcopy(answer_cell(content, LOSS)), "source": RIGHT})
    assert loss(content).source == f"{OTHER}\n\n{RIGHT}"
    assert loss(content).notes == ("Cells 27, 46 were joined, in this order; the last definition counts.",)


def test_a_copy_that_python_cannot_read_does_not_take_the_other_along():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append({**copy.deepcopy(answer_cell(content, LOSS)), "source": "def compute_loss(:"})
    answer = loss(content)
    assert answer.source == RIGHT
    assert "Cell 46 was left out: Python cannot read it" in answer.notes[0]


@pytest.mark.parametrize("marked", [True, False], ids=["metadata kept", "metadata lost"])
@pytest.mark.parametrize("found_by_name", [True, False])
def test_a_function_cut_in_two_is_one_again(marked, found_by_name):
    content = lesson(compute_loss=SPLIT[0])
    cell, where = answer_cell(content, LOSS), place(content, LOSS)
    content["cells"].insert(where + 1, code(SPLIT[1], **(cell["metadata"] if marked else {})))
    if found_by_name:
        cell["metadata"] = {}
        cell["id"] = content["cells"][where + 1]["id"] = "x"
    source = loss(content).source
    assert source == "\n".join(SPLIT)


def test_a_helper_in_the_marked_cell_and_the_function_in_the_next_are_joined():
    content = lesson(compute_loss="def total(x):\n    return x + x")
    answer = "def compute_loss(per_example_loss, global_batch_size):\n    return total(per_example_loss)"
    content["cells"].insert(place(content, LOSS) + 1, code(answer))
    assert loss(content).source == f"def total(x):\n    return x + x\n\n{answer}"


def test_an_answer_in_a_new_cell_is_found_while_the_marked_one_is_still_the_stub():
    content = lesson()
    content["cells"].append(code(RIGHT))
    assert loss(content).source == RIGHT


def test_a_try_elsewhere_does_not_replace_the_answer_in_its_cell():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append(code(OTHER))
    assert loss(content).source == RIGHT
    assert loss(content).notes == (
        "`compute_loss` is defined in cell 46 too. That is not its answer cell, so it does not count.",
    )


def test_a_number_called_like_the_function_is_no_answer():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append(code("compute_loss = 3.0"))
    assert loss(content).source == RIGHT and not loss(content).notes


@pytest.mark.parametrize("marked", [True, False], ids=["metadata kept", "metadata lost"])
def test_an_answer_in_the_notebook_of_another_lesson_is_found(marked):
    content = lesson("05")
    metadata = {"exercise_id": LOSS} if marked else {}
    content["cells"].append(code(RIGHT, **metadata))
    notebook = read(content)
    assert notebook.lesson == "05" and notebook.answers[LOSS].source == RIGHT
    assert {"05.train_step", "05.run_epochs", "05.train_and_restore"} < set(notebook.answers)


def test_what_another_lesson_happens_to_call_so_is_no_answer():
    content = lesson("05")
    content["cells"].append(code("def compute_loss(model):\n    return 1\n\nshares = [1, 2]"))
    assert {exercise_id[:2] for exercise_id in read(content).answers} == {"05"}


def test_two_answers_in_one_cell_are_found_for_both():
    both = f"{RIGHT}\n\n\ndef loss_with_l2(a, b, c, d):\n    return 1"
    content = lesson(compute_loss=both)
    content["cells"].remove(answer_cell(content, L2))
    answers = read(content).answers
    assert answers[LOSS].source == answers[L2].source == both


def test_answers_in_each_others_cells_are_told_apart():
    l2 = "def loss_with_l2(a, b, c, d):\n    return 1"
    answers = read(lesson(compute_loss=l2, l2_loss=RIGHT)).answers
    assert (answers[LOSS].source, answers[L2].source) == (RIGHT, l2)


def test_merged_with_the_check_cell_the_check_is_left_out():
    answer = loss(lesson(compute_loss=f'{RIGHT}\n\ncu.check(\n    "{LOSS}", compute_loss\n)\nx = 1'))
    assert answer.source == f"{RIGHT}\n\n\n\n\nx = 1"


def test_an_answer_in_a_cell_of_text_is_told():
    content = lesson(compute_loss=RIGHT)
    answer_cell(content, LOSS)["cell_type"] = "markdown"
    assert read(content).notes[0] == (
        "Cell 27, the answer to 04.compute_loss, is a cell of text, which does not run. Make it code again: "
        "click beside it, press Y, and save."
    )


def test_a_cell_indented_as_a_whole_is_python_as_in_jupyter():
    indented = "\n".join("    " + line for line in SPLIT)
    assert runs(loss(lesson(compute_loss=indented)).source)["compute_loss"]


# --- what an answer needs of other cells


def test_imports_come_along_and_those_for_the_future_first():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append(code("import math as m\nfrom __future__ import annotations\n!pip install x"))
    imports = loss(content).imports.splitlines()
    assert imports[0] == "from __future__ import annotations"
    assert "import math as m" in imports and "import tensorflow as tf" in imports


def test_helpers_of_the_learners_own_come_along_with_what_they_use():
    content = lesson(
        compute_loss="def compute_loss(per_example_loss, global_batch_size):\n    return half(2)"
    )
    helper = "SIZE = 2\nunused = 3\ndef half(x):\n    return x / SIZE\ncostly = [half(i) for i in range(9)]"
    content["cells"].insert(0, code(helper))
    answer = loss(content)
    assert runs(answer.helpers + "\n" + answer.source)["compute_loss"](0, 0) == 1.0
    assert "unused" not in answer.helpers and "costly" not in answer.helpers
    assert "`half`" in answer.notes[0]


def test_another_answer_of_the_learner_may_be_used():
    l2 = "def loss_with_l2(*a):\n    return compute_loss(a[0], a[2])"
    assert read(lesson(compute_loss=RIGHT, l2_loss=l2)).answers[L2].helpers.startswith("def compute_loss")
    assert read(lesson(compute_loss=STUB, l2_loss=l2)).answers[L2].helpers == ""


def test_an_edited_cell_of_the_lesson_is_no_helper():
    content = lesson(compute_loss="def compute_loss(a, b):\n    return squared_error(1, 2, 3)")
    content["cells"].append(code("def squared_error(*a):\n    return 0"))
    assert loss(content).helpers == ""


# --- magics


def test_magics_are_left_out_with_a_note_and_the_rest_stays():
    source = "%matplotlib inline\n!ls {x}\n" + RIGHT.replace("return", "%who\n    return") + "\nfiles = !ls"
    answer = loss(lesson(compute_loss=source))
    assert runs(answer.source)["files"] is None
    assert len(answer.source.splitlines()) == len(source.splitlines())
    assert answer.notes[0] == "`%matplotlib inline` was left out: only Python is graded."


def test_what_looks_like_a_magic_inside_a_text_stays():
    source = f'"""\n%time\n!ls\n"""\n!ls\n{RIGHT}'
    assert '"""\n%time\n!ls\n"""' in loss(lesson(compute_loss=source)).source


@pytest.mark.parametrize("first", ["%%time", "%%capture out", "%%time\n\n%%capture", "\n%%timeit -n 1"])
def test_cell_magics_that_run_python_are_left_out(first):
    answer = loss(lesson(compute_loss=f"{first}\n{RIGHT}"))
    assert runs(answer.source)["compute_loss"]
    assert "was left out: only Python is graded." in answer.notes[0]


@pytest.mark.parametrize("first", ["%%bash", "%%writefile loss.py", "%%html", "%%"])
def test_a_cell_that_is_not_run_as_python_says_so(first):
    answer = loss(lesson(compute_loss=f"{first}\n{RIGHT}"))
    assert answer.source == ""
    assert answer.notes[0].startswith(f"This cell begins with `{first}`, so it is not run as Python")


@pytest.mark.parametrize(
    "source", ["def compute_loss(:\n    x", "compute_loss = (", "def compute_loss():\n\tx\n  y"]
)
def test_what_python_cannot_read_is_kept_as_it_is(source):
    assert loss(lesson(compute_loss=source)).source == source
    assert loss(without_metadata(lesson(compute_loss=source))).source == source


def test_tabs_are_kept():
    source = RIGHT.replace("    ", "\t")
    assert loss(lesson(compute_loss=source)).source == source


# --- how a file is saved


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_are_recognised(encoding):
    source = RIGHT + "  # ä → 😀"
    text = json.dumps(lesson(compute_loss=source), ensure_ascii=False)
    assert loss(text.encode(encoding)).source == source


def test_latin_1_is_read_with_a_note():
    text = json.dumps(lesson(compute_loss=RIGHT + "  # für"), ensure_ascii=False)
    notebook = read(text.encode("cp1252", "replace"))
    assert notebook.answers[LOSS].source == RIGHT + "  # für"
    assert notebook.notes == ("The file was not saved as UTF-8; letters with accents may have suffered.",)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_endings_of_windows_and_old_macs_become_newlines(ending):
    text = json.dumps(lesson(compute_loss=RIGHT.replace("\n", ending)), indent=1).replace("\n", "\r\n")
    assert loss(text.encode()).source == RIGHT


def test_a_source_may_be_a_list_of_lines():
    content = lesson(compute_loss=RIGHT.splitlines(keepends=True))
    assert loss(content).source == RIGHT


@pytest.mark.parametrize("nbformat", [2, 3])
def test_notebooks_of_old_jupyter_are_read(nbformat):
    old = {"cell_type": "code", "input": RIGHT, "language": "python", "outputs": [], "collapsed": False}
    heading = {"cell_type": "heading", "level": 1, "source": "Loss"}
    sheets = [{"cells": [heading, old], "metadata": {}}]
    assert loss({"nbformat": nbformat, "worksheets": sheets, "metadata": {"name": "x"}}).source == RIGHT


def test_oddities_that_jupyter_forgives_are_forgiven():
    content = lesson(compute_loss=RIGHT)
    cell = answer_cell(content, LOSS)
    for name in ("execution_count", "id"):
        cell.pop(name, None)
    cell["unknown"] = {"x": [1]}
    del content["nbformat_minor"], content["metadata"]["kernelspec"]
    content["nbformat"] = 99
    assert loss(content).source == RIGHT


def test_a_number_that_is_too_long_for_python_does_no_harm():
    content = lesson(compute_loss=RIGHT)
    content["metadata"]["score"] = "?"
    assert loss(as_bytes(content).replace(b'"?"', b"1" * 5000)).source == RIGHT


def test_zero_bytes_and_lone_surrogates_do_no_harm():
    text = json.dumps(lesson(compute_loss=RIGHT + "  # \0 \ud800"))
    loss(text.encode()).source.encode("utf-8")
    assert "\0" not in loss(text.encode()).source


# --- what cannot be read


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "The file is empty."),
        (b" \n\t ", "The file is empty."),
        (b"%PDF-1.7\n...", "This is a PDF document, not a notebook"),
        (b"PK\x03\x04....word/document.xml", "This is a Word document, not a notebook"),
        (b"PK\x03\x04....04.ipynb", "This is a zip archive, not a notebook"),
        (b"\xef\xbb\xbf\n <!DOCTYPE HTML><html>", "This is a web page (HTML), not a notebook"),
        (b"\x89PNG\r\n", "This is a picture (PNG), not a notebook"),
        (b"\x1f\x8b\x08", "This is a compressed archive (gzip), not a notebook"),
        (b"Rar!\x1a", "This is a RAR archive, not a notebook"),
        (b"\0" * 100, "This is nothing but zero bytes, not a notebook"),
        (b"version https://git-lfs.github.com/spec/v1", "This is a placeholder of Git LFS"),
        (b"#!/usr/bin/env python\n# In[1]:\nimport x", "This is a Python script, not a notebook."),
        (b"# %%\ndef compute_loss():\n    ...", "This is a Python script, not a notebook."),
        (b"My answer is 42.", "This is no notebook: the text does not begin like one."),
        (b"[1, 2]", "This is JSON, but no notebook."),
        (b'"cells" x', "This is no notebook: the text does not begin like one."),
        (b"{}", "This is JSON, but no notebook: it has no cells."),
        (b'{"cells": 5}', "This is JSON, but no notebook: it has no cells."),
        (b'{"cells": [}', "The file is damaged at line 1, column 12."),
        (b"{\n<<<<<<< HEAD\n", "The file holds marks of a Git merge that was not finished"),
        (b"[" * 100_000, "The file is built in a way that no notebook is."),
        (b'{"a":' * 100_000, "The file is built in a way that no notebook is."),
        (
            b'{"cells":[' + b"[]," * reading.MAX_PARTS,
            "The file holds millions of parts, as no notebook does.",
        ),
        (b"\xff\xfe{\x00\xd8", "The file's text is damaged (utf-16)."),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_what_cannot_be_read_says_what_it_is_and_what_to_do(data, told):
    notebook = read(data)
    assert notebook.error.startswith(told) and not notebook.answers
    assert any(word in notebook.error for word in ("Hand in", "hand it in", "hand the notebook in"))


@pytest.mark.parametrize("part", [0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_called_so(part):
    data = as_bytes(lesson())
    assert read(data[: int(len(data) * part)]).error.startswith("The file breaks off after")


def test_a_notebook_of_another_course_is_called_so():
    notebook = read({"cells": [code("x = 1")]})
    assert notebook.notes == ("This notebook holds no exercise of the course. Was another file meant?",)


def test_a_file_of_200_mb_is_refused_by_its_size_without_being_read(tmp_path, monkeypatch):
    path = tmp_path / "huge.ipynb"
    with open(path, "wb") as file:
        file.truncate(reading.MAX_BYTES + 1)  # takes no room on the disk
    monkeypatch.setattr(reading, "read", lambda *_: pytest.fail("it was read"))
    told = reading.read_file(path).error
    assert told.startswith("The file has 200 MB; more than 200 MB are not read. In JupyterLab: Edit → Clear")


PEAK = """
import resource
from pathlib import Path
from course_utils.grading import reading
from tests.grading import handed_in as h

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

path = Path({path!r})
first, rest = h.as_bytes(h.lesson(compute_loss=h.RIGHT)).split(b'"cells": [')
reading.read(first + b'"cells": [' + rest, "x")
cell = b'{{"cell_type": "code", "source": "", "outputs": [{{"text": "' + b"x" * 10_000_000 + b'"}}]}}, '
with open(path, "wb") as file:
    file.writelines([first, b'"cells": [', *[cell] * 6, rest])
before = peak()
notebook = reading.read_file(path)
print(notebook.answers[h.LOSS].source == h.RIGHT, (peak() - before) / path.stat().st_size)
"""


def test_huge_outputs_cost_the_files_bytes_and_its_text_and_no_more(tmp_path):
    """In a process of its own: what it holds at its peak is what is asked."""
    found, times = python(PEAK.format(path=str(tmp_path / "x.ipynb"))).split()
    assert found == "True" and float(times) < 2.6  # 3, if the outputs were kept


def python(script, seconds=60):
    """What the script prints, in a process that may use so many seconds of a processor."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=280,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
    )
    assert done.returncode == 0, done.stdout[-400:] + done.stderr[-400:]
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "x.ipynb")
    assert "no ordinary file" in reading.read_file(tmp_path / "x.ipynb").error


@pytest.mark.parametrize("name", ["nothing.ipynb", ".", "x" * 300])
def test_a_file_that_cannot_be_opened_says_so(tmp_path, name):
    assert reading.read_file(tmp_path / name).error


# --- whatever it is, it does not raise, and does not take for ever

VALUES = [
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    "def compute_loss(",
    "%%",
]


def test_no_mutation_of_a_notebook_makes_it_raise():
    randomly = random.Random(4)
    for _ in range(80):
        content = lesson(compute_loss=RIGHT)
        for _ in range(randomly.randint(1, 6)):
            mutate(content, randomly)
        notebook = read(content)
        assert isinstance(notebook, Notebook)
        json.dumps([notebook.error, *notebook.notes, *map(str, notebook.answers.items())]).encode("utf-8")


def test_no_damaged_byte_makes_it_raise():
    randomly, whole = random.Random(5), as_bytes(lesson(compute_loss=RIGHT))
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(randomly.randint(1, 20)):
            data[randomly.randrange(len(data))] = randomly.randrange(256)
        start = randomly.choice([0, 0, 0, randomly.randrange(len(data))])
        assert isinstance(read(bytes(data[start:])), Notebook)


def mutate(content, randomly):
    """Change one value somewhere in it, of whatever type, into another of whatever type."""
    holder, key = content, randomly.choice(list(content))
    while isinstance(holder[key], dict | list) and holder[key] and randomly.random() < 0.9:
        holder = holder[key]
        key = randomly.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if isinstance(holder[key], str) and randomly.random() < 0.5:
        text, at = holder[key], randomly.randrange(len(holder[key]) + 1)
        holder[key] = (
            text[:at] + randomly.choice(["(", "\n", "'", "\\", "%", "    ", "\0", "é"]) + text[at + 1 :]
        )
    else:
        holder[key] = copy.deepcopy(randomly.choice(VALUES))


HOSTILE = {
    "blanks before a bracket": " " * 90_000 + "(",
    "words": "a " * 45_000 + "(",
    "magics": "!a\n" * 30_000,
    "brackets": "(" * 90_000,
    "minus signs": "-" * 90_000 + "1",
    "sums": "x = 1" + "+1" * 45_000,
    "calls": "x" + "()" * 45_000,
    "a check with blanks": "cu.check()" + " " * 80_000 + "x\n(",
    "comments of a page": "<!---->" * 10_000,
    "nested lambdas": "lambda:" * 10_000 + "0",
    "conditions": "if 1:\n x\n" + "elif 1:\n x\n" * 3_000,
    "lines": "a\n" * 45_000,
    "a number": "x = " + "1" * 90_000,
}


READ_ALL = """
from course_utils.grading import reading
from tests.grading import handed_in as h
from tests.grading.test_reading import HOSTILE

for name, source in HOSTILE.items():
    print(name, flush=True)
    content = h.lesson(compute_loss=source)
    content["cells"] += [h.code(source), h.code(h.RIGHT)]
    assert h.LOSS in reading.read(h.as_bytes(content), "x").answers
print("all")
"""


def test_text_made_to_take_long_is_read_in_bounded_time():
    assert python(READ_ALL).splitlines() == [*HOSTILE, "all"]


def test_a_notebook_of_too_much_code_or_too_many_cells_is_refused():
    much = {"cells": [code("a = 1\n" * 10_000)] * 6}
    many = {"cells": [code("")] * (reading.MAX_CELLS + 1)}
    assert "characters of code" in read(much).error
    assert "2,001 cells" in read(many).error


def test_one_huge_cell_is_left_out_and_the_others_are_found():
    content = lesson(compute_loss=RIGHT)
    content["cells"].append(code("x = 1\n" * 20_000, exercise_id=L2))
    assert loss(content).source == RIGHT
