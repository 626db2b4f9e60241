"""What `course check-submission` and `course validate` print: what is found in a file, and how it fares."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from course_utils.errors import GradingError
from course_utils.exercises import catalogue
from course_utils.exercises.model import Exercise, Outcome
from course_utils.exercises.observing import LEARNER_SEED
from course_utils.grading import collecting, reading
from course_utils.grading.cells import is_untouched
from course_utils.grading.model import UNGRADED, Notebook, Result, Submission
from course_utils.notebooks import sources

STATES = {"found": "green", "untouched": "yellow", "missing": "red"}
COLOURS = {Outcome.PASSED: "green", Outcome.NOT_ATTEMPTED: "yellow", UNGRADED: "magenta"}
READABLE, UNREADABLE = 0, 1


def check_submission(path: Path, console: Console | None = None) -> int:
    """0 where every file could be read, else 1. Prints what grading will find, student by student.

    Raises GradingError where there is nothing at the path.
    """
    console = console or Console()
    with console.status("reading"):
        submissions = collecting.collect(path, release=own_release())
    for submission in submissions:
        _print_submission(console, submission, named=not (path.is_file() and len(submissions) == 1))
    console.print(_summary(submissions), soft_wrap=True, highlight=False)
    read = [notebook for submission in submissions for notebook in submission.notebooks]
    return UNREADABLE if any(notebook.error for notebook in read) else READABLE


def own_release() -> str | None:
    """The id of the release that this copy of the course is; None for the course itself."""
    try:
        told = json.loads((sources.FOLDER.parent / sources.RELEASE).read_text(encoding="utf-8"))
        return told["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def states(notebook: Notebook) -> dict[str, str]:
    """Whether each exercise of the notebook's lesson is "found", "untouched" or "missing", by its id."""
    ids = [exercise.id for exercise in _exercises(notebook)]
    return {exercise_id: _state(exercise_id, notebook) for exercise_id in ids}


def validate(path: Path, console: Console | None = None) -> int:
    """0 where the notebook could be read and every answer checked, right or wrong; else 1.

    Reads the file as grading does, and runs each answer in the same sandbox, on the cases that `check` uses.
    Prints a row an exercise. Raises GradingError where there is no such file.
    """
    console = console or Console()
    notebook = _read(path)
    if notebook.error or not _exercises(notebook):
        told = notebook.error or " ".join(notebook.notes)
        console.print(Text.assemble((path.name, "bold red"), f"  {told}"), soft_wrap=True)
        return UNREADABLE
    results = list(_examined(notebook, console))
    console.print(table(results))
    _print_notes(console, [*notebook.notes, *_another_release(notebook)])
    console.print(_verdict(results), soft_wrap=True, highlight=False, markup=False)
    return UNREADABLE if any(result.outcome == UNGRADED for result in results) else READABLE


def table(results: Iterable[Result]) -> Table:
    """A row an exercise: outcome, points, mistake, words."""
    grid = Table(show_lines=True)
    for name in ("exercise", "outcome", "points"):
        grid.add_column(name, no_wrap=True)
    grid.add_column("what to know", overflow="fold", ratio=1)
    for result in results:
        outcome = Text(str(result.outcome), COLOURS.get(result.outcome, "red"))
        grid.add_row(result.exercise_id, outcome, f"{result.points:g} of {result.possible:g}", _words(result))
    return grid


def _words(result):
    mistake = (f"{result.mistake}. ", "bold") if result.mistake else ""
    told = "\n".join(filter(None, (result.message, result.try_this)))
    where = f"\n{result.where}" if result.where else ""
    notes = "".join(f"\n{note}" for note in result.notes)
    return Text.assemble(mistake, told, (where, "dim"), (notes, "dim"))


def _read(path):
    if not path.exists():
        raise GradingError(f"There is no file {path}.", cure="Give the path of your notebook.")
    if path.is_dir():
        cure = "Give the path of one notebook; `course check-submission` takes folders and zips."
        raise GradingError(f"{path} is a folder.", cure=cure)
    return reading.read_file(path)


