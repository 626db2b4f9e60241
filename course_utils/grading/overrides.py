"""Points and comments by hand: a CSV file with the columns student, exercise, points, comment.

    student,exercise,points,comment
    ada_lovelace,04.compute_loss,2,"Right idea, a typing error."
    Grace Hopper,,7.5,Agreed on the phone

`student` is the key that the gradebook shows, or the name where only one student has it; no exercise means
the total, which then stands as it is: lateness takes nothing off it. Points may be left out for a comment.
All mistakes are told together, with their lines, before anything is graded.
"""

import csv
import difflib
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.errors import GradingError
from course_utils.grading.model import Graded, Submission

COLUMNS = ("student", "exercise", "points", "comment")
TEMPLATE = ",".join(COLUMNS) + "\n"
SHOWN = 10  # mistakes told at once


@dataclass(frozen=True)
class ByHand:
    """One row: points and comment for an exercise, or, without one, for the total."""

    student: str  # the key
    exercise_id: str
    points: float | None
    comment: str


class _Mistake(Exception):
    """What is wrong with one row, as a sentence."""


def read(
    path: Path, students: Iterable[Submission], possible: Mapping[str, float], course: Iterable[str] = ()
) -> list[ByHand]:
    """The rows of the file that matter for this run; raises GradingError that tells every mistake, with line.

    `possible` holds the points of each exercise that is graded; rows on other exercises of the `course` are
    left for another run.
    """
    students, course, found, mistakes = list(students), {*course, *possible}, {}, []
    for line, row in _rows(path):
        try:
            by_hand = _by_hand(row, students, possible, course)
            before = found.setdefault((by_hand.student, by_hand.exercise_id), (line, by_hand))
            if before[0] != line:
                raise _Mistake(f"line {before[0]} is on the same student and exercise")
        except _Mistake as mistake:
            mistakes.append(f"line {line}: {mistake}")
    if mistakes:
        raise _all_told(path, mistakes)
    return [row for _, row in found.values() if not row.exercise_id or row.exercise_id in possible]


def apply(graded: Graded, rows: Iterable[ByHand]) -> Graded:
    """The student's whole with the rows that are about it."""
    mine = {row.exercise_id: row for row in rows if row.student == graded.key}
    results = tuple(_with(result, mine.get(result.exercise_id)) for result in graded.results)
    total = mine.get("")
    if total is None:
        return replace(graded, results=results)
    return replace(graded, results=results, total=total.points, comment=total.comment)


def _with(result, row):
    if row is None:
        return result
    if row.points is None:
        return replace(result, comment=row.comment)
    return replace(result, points=row.points, comment=row.comment, by_hand=True)


def _rows(path):
    """Line numbers and rows as dicts; empty rows are left out."""
    text = _text(path)
    divider = max(",;\t", key=(text.splitlines() or [""])[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=divider, strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        _check_header(path, header)
        return [*_numbered(path, reader, header)]
    except csv.Error as error:
        raise GradingError(f"{path} is damaged at line {reader.line_num}: {error}.") from None


def _numbered(path, reader, header):
    begins = reader.line_num + 1  # a comment may go over several lines
    for cells in reader:
        if any(cell.strip() for cell in cells):
            if len(cells) > len(header) and any(cell.strip() for cell in cells[len(header) :]):
                raise GradingError(
                    f"{path}, line {begins}: there are more cells than columns.",
                    cure='Put a comment that holds a comma in quotes: "so, and so".',
                )
            yield begins, dict(zip(header, (cell.strip() for cell in cells), strict=False))
        begins = reader.line_num + 1


def _text(path):
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise GradingError(
            f"{path} is not in UTF-8.", cure='In Excel, save it as "CSV UTF-8 (comma delimited)".'
        ) from None


def _check_header(path, header):
    missing = {"student", "exercise", "points"} - {*header}
    unknown = {*header} - {*COLUMNS, ""}
    if missing or unknown or len({*header}) < len(header):
        raise GradingError(
            f"The first line of {path} should name the columns, but it is {','.join(header)!r}.",
            expected=TEMPLATE.strip(),
        )


def _by_hand(row, students, possible, course):
    student = _student(row.get("student", ""), students)
    exercise_id = _exercise(row.get("exercise", ""), course)
    most = sum(possible.values()) if not exercise_id else possible.get(exercise_id, math.inf)
    points, comment = _points(row.get("points", ""), most), row.get("comment", "")
    if points is None and not comment:
        raise _Mistake("there are neither points nor a comment")
    return ByHand(student, exercise_id, points, comment)


def _student(told, students):
    keys = {student.key: student.key for student in students}
    named = [student.key for student in students if student.student == told]
    if told in keys:
        return told
    if len(named) > 1:
        raise _Mistake(f"{len(named)} students are called {told!r}; give the key: {', '.join(named)}")
    if not named:
        known = {**keys, **{student.student: student.key for student in students}}
        raise _Mistake(f"there is no student {told!r}{_nearest(told, known)}")
    return named[0]


def _exercise(told, course):
    if told and told not in course:
        raise _Mistake(f"there is no exercise {told!r}{_nearest(told, course)}")
    return told


def _points(told, most):
    if not told:
        return None
    try:
        points = float(told.replace(",", ".") if told.count(",") == 1 and "." not in told else told)
    except ValueError:
        points = math.nan
    if not math.isfinite(points):
        raise _Mistake(f"{told!r} is not a number of points")
    if points < 0:
        raise _Mistake(f"{told} points are below 0")
    if points > most:
        raise _Mistake(f"{told} points are more than the {most:g} that there are")
    return points


def _nearest(told, known):
    close = difflib.get_close_matches(told, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _all_told(path, mistakes):
    more = len(mistakes) - SHOWN
    shown = mistakes[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return GradingError(
        f"{path} has {count}; nothing was graded.\n  " + "\n  ".join(shown) + "\n",
        cure="Mend them, and run the same command again.",
    )
