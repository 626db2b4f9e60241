"""The gradebook as CSV: for people, for Canvas and for Moodle.

The same results give the same bytes: there is no time and no date in it. A student whose work is not all
graded has no total, so that nobody imports too few points by accident.

A cell that a spreadsheet would take for a formula gets an apostrophe in front: names and comments come from
other people.
"""

import csv
import html
import io
from collections.abc import Iterable, Sequence

from course_utils.grading.model import UNGRADED, Batch, Graded, Result

# Excel takes CSV for UTF-8 only where this stands in front; LibreOffice, pandas and R read it as well. The
# files for Canvas and Moodle go without, as they are read by programs.
MARK = "\ufeff"
FORMULA = ("=", "+", "-", "@", "\t", "＝", "＋", "－", "＠")


def gradebook(batch: Batch) -> str:
    """A row a student, a column an exercise, what lateness took off, total, possible, status, comment."""
    header = ["key", "student", *batch.exercises, "late", "total", "possible", "status", "comment"]
    return MARK + _csv([header, *(_row(graded) for graded in batch.graded)])


def canvas(batch: Batch, assignment: str) -> str:
    """For *Grades, Import*; one assignment, which Canvas knows by its name or by "name (number)".

    Canvas finds students by ID, which only its own downloads tell; else it asks who is who by name.
    """
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    points = ["    Points Possible", "", "", "", "", number(batch.possible)]
    rows = [
        [graded.student, graded.ids.get("canvas", ""), "", "", "", _total(graded)] for graded in batch.graded
    ]
    return _csv([header, points, *rows])


def moodle(batch: Batch) -> str:
    """Moodle's grading worksheet, for *Upload grading worksheet*, with feedback comments.

    Moodle needs the column "Last modified (grade)"; "-" is what it writes for "never".
    """
    header = [
        *("Identifier", "Full name", "Grade", "Maximum Grade"),
        *("Last modified (grade)", "Feedback comments"),
    ]
    return _csv([header, *(_worksheet_row(graded) for graded in batch.graded)])


def number(points: float) -> str:
    """Points as text: to the hundredth, without needless zeros."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def whole(graded: Graded) -> bool:
    """Whether every exercise has points, by the grader or by hand."""
    return graded.total is not None or not any(map(lacks_points, graded.results))


def lacks_points(result: Result) -> bool:
    """Whether neither the grader nor a hand has given points."""
    return result.outcome == UNGRADED and not result.by_hand


def summary(graded: Graded) -> list[str]:
    """A line an exercise, and one on lateness, in words."""
    lines = [_line(result) for result in graded.results]
    if graded.penalty:
        lines.append(f"Late by {number(graded.days_late)} days: {number(graded.penalty)} points less.")
    return lines + ([graded.comment] if graded.comment else [])


def _row(graded):
    points = ["" if lacks_points(result) else number(result.points) for result in graded.results]
    return [
        *(graded.key, graded.student, *points),
        *(number(graded.penalty), _total(graded), number(graded.possible), graded.status, graded.comment),
    ]


def _worksheet_row(graded):
    number_there = graded.ids.get("moodle", "")
    comments = "<br>".join(html.escape(line, quote=False) for line in summary(graded))
    return [
        *(f"Participant {number_there}" if number_there else "", graded.student, _total(graded)),
        *(number(graded.possible), "-", comments),
    ]


def _total(graded):
    return number(graded.earned) if whole(graded) else ""


def _line(result):
    if lacks_points(result):
        return f"{result.title}: to be graded by hand."
    told = f"{result.title}: {number(result.points)} of {number(result.possible)} points"
    mistake = f" ({result.mistake})" if result.mistake and not result.by_hand else ""
    return f"{told}{mistake}. {result.comment}".rstrip()


def _csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([_harmless(cell) for cell in row] for row in rows)
    return text.getvalue()


def _harmless(cell):
    """One line of text that no spreadsheet runs."""
    line = " ".join(cell.splitlines()).replace("\0", "")
    keep = line == "-" or _is_number(line)
    return f"'{line}" if line.lstrip(" ").startswith(FORMULA) and not keep else line


def _is_number(text):
    try:
        return float(text) is not None
    except ValueError:
        return False
