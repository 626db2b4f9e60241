"""What `course grade` found, held against what the plan says: student by student, exercise by exercise."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from course_utils.grading.demo.answers import SIGNATURES
from course_utils.grading.demo.planning import Planned
from course_utils.grading.model import UNREADABLE


@dataclass(frozen=True)
class Row:
    """One student: what was planned, and in which points the gradebook says something else."""

    planned: Planned
    differences: tuple[str, ...]


def compare(planned: Sequence[Planned], grades: Path) -> tuple[list[Row], list[str]]:
    """A row for each student planned, and the keys in the gradebook that nobody planned."""
    book = _gradebook(grades)
    looked_at = _looked_at(grades)
    rows = []
    for one in planned:
        found = [row for row in book.values() if row["student"] == one.student]
        if len(found) != 1:
            rows.append(Row(one, (f"{len(found)} rows of that name in the gradebook",)))
            continue
        del book[found[0]["key"]]
        rows.append(Row(one, tuple(_differences(one, found[0], grades, looked_at))))
    return rows, sorted(book)


def _differences(one: Planned, row: dict[str, str], grades: Path, looked_at: set[str]):
    total = "" if one.status == UNREADABLE else f"{one.points:g}"
    for name, wanted in (("status", one.status), ("total", total), ("student", one.student)):
        if row[name] != wanted:
            yield f"{name}: {wanted!r} expected, {row[name]!r} found"
    found = _outcomes(grades / "results" / f"{row['key']}.json")
    for exercise_id in SIGNATURES:
        wanted = one.outcomes[exercise_id]
        if found.get(exercise_id) != wanted:
            yield f"{exercise_id}: {_said(wanted)} expected, {_said(found.get(exercise_id))} found"
    if one.look != (row["key"] in looked_at):
        yield f"to look at by hand: {one.look} expected"
    if not (grades / "feedback" / f"{row['key']}.html").exists():
        yield "no page"


def _said(outcome):
    return " ".join(f"{part}" for part in outcome if part) if outcome else "nothing"


def _gradebook(grades: Path) -> dict[str, dict[str, str]]:
    with (grades / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["key"]: {**row, "student": _as_meant(row["student"])} for row in csv.DictReader(file)}


def _as_meant(cell):
    """Without the apostrophe that keeps a spreadsheet from running it."""
    return re.sub(r"^'(?=[=+\-@])", "", cell)


def _outcomes(path: Path) -> dict[str, tuple[str, str | None]]:
    tests = json.loads(path.read_text(encoding="utf-8"))["tests"]
    told = {test["number"]: test["extra_data"] for test in tests}
    return {number: (data["outcome"], data["mistake"]) for number, data in told.items()}


def _looked_at(grades: Path) -> set[str]:
    """The students whom the class page asks to look at."""
    page = (grades / "index.html").read_text(encoding="utf-8")
    part = page[page.index('id="look"') : page.index('id="students"')]
    return {unquote(key) for key in re.findall(r'href="feedback/([^"]+?)\.html"', part)}
