"""What `course run` and `course notebooks` print: a line as each lesson ends, and the failures in full."""

import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_utils.doctor import Check
from course_utils.errors import CourseError
from course_utils.notebooks import build as builder
from course_utils.notebooks import sources
from course_utils.notebooks.coverage import Row
from course_utils.notebooks.execute import CellFailed
from course_utils.notebooks.run import Outcome


def follow(outcomes: Iterable[Outcome], total: int, console: Console | None = None) -> bool:
    """True where every lesson passed. Prints each outcome as it comes, then the table and every failure."""
    console = console or Console()
    start, done = time.monotonic(), []
    with console.status(f"running {total} lessons") as status:
        for outcome in outcomes:
            done.append(outcome)
            console.print(_line(outcome), highlight=False, soft_wrap=True)
            status.update(f"{len(done)} of {total} lessons have run")
    for outcome in done:
        if not outcome.passed:
            _print_failure(console, outcome)
    console.print(table(done, time.monotonic() - start))
    return all(outcome.passed for outcome in done)


def table(outcomes: list[Outcome], seconds: float) -> Table:
    """The table of lessons: time, outcome, slowest cell."""
    grid = Table("lesson", title_justify="left")
    grid.add_column("time", justify="right")
    grid.add_column("outcome")
    grid.add_column("slowest cell", overflow="fold")
    for outcome in sorted(outcomes, key=lambda outcome: outcome.lesson):
        place = f"{outcome.slowest:.1f} s  {outcome.place}" if outcome.passed else outcome.place
        grid.add_row(outcome.lesson, f"{outcome.seconds:.0f} s", _word(outcome), place)
    passed = sum(outcome.passed for outcome in outcomes)
    grid.caption = f"{passed} of {len(outcomes)} lessons passed in {seconds:.0f} s"
    return grid


def build(paths: list[Path], time_limit: float, console: Console | None = None) -> bool:
    """True where every notebook was built. Prints a line for each, and what failed in full."""
    console = console or Console()
    built = [_build_one(path, time_limit, console) for path in paths]
    return all(built)


def doctor(checks: list[Check], console: Console | None = None) -> None:
    """None; prints a line for each check, and under a problem its cure."""
    console = console or Console()
    grid = Table(show_header=False, box=None, pad_edge=False)
    marks = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "problem": "[red]problem[/red]"}
    for check in checks:
        cure = f"\n[bold]{escape(check.cure)}[/bold]" if check.cure else ""
        grid.add_row(check.name, marks[check.state], escape(check.seen) + cure)
    console.print(grid)
    problems = sum(check.state == "problem" for check in checks)
    console.print(f"{problems or 'No'} problem{'s' * (problems != 1)}.", highlight=False)


def coverage(rows: list[Row], console: Console | None = None) -> bool:
    """True where every promise has its lesson and its test. Prints the map, and what is missing."""
    console = console or Console()
    for before, row in zip([None, *rows], rows, strict=False):
        if before is None or before.section != row.section:
            console.rule(f"[bold]{escape(row.section)}", align="left")
        _print_row(console, row)
    missing = sum(bool(row.problems) for row in rows)
    console.print(f"\n{len(rows) - missing} of {len(rows)} rows have their lesson and their test.")
    return not missing


def _print_row(console, row):
    console.print(f"\n{row.feature}", markup=False, highlight=False)
    for kind, entries in (("cell", row.cells), ("test", row.tests), ("[red]missing[/red]", row.problems)):
        for entry in entries:
            console.print(f"  {kind}  {escape(entry)}", highlight=False, soft_wrap=True)


def _build_one(path, time_limit, console):
    start = time.monotonic()
    try:
        with console.status(f"building {path.stem}"):
            builder.build(path, time_limit=time_limit)
    except CellFailed as error:
        place = sources.read(path).place(error.cell_id)
        failed = Outcome(path.stem, time.monotonic() - start, False, 0.0, place, str(error), error.traceback)
        _print_failure(console, failed)
        return False
    except CourseError as error:
        console.print(f"[red]{path.stem}[/red] {escape(str(error))}", soft_wrap=True)
        return False
    console.print(f"{path.stem}.ipynb built in {time.monotonic() - start:.0f} s", highlight=False)
    return True


def _word(outcome):
    return "[green]passed[/green]" if outcome.passed else "[red]failed[/red]"


def _line(outcome):
    return f"{outcome.lesson:<40} {outcome.seconds:4.0f} s  {_word(outcome)}"


def _print_failure(console, outcome):
    console.rule(f"[red]{outcome.lesson}[/red]", align="left")
    console.print(f"{outcome.place}: {outcome.message}", markup=False, highlight=False, soft_wrap=True)
    if outcome.traceback:
        console.print(outcome.traceback, markup=False, highlight=False, soft_wrap=True)
