"""`course check-submission` and `course validate`: what is found, told before it is handed in or graded."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from course_utils.cli import main
from course_utils.grading import checking, reading
from course_utils.notebooks import sources
from tests.grading.handed_in import (
    LOSS,
    RIGHT,
    answer_cell,
    as_bytes,
    code,
    lesson,
    text,
    write,
    zipped,
)

NAME = "04_loss_scaling.ipynb"
L2 = (
    "def loss_with_l2(per_example_loss, weights, global_batch_size, strength):\n"
    "    return 1 / 0  # [bold]not markup[/bold]"
)


def course(*arguments):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


# --- check-submission


def test_one_file_each_exercise_is_found_untouched_or_missing(tmp_path):
    content = lesson(compute_loss=f"%%time\n{RIGHT}")
    content["cells"].remove(answer_cell(content, "04.uneven_batch"))
    done = course("check-submission", write(tmp_path, {NAME: as_bytes(content)}) / NAME)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[:4] == [
        f"  {NAME}  lesson 04",
        "    found      04.compute_loss",
        "    untouched  04.l2_loss",
        "    missing    04.uneven_batch",
    ]
    assert "    note  04.compute_loss: `%%time` was left out: only Python is graded." in lines
    assert lines[-1] == "1 student; 1 file; exercises: 1 found, 1 untouched, 1 missing."


def test_a_class_with_what_is_wrong_in_it(tmp_path):
    files = {
        f"Anna Smith_11_assignsubmission_file_/{NAME}": None,
        "ben.zip": zipped({NAME: text(compute_loss=RIGHT)}),
        "carl/04.ipynb": b"%PDF-1.7",
        "dora/": None,
    }
    done = course("check-submission", write(tmp_path / "class", files))
    assert done.exit_code == 1  # one file cannot be read
    for line in (
        "Anna Smith  anna-smith-11  moodle 11",
        "ben  ben  ",
        "  04.ipynb  This is a PDF document, not a notebook, whatever its name says.",
        "  note  There is no file in what was handed in.",
        "4 students; 3 files; 1 unreadable; 1 with nothing handed in; exercises: 1 found, 5 untouched",
    ):
        assert line in done.output


def test_names_and_notes_are_shown_as_they_are_and_not_as_markup(tmp_path):
    files = {f"[red]x[;red]/{NAME}": text(compute_loss=f"%%bash [bold]\n{RIGHT}")}
    done = course("check-submission", write(tmp_path / "class", files))
    assert "[red]x[;red]" in done.output and "%%bash [bold]" in done.output


@pytest.mark.parametrize("command", ["check-submission", "validate"])
def test_a_path_that_leads_nowhere_is_a_sentence(tmp_path, command):
    done = course(command, tmp_path / "nothing")
    assert done.exit_code == 1
    assert done.output.startswith("Error: There is no") and "What to do: " in done.output


# --- validate


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """The command's end over a notebook with a right answer, one that raises, and one that is missing."""
    content = lesson(
        compute_loss=RIGHT.replace("tf.reduce_sum(per_example_loss)", "total(per_example_loss)"),
        l2_loss=L2,
    )
    content["cells"].remove(answer_cell(content, "04.uneven_batch"))
    content["cells"].insert(2, code("def total(numbers):\n    return tf.reduce_sum(numbers)"))
    content["cells"].append(code("while True:\n    pass"))  # is not an answer, so it is not run
    path = write(tmp_path_factory.mktemp("validate"), {NAME: as_bytes(content)}) / NAME
    command = [sys.executable, "-m", "course_utils.cli", "validate", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=wide())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wide():
    return {**os.environ, "COLUMNS": "200"}


def row(output, exercise_id):
    """The words of a row of the table."""
    lines = output.split(f"│ {exercise_id}")[1].split("├")[0].split("└")[0]
    return " ".join(lines.replace("│", " ").split())


def test_every_exercise_has_a_row_with_outcome_points_and_words(validated):
    assert row(validated, LOSS).startswith("passed 2 of 2 Right, in all")
    assert "Taken along from another cell, because your answer uses it: `total`." in row(validated, LOSS)
    raised = row(validated, "04.l2_loss")
    assert raised.startswith(
        "raised 0 of 2 An error stopped your answer. ZeroDivisionError: division by zero"
    )
    assert "line 2: return 1 / 0 # [bold]not markup[/bold]" in raised
    assert row(validated, "04.uneven_batch").startswith("not attempted 0 of 3 Nothing to check yet.")


def test_the_last_line_says_how_many_passed_and_that_others_will_be_used(validated):
    last = validated.strip().splitlines()[-1]
    assert last.startswith("1 of 3 exercises passed, 2 of 7 points. The file can be read and graded")
    assert "There is no cell for 04.uneven_batch" in validated


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "The file is empty."),
        (b"%PDF-1.7", "This is a PDF document"),
        (b'{"cells": []}', "This notebook holds no exercise of the course."),
        (as_bytes(lesson())[:5000], "The file breaks off"),
    ],
)
def test_what_cannot_be_read_is_told_and_is_no_success(tmp_path, monkeypatch, data, told):
    monkeypatch.setattr(checking, "_examined", lambda *_: pytest.fail("nothing is to be run"))
    done = course("validate", write(tmp_path, {NAME: data}) / NAME)
    assert done.exit_code == 1 and told in " ".join(done.output.split())


def test_a_folder_is_refused_with_the_command_that_takes_it(tmp_path):
    done = course("validate", tmp_path)
    assert done.exit_code == 1 and "`course check-submission` takes folders" in done.output


def test_a_notebook_of_another_release_is_told(tmp_path, monkeypatch):
    (tmp_path / sources.RELEASE).write_text('{"id": "2"}', encoding="utf-8")
    monkeypatch.setattr(sources, "FOLDER", tmp_path / "notebooks")
    assert checking.own_release() == "2"
    content = lesson()
    content["metadata"]["course"]["release"] = "1"
    (told,) = checking._another_release(reading.read(as_bytes(content), NAME))
    assert told == "The notebook is of release 1, and this is 2: ask which one is graded."


def test_help_says_what_the_exit_code_means():
    for command in ("validate", "check-submission"):
        assert "Exit code: 0 where" in course(command, "--help").output
