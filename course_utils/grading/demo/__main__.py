"""`python -m course_utils.grading.demo FOLDER`: make the class, grade it, check the gradebook."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_utils.exercises.cards import words
from course_utils.grading.demo import comparing, planning
from course_utils.grading.pages import text

SEED = 20261130  # of the grader's cases: the same figures on every run
MOST_SECONDS, MOST_MEMORY = 180, 4 * 2**30  # what we promise, on 2 cores
_COURSE = "from course_utils.cli import main; main()"


def main(folder: Path) -> int:
    """Make, grade and check the class in `folder`, emptied first; 0 where all came out as planned."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    planned, submissions, grades = planning.plan(), folder / "submissions", folder / "grades"
    for old in (submissions, grades):
        shutil.rmtree(old, ignore_errors=True)
    planning.write(planned, submissions)
    console.print(f"{len(planned)} submissions of lesson 04 are in {submissions}")
    code, seconds, memory = grade(submissions, grades)
    if code:
        return code
    rows, strangers = comparing.compare(planned, grades)
    console.print(_table(rows))
    right = sum(not row.differences for row in rows)
    console.print(f"Expected = got for {right} of {len(rows)} submissions.", highlight=False)
    if strangers:
        console.print(f"In the gradebook, but handed in by nobody: {', '.join(strangers)}", markup=False)
    console.print(
        f"Graded in {text.duration(seconds)} (promised: {text.duration(MOST_SECONDS)} on 2 cores), "
        f"{text.size(memory)} of memory at its peak (promised: {text.size(MOST_MEMORY)}).",
        highlight=False,
    )
    console.print(f"The class: {grades / 'index.html'}", soft_wrap=True)
    console.print(f"A student: {grades / 'feedback'}", soft_wrap=True)
    return 0 if right == len(rows) and not strangers else 1


def grade(submissions: Path, grades: Path) -> tuple[int, float, int]:
    """`course grade` in a process of its own: exit code, seconds, and the most bytes that all of it held."""
    command = [sys.executable, "-c", _COURSE, "grade", str(submissions), "--out", str(grades)]
    began = time.monotonic()
    command += ["--jobs", "2", "--seed", str(SEED), "--late-policy", planning.LATE_POLICY]
    process = subprocess.Popen([*command, "--overrides", str(planning.by_hand_file(submissions))])
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak))
    watcher.start()
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        watcher.join()
    return code, time.monotonic() - began, peak[0]


def _watch(process: subprocess.Popen, peak: list[int]) -> None:
    tree = psutil.Process(process.pid)
    while process.poll() is None:
        peak[0] = max(peak[0], _held(tree))
        time.sleep(0.25)


def _held(tree: psutil.Process) -> int:
    """Bytes of a process and all below it; what forks share counts once."""
    try:
        return sum(_own(process) for process in [tree, *tree.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0


def _own(process: psutil.Process) -> int:
    try:
        return getattr(process.memory_full_info(), "pss", None) or process.memory_info().rss
    except psutil.AccessDenied:  # another user's, in a sandbox: what it does not share
        told = process.memory_info()
        return told.rss - getattr(told, "shared", 0)
    except psutil.NoSuchProcess:
        return 0


def _table(rows: list[comparing.Row]) -> Table:
    table = Table("", "student", "handed in", "expected", "points", "got", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row in sorted(rows, key=lambda row: bool(row.differences)):
        one = row.planned
        signs = " ".join(words.GLYPHS[outcome] for outcome, _ in one.outcomes.values())
        table.add_row(
            "✗" if row.differences else "✓",
            escape(text.visible(one.student)[:30]),
            f"{one.way}, {one.form}",
            f"{signs}{'  look' if one.look else ''}",
            text.number(one.points),
            escape("; ".join(row.differences)) or "the same",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/grade-demo")))
