"""What `course grade` prints: a bar with an estimate while it works, and at the end where everything is."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from course_utils.exercises.model import Outcome
from course_utils.grading import batch as batches
from course_utils.grading.examination import Stopped, Watch
from course_utils.grading.gradebook import lacks_points, number
from course_utils.grading.model import Batch
from course_utils.grading.options import Options


def grade(submissions: Path, out: Path, options: Options, console: Console | None = None) -> int:
    """Grade, showing how far it is; the exit code: 1 where not all could be graded, 130 when stopped."""
    console = console or Console()
    try:
        with bar(console) as watch:
            batch = batches.grade(submissions, out, options, watch)
    except (Stopped, KeyboardInterrupt) as stopped:
        told = str(stopped) or "Stopped."
        console.print(f"{told} To go on, run the same command again.", highlight=False, soft_wrap=True)
        return 130
    end(batch, out, console)
    return int(any(graded.status == "not all graded" for graded in batch.graded))


@contextlib.contextmanager
def bar(console: Console) -> Iterator[Watch]:
    """What to call with how many answers are examined and how many are to be; shown while the block runs.

    Where no terminal is, as in a log, it is a line for each tenth.
    """
    if not console.is_terminal:
        yield _line_a_tenth(console)
        return
    columns = (
        TextColumn("examining answers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True, speed_estimate_period=60) as progress:
        task = progress.add_task("", total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)


def _line_a_tenth(console: Console) -> Watch:
    told = None

    def watch(done: int, total: int) -> None:
        nonlocal told
        tenth = (10 * done // total, total)
        if tenth != told:
            told = tenth
            console.print(f"examining answers: {done} of {total}", highlight=False, soft_wrap=True)

    return watch


def end(batch: Batch, out: Path, console: Console) -> None:
    """None; prints notes, what to look at by hand, and where the pages are."""
    for line in [*batch.notes, *_to_do(batch)]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(_last(batch, out), highlight=False, soft_wrap=True, markup=False)


def _to_do(batch):
    results = [result for graded in batch.graded for result in graded.results]
    lacking = sum(map(lacks_points, results))
    if lacking:
        answers = "1 answer" if lacking == 1 else f"{lacking} answers"
        yield f"{answers} could not be graded: run it again, or give points by hand in overrides.csv."
    unreadable = [graded.key for graded in batch.graded if graded.status == "unreadable"]
    if unreadable:
        more = f" and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
        yield f"Nothing could be read from: {', '.join(unreadable[:5])}{more}."
    look = sum(bool(result.look) for result in results)
    if look:
        yield f"{look} {'answer' if look == 1 else 'answers'} to look at by hand: the class page says why."


def _last(batch, out):
    passed = sum(result.outcome == Outcome.PASSED for graded in batch.graded for result in graded.results)
    earned = sum(graded.earned for graded in batch.graded) / len(batch.graded)
    students = "1 student" if len(batch.graded) == 1 else f"{len(batch.graded)} students"
    return (
        f"{students} × {len(batch.exercises)} exercises: {passed} passed; on average {number(earned)} of "
        f"{number(batch.possible)} points. Pages: {out / 'index.html'} · sandbox: {batch.means or 'none'} · "
        f"seed {batch.seed}"
    )