def _another_release(notebook):
    here = own_release()
    if here and notebook.release and notebook.release != here:
        yield f"The notebook is of release {notebook.release}, and this is {here}: ask which one is graded."


def _examined(notebook, console):
    """The result of each exercise, in the order of the course."""
    from course_utils.grading import desk
    from course_utils.grading.runner import Runner

    exercises = _exercises(notebook)
    # Known wrong answers run in this process; what TensorFlow thinks of them is of no use here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with console.status("starting") as status, Runner(jobs=1) as runner:
        examiner = desk.Desk(runner, LEARNER_SEED)
        for number, exercise in enumerate(exercises, 1):
            status.update(f"checking {exercise.id} ({number} of {len(exercises)})")
            yield examiner.examine(exercise.id, notebook.answers.get(exercise.id))


def _verdict(results):
    passed = sum(result.outcome == Outcome.PASSED for result in results)
    earned, possible = sum(r.points for r in results), sum(r.possible for r in results)
    ungraded = sum(result.outcome == UNGRADED for result in results)
    told = f"{passed} of {len(results)} exercises passed, {earned:g} of {possible:g} points."
    if ungraded:
        return f"{told} {ungraded} could not be checked on this machine: this says nothing about your answer."
    return f"{told} The file can be read and graded; when it is graded, other numbers are used."


def _exercises(notebook) -> list[Exercise]:
    of_lesson = catalogue.exercises_of(notebook.lesson) if notebook.lesson else []
    others = [e for e in catalogue.all_exercises() if e.id in notebook.answers and e not in of_lesson]
    return [*of_lesson, *others]


def _state(exercise_id, notebook):
    answer = notebook.answers.get(exercise_id)
    if answer is None:
        return "missing"
    stub = not answer.source.strip() or is_untouched(catalogue.find(exercise_id), answer.source)
    return "untouched" if stub else "found"


def _print_submission(console, submission: Submission, named: bool):
    ids = ", ".join(f"{platform} {number}" for platform, number in submission.ids.items())
    if named:
        console.print(
            Text.assemble((submission.student, "bold"), f"  {submission.key}  {ids}"), soft_wrap=True
        )
    _print_notes(console, submission.notes)
    for notebook in submission.notebooks:
        _print_notebook(console, notebook)


def _print_notebook(console, notebook):
    release = f", release {notebook.release}" if notebook.release else ""
    lesson = f"lesson {notebook.lesson}{release}" if notebook.lesson else "no lesson of the course"
    if notebook.error:
        console.print(Text.assemble(f"  {notebook.name}  ", (notebook.error, "red")), soft_wrap=True)
        return
    console.print(Text(f"  {notebook.name}  {lesson}"), soft_wrap=True)
    found = states(notebook)
    for state, colour in STATES.items():
        ids = [exercise_id for exercise_id, is_in in found.items() if is_in == state]
        if ids:
            console.print(
                Text.assemble("    ", (f"{state:<9}", colour), "  ", ", ".join(ids)), soft_wrap=True
            )
    notes = [f"{a.exercise_id}: {note}" for a in notebook.answers.values() for note in a.notes]
    _print_notes(console, [*notebook.notes, *notes], "    ")


def _print_notes(console, notes, indent="  "):
    for note in notes:
        console.print(f"{indent}[dim]note[/dim]  {escape(note)}", soft_wrap=True, highlight=False)


def _summary(submissions):
    read = [notebook for submission in submissions for notebook in submission.notebooks]
    found = [state for notebook in read if not notebook.error for state in states(notebook).values()]
    unreadable = sum(bool(notebook.error) for notebook in read)
    empty = sum(not submission.notebooks for submission in submissions)
    parts = [
        _count(len(submissions), "student"),
        _count(len(read), "file"),
        *[f"{unreadable} unreadable"] * bool(unreadable),
        *[f"{empty} with nothing handed in"] * bool(empty),
        f"exercises: {', '.join(f'{found.count(state)} {state}' for state in STATES)}",
    ]
    return "; ".join(parts) + "."


def _count(number, word):
    return f"{number} {word}{'s' * (number != 1)}"
