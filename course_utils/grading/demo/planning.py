"""Who hands in what, in which form and which way, and what has to come of it."""

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from course_utils.exercises import catalogue
from course_utils.grading.demo import answers, files
from course_utils.grading.demo.answers import SIGNATURES, UNTOUCHED, Variant
from course_utils.grading.demo.files import File
from course_utils.grading.demo.names import NAMES

SIZE = 100
ENDLESS = 2  # each costs its whole time limit


@dataclass(frozen=True)
class Planned:
    """One student: what was written, how it is handed in, and what the gradebook has to say."""

    student: str  # as the gradebook shows it
    written: dict[str, Variant]
    form: str
    way: str
    number: int

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
        """What has to be earned."""
        passed = [key for key, (outcome, _) in self.outcomes.items() if outcome == answers.PASSED]
        return float(sum(catalogue.find(key).points for key in passed))

    @property
    def status(self) -> str:
        """What the gradebook has to say besides."""
        return "graded" if self.readable else "unreadable"

    @property
    def look(self) -> bool:
        """Whether the class page has to ask for a look by hand."""
        return not self.readable or any(variant.look for variant in self.written.values())


def plan(seed: int = 4) -> list[Planned]:
    """The class: each known mistake, each form of a notebook and each way of handing in is there."""
    chance = random.Random(seed)
    readable = [form for form in files.FORMS if form not in files.UNREADABLE]
    forms = _mostly("as saved", readable * 2, SIZE - len(files.UNREADABLE), chance)
    written = [*_written(len(forms), chance), *_written(len(files.UNREADABLE), chance)]
    ways = _mostly("folder", [*WAYS] * 5, SIZE, chance)
    rows = [*zip(written, [*forms, *files.UNREADABLE], ways, strict=True)]
    chance.shuffle(rows)
    names = chance.sample(NAMES, SIZE)
    return [
        Planned(SHOWN.get(row[2], str)(name), *row, number)
        for number, (name, row) in enumerate(zip(names, rows, strict=True))
    ]


def write(planned: Iterable[Planned], folder: Path) -> None:
    """Write what the students hand in below `folder`."""
    archives: dict[str, list[File]] = {}
    for one in planned:
        source = {key: variant.source for key, variant in one.written.items()}
        file, archive = WAYS[one.way](one, files.notebook(source, one.form))
        archives.setdefault(archive, []).append(file)
    files.write(archives.pop("", []), folder)
    files.write([File(name, files.zipped(inside)) for name, inside in archives.items()], folder)


def _written(size, chance) -> list[dict[str, Variant]]:
    """What each student writes: of each exercise every variant once, then what is most common."""
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
    chance.shuffle(column)
    return column


def _mostly(usual, others, size, chance) -> list[str]:
    """`size` words: the others, and the usual one for the rest."""
    found = [*others, *[usual] * (size - len(others))]
    chance.shuffle(found)
    return found


# --- the ways: what the file is called, and the archive that it comes in, if it does


def _folder(one: Planned, data: bytes):
    return File(f"{one.student}/{files.NAME}", data), ""


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


WAYS: dict[str, Callable[[Planned, bytes], tuple[File, str]]] = {
    "folder": _folder,
    "flat": _flat,
    "zip": _zip,
    "Moodle": _moodle,
    "nbgrader": _nbgrader,
    "Canvas": _canvas,
    "Canvas, late": _canvas_late,
    "Canvas, zipped": _canvas_zip,
}
SHOWN = dict.fromkeys(("Canvas", "Canvas, late", "Canvas, zipped"), _as_canvas_writes)
