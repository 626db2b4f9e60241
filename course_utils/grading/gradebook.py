"""The gradebook as CSV: for people, for Canvas and for Moodle.

The same results give the same bytes: there is no time and no date in it. A student whose work is not all
graded, or could not be read, has no total, so that nobody imports too few points by accident.

A cell that a spreadsheet would take for a formula gets an apostrophe in front: names and comments come from
other people.
"""

import csv
import html
import io
from collections.abc import Iterable, Sequence

from course_utils.grading.model import UNGRADED, UNREADABLE, Batch, Graded, Result

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

    Canvas finds students by ID, which only its own downloads tell; else it asks who is who by name. Students
    of one name and without an ID have their key behind it.
    """
    names = _names(batch, "canvas")
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    points = ["    Points Possible", "", "", "", "", number(batch.possible)]
    rows = [
        [names[graded.key], graded.ids.get("canvas", ""), "", "", "", _total(graded)]
        for graded in batch.graded
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
    names = _names(batch, "moodle")
    return _csv([header, *(_worksheet_row(graded, names[graded.key]) for graded in batch.graded)])


def number(points: float) -> str:
    """Points as text: to the hundredth, without needless zeros."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def whole(graded: Graded) -> bool:
    """Whether every exercise has points, by the grader or by hand."""
    return graded.total is not None or not any(_has_none(graded, result) for result in graded.results)


def lacks_points(result: Result) -> bool:
    """Whether neither the grader nor a hand has given points."""
    return result.outcome == UNGRADED and not result.by_hand


def summary(graded: Graded) -> list[str]:
    """A line an exercise, or why nothing could be read, and one on lateness, in words."""
    if graded.status == UNREADABLE:
        by_hand = [_line(result) for result in graded.results if result.by_hand or result.comment]
        return ["Nothing that you handed in could be read.", *graded.notes, *by_hand, *beside(graded)]
    return [*map(_line, graded.results), *beside(graded)]


def beside(graded: Graded) -> list[str]:
    """What lateness took off, and the comment by hand on the whole, in words."""
    lines = []
    if graded.penalty:
        lines.append(f"Late by {number(graded.days_late)} days: {number(graded.penalty)} points less.")
    return lines + ([graded.comment] if graded.comment else [])


def namesakes(students: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Name → keys, for each name that several of these (key, name) read as; blanks and case aside."""
    keys: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for key, name in students:
        alike = " ".join(name.split()).casefold()
        keys.setdefault(alike, []).append(key)
        names.setdefault(alike, " ".join(name.split()))
    return {names[alike]: several for alike, several in keys.items() if len(several) > 1}


def _names(batch, platform):
    """Key → name; with the key behind it for namesakes whom the platform's own number does not tell apart."""
    alike = namesakes((graded.key, graded.student) for graded in batch.graded)
    doubtful = {key for keys in alike.values() for key in keys}
    return {
        graded.key: f"{graded.student.strip()} [{graded.key}]"
        if graded.key in doubtful and not graded.ids.get(platform)
        else graded.student
        for graded in batch.graded
    }


def _row(graded):
    points = ["" if _has_none(graded, result) else number(result.points) for result in graded.results]
    return [
        *(graded.key, graded.student, *points),
        *(number(graded.penalty), _total(graded), number(graded.possible), graded.status, graded.comment),
    ]


def _worksheet_row(graded, name):
    number_there = graded.ids.get("moodle", "")
    comments = "<br>".join(html.escape(line, quote=False) for line in summary(graded))
    return [
        *(f"Participant {number_there}" if number_there else "", name, _total(graded)),
        *(number(graded.possible), "-", comments),
    ]


def _has_none(graded, result):
    """Whether the result lacks points; where nothing could be read, only a hand gives any."""
    return lacks_points(result) or (graded.status == UNREADABLE and not result.by_hand)


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
