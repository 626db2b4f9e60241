"""Who hands in what, in which form and which way, and what has to come of it."""

import csv
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from course_utils.exercises import catalogue
from course_utils.grading import overrides
from course_utils.grading.demo import answers, files
from course_utils.grading.demo.answers import SIGNATURES, UNTOUCHED, Variant
from course_utils.grading.demo.files import File
from course_utils.grading.demo.names import NAMES, ODD

SIZE = 100
ENDLESS = 2  # each costs its whole time limit
LATE_POLICY = "10% per day"  # and Canvas does not tell more than that it is late: a day, at least
BY_HAND = "04.l2_loss"
COMMENT = "One point: the idea is right, see my note in the lab.\nThe next one will be yours."


@dataclass(frozen=True)
class Planned:
    """One student: what was written, how it is handed in, and what the gradebook has to say."""

    student: str  # as the gradebook shows it
    written: dict[str, Variant]
    form: str
    way: str
    number: int
    by_hand: float | None = None  # points for BY_HAND

    @property
    def readable(self) -> bool:
        """Whether there is anything to grade."""
        return self.form not in files.UNREADABLE

    @property
    def outcomes(self) -> dict[str, tuple[str, str | None]]:
        """Exercise -> outcome and mistake that the grader has to find."""
        found = {key: (variant.outcome, variant.mistake) for key, variant in self.written.items()}
        return found if self.readable else dict.fromkeys(SIGNATURES, (UNTOUCHED, None))

    @property
    def points(self) -> float:
        """What has to be earned, late as it may be."""
        passed = [key for key, (outcome, _) in self.outcomes.items() if outcome == answers.PASSED]
        earned = sum(catalogue.find(key).points for key in passed) + (self.by_hand or 0.0)
        return round(earned * (0.9 if self.way == LATE else 1.0), 2)

    @property
    def status(self) -> str:
        """What the gradebook has to say besides."""
        if self.form == files.NOTHING:
            return "nothing handed in"
        return "graded" if self.readable else "unreadable"

    @property
    def look(self) -> bool:
        """Whether the class page has to ask for a look by hand."""
        if not self.readable:
            return self.form != files.NOTHING
        return any(variant.look for variant in self.written.values())


def plan(seed: int = 4) -> list[Planned]:
    """The class: each known mistake, each form of a notebook and each way of handing in is there."""
    chance = random.Random(seed)
    readable = [form for form in files.FORMS if form not in files.UNREADABLE]
    forms = _mostly("as saved", readable * 2, SIZE - len(files.UNREADABLE), chance)
    written = [*_written(len(forms), chance), *_written(len(files.UNREADABLE), chance)]
    ways = [*_mostly("folder", [*WAYS] * 5, SIZE - 1, chance), "folder"]  # the last has nothing in it
    rows = [*zip(written, [*forms, *files.UNREADABLE], ways, strict=True)]
    chance.shuffle(rows)
    names = [*ODD, *chance.sample(NAMES, SIZE - len(ODD))]
    chance.shuffle(names)
    planned = [
        Planned(SHOWN.get(row[2], str)(name), *row, number)
        for number, (name, row) in enumerate(zip(names, rows, strict=True))
    ]
    return [replace(one, by_hand=1.0) if one.number in _helped(planned) else one for one in planned]


def write(planned: Iterable[Planned], folder: Path) -> None:
    """Write what the students hand in below `folder`, and what is given by hand into a file beside it."""
    planned = list(planned)
    archives: dict[str, list[File]] = {}
    for one in planned:
        source = {key: variant.source for key, variant in one.written.items()}
        file, archive = WAYS[one.way](one, files.notebook(source, one.form))
        archives.setdefault(archive, []).append(file)
    files.write(archives.pop("", []), folder)
    files.write([File(name, files.zipped(inside)) for name, inside in archives.items()], folder)
    with by_hand_file(folder).open("w", encoding="utf-8", newline="") as file:
        rows = [[one.student, BY_HAND, one.by_hand, COMMENT] for one in planned if one.by_hand is not None]
        csv.writer(file).writerows([overrides.COLUMNS, *rows])


def by_hand_file(folder: Path) -> Path:
    """Where the points by hand stand."""
    return folder.with_name("by_hand.csv")


def _helped(planned) -> list[int]:
    """The two students who get a point by hand: wrong with a known mistake, right in another exercise."""
    plain = (one for one in planned if one.way == "folder" and one.form == "as saved" and one.points)
    return [one.number for one in plain if one.written[BY_HAND].mistake][:2]


def _written(size, chance) -> list[dict[str, Variant]]:
    """What each student writes: of each exercise every variant once, then what is most common.

    Who does well in one exercise mostly does well in the others.
    """
    columns = [_column(exercise_id, size, chance) for exercise_id in SIGNATURES]
    return [dict(zip(SIGNATURES, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(exercise_id, size, chance):
    special = [*answers.hostile(), *answers.endless() * ENDLESS]
    of = [
        [variant for variant in group if variant.exercise_id == exercise_id]
        for group in (answers.right(), answers.wrong(), answers.unfinished(), special)
    ]
    column = [variant for group in of for variant in group][:size]
    while len(column) < size:
        column.append(chance.choice(of[chance.choices((0, 1, 2), (7, 3, 1))[0]]))
    return sorted(column, key=lambda variant: (variant.outcome == answers.PASSED) + chance.gauss(0, 0.6))


def _mostly(usual, others, size, chance) -> list[str]:
    """`size` words: the others, and the usual one for the rest."""
    found = [*others, *[usual] * (size - len(others))]
    chance.shuffle(found)
    return found


# --- the ways: what the file is called, and the archive that it comes in, if it does


def _folder(one: Planned, data: bytes):
    name = ".DS_Store" if one.form == files.NOTHING else files.NAME
    return File(f"{one.student}/{name}", data), ""


def _flat(one, data):
    return File(f"{one.student}.ipynb", data), ""


def _zip(one, data):
    return File(files.NAME, data), f"{one.student}.zip"


def _moodle(one, data):
    return File(f"{one.student}_{4000 + one.number}_assignsubmission_file_/{files.NAME}", data), ""


def _nbgrader(one, data):
    return File(f"submitted/{one.student}/lesson_04/{files.NAME}", data), ""


def _canvas(one, data):
    return File(f"{one.student}_{7000 + one.number}_{9000 + one.number}_{files.NAME}", data), "canvas.zip"


def _canvas_late(one, data):
    return File(
        f"{one.student}_LATE_{7000 + one.number}_{9000 + one.number}_{files.NAME}", data
    ), "canvas.zip"


def _canvas_zip(one, data):
    inner = files.zipped([File(files.NAME, data)])
    return File(f"{one.student}_{7000 + one.number}_{9000 + one.number}_homework.zip", inner), "canvas.zip"


def _as_canvas_writes(name: str) -> str:
    """Canvas's name in file names: the sort name, in small letters and digits alone."""
    *first, last = name.split()
    return re.sub(r"[^\w]", "", "".join([last, *first])).lower()


LATE = "Canvas, late"
WAYS: dict[str, Callable[[Planned, bytes], tuple[File, str]]] = {
    "folder": _folder,
    "flat": _flat,
    "zip": _zip,
    "Moodle": _moodle,
    "nbgrader": _nbgrader,
    "Canvas": _canvas,
    LATE: _canvas_late,
    "Canvas, zipped": _canvas_zip,
}
SHOWN = dict.fromkeys(("Canvas", LATE, "Canvas, zipped"), _as_canvas_writes)
