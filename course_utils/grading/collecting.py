"""From a path to what each student handed in: any mix of folders, files, zips, and downloads of platforms."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from course_utils.errors import GradingError
from course_utils.grading import naming, reading
from course_utils.grading.model import Submission
from course_utils.grading.naming import Owner
from course_utils.grading.walking import Found, walk

LATE_AT_LEAST = 1.0  # days: what Canvas calls late, without saying how much
UNKNOWN_WHEN = "When it was handed in is not known: counted as in time."
MAX_OTHERS = 3  # files of a student that are no notebooks, where there is no notebook at all
NBGRADER_OWN = {"source", "release", "autograded", "feedback"}
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?[ ]*(\S*)")


def collect(path: Path, due: datetime | None = None, release: str | None = None) -> list[Submission]:
    """What each student under `path` handed in, in the order of their names.

    `path` is a folder, a zip, or one notebook. A lesson that was handed in more than once is there more than
    once, the latest last. `due` is when it had to be in, by this machine's clock if it has no time zone;
    `release` is the id that notebooks should bear, without it the one that most of them do.

    Nothing in a file makes it raise; GradingError where there is nothing at the path, or nothing in it.
    """
    path = Path(path)
    found = _walked(path)
    level = _students_level(found, nbgrader=path.name == "submitted")
    students: dict[tuple[str, str], _Student] = {}
    for each in filter(_is_a_students, _without_containers(level.found)):
        owner = naming.owner_of(each.parts, each.group)
        students.setdefault(owner.identity, _Student(owner, level.nbgrader)).take(owner, each)
    students = _by_gradescope(students, level.found)
    if not students:
        cure = "Give the path of a folder or zip with notebooks in it, or with a folder for each student."
        raise GradingError(f"There is nothing in {path.name or path} that was handed in.", cure=cure)
    keys = naming.keys({identity: student.name for identity, student in students.items()})
    found = [student.submission(keys[identity], due) for identity, student in students.items()]
    return sorted(_compared(found, release), key=lambda each: (each.student.casefold(), each.key))


def _is_a_students(found):
    """Whether it is more than a list or a note that lies beside the students' folders."""
    lies_beside = len(found.parts) == 1 and not found.is_folder
    if not lies_beside or found.stands_alone or found.is_named_so or naming.is_handed_in(found.parts[0]):
        return True
    return found.notebook is not None and bool(found.notebook.answers)


def _walked(path):
    if not path.exists():
        raise GradingError(f"There is nothing at {path}.", cure="Give the path of the submissions.")
    if not (path.is_dir() or path.is_file()):
        raise GradingError(
            f"{path} is neither a file nor a folder.", cure="Give the path of the submissions."
        )
    try:
        return list(walk(path))
    except OSError as error:
        raise GradingError(f"{path} could not be read: {error.strerror or error}.") from None


def _without_containers(found):
    """Without folders and zips in which something lies, which says itself whose it is."""
    holding = {each.parts[:depth] for each in found for depth in range(1, len(each.parts))}
    return [each for each in found if not (each.is_folder and each.parts in holding)]


@dataclass(frozen=True)
class _Level:
    """All that was found, its parts counted from the folder that holds the students."""

    found: list[Found]
    nbgrader: bool = False


def _students_level(found, nbgrader):
    """Step down through the folders that are not a student's: of a download, of nbgrader, of sections."""
    while True:
        tops = {each.parts[0] for each in found}
        if "submitted" in tops and (tops & NBGRADER_OWN or tops == {"submitted"}):
            found, nbgrader = [each for each in found if each.parts[0] == "submitted"], True
        elif len(tops) != 1 or not _holds_students(tops.pop(), found):
            found = _opened(found)
            break
        found = [replace(each, parts=each.parts[1:]) for each in found if len(each.parts) > 1]
    nbgrader = nbgrader or any(each.parts[-1] == "timestamp.txt" and each.official for each in found)
    if not nbgrader and _are_sections(found):
        found = [replace(f, parts=f.parts[1:], group=f.parts[0]) for f in found if len(f.parts) > 1]
    return _Level(found, nbgrader)


def _opened(found):
    """With what lies in nbgrader's folder of submissions beside that of others, as if it lay with them."""
    inside = [each for each in found if each.parts[0] == "submitted" and len(each.parts) > 1]
    if any(len(each.parts) == 2 and not each.is_folder for each in inside):
        return found  # a student's, whatever the name
    others = [each for each in found if each.parts[0] != "submitted"]
    return [*others, *(replace(each, parts=each.parts[1:]) for each in inside)] if inside else found


def _holds_students(name, found):
    """Whether the only folder at the top holds students, rather than being the only student's."""
    inside = [each for each in found if len(each.parts) > 1]
    if not inside or naming.is_of_platform(name):
        return False
    if naming.is_wrapper(name) or any(naming.is_of_platform(each.parts[1]) for each in inside):
        return True
    if any(each.parts[2:] == ("timestamp.txt",) for each in inside):
        return False  # the only student of nbgrader's, with folders of assignments
    return _is_section(inside)


def _are_sections(found):
    """Whether every folder at the top holds students: sections of a class."""
    tops: dict[str, list[Found]] = {}
    for each in found:
        tops.setdefault(each.parts[0], []).append(each)
    platform = any(naming.is_of_platform(part) for each in found for part in each.parts)
    return len(tops) > 1 and not platform and all(_is_section(inside) for inside in tops.values())


def _is_section(inside):
    """Whether a folder holds at least two folders with a notebook of one lesson, and no notebook itself."""
    if any(each.is_named_so for each in inside if len(each.parts) == 2):
        return False
    pairs = {(e.parts[1], e.notebook.lesson) for e in inside if len(e.parts) > 2 and e.notebook}
    folders = {folder for folder, _ in pairs}
    lessons = [lesson for _, lesson in pairs if lesson]
    return len(lessons) > len(set(lessons)) and not any(map(naming.is_lesson, folders))


class _Student:
    """What was found of one student, while it is being found."""

    def __init__(self, owner: Owner, nbgrader: bool = False):
        self.name = owner.student
        platform = owner.platform or ("nbgrader" if nbgrader else "")
        self.ids = {platform: reading.clean(owner.identity[1])} if platform else {}
        self.files: list[tuple[Owner, Found]] = []
        self.stamps: list[str] = []
        self.notes: list[str] = []

    def take(self, owner: Owner, found: Found) -> None:
        """Add what was found; of a timestamp its text, if the student cannot have written it."""
        if found.notebook is not None:
            self.files.append((owner, found))
        elif found.parts[-1] == "timestamp.txt" and found.official:
            self.stamps.append(found.text)

    def join(self, student: "_Student", person: dict[str, str]) -> None:
        """Add what a group handed in, as this person's."""
        self.files += student.files
        self.stamps.append(person["handed_in"])
        self.ids = {"gradescope": person.get("sid") or person.get("email") or ""}
        others = person["others"]
        self.notes += [f"Handed in as a group, with {others}."] * bool(others)

    def submission(self, key: str, due: datetime | None) -> Submission:
        """All of it, the latest last."""
        chosen = sorted(_those_that_count(self.files), key=_age)
        notebooks = tuple(_with_their_names(chosen))
        days, late = _lateness(chosen, self.stamps, due)
        notes = [*self.notes, *late, *_doubled(notebooks), *(found.note for _, found in chosen)]
        if not notebooks:
            notes.append("There is no file in what was handed in.")
        return Submission(
            key, self.name, notebooks, self.ids, days, tuple(filter(None, dict.fromkeys(notes)))
        )


def _those_that_count(files):
    """The notebooks; where there is none, what was handed in instead, so that the student learns why not."""
    named = [(owner, found) for owner, found in files if found.is_named_so]
    others = [(owner, found) for owner, found in files if not found.is_named_so]
    readable = [
        (owner, replace(found, note=f"{found.notebook.name} is a notebook, though it is not named like one."))
        for owner, found in others
        if not found.notebook.error and found.notebook.answers
    ]
    return [*named, *readable] or others[:MAX_OTHERS]


def _age(file):
    """What sorts the files of a student from the earliest to the latest, as far as can be known."""
    owner, found = file
    time = found.time or datetime.min
    return (
        time,
        naming.version(found.parts[-1]),
        owner.upload,
        _natural("/".join(owner.inside)),
        found.parts,
    )


def _natural(name):
    """A key that sorts hw2 before hw10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def _with_their_names(files):
    """The notebooks, each under its path in what the student handed in, or its whole one if two are alike."""
    names = Counter(owner.inside for owner, _ in files)
    for owner, found in files:
        parts = owner.inside if names[owner.inside] == 1 else found.parts
        yield replace(found.notebook, name=reading.clean("/".join(parts)))


def _doubled(notebooks):
    """A note on each lesson that there are several notebooks of."""
    lessons = [notebook.lesson for notebook in notebooks if notebook.lesson and not notebook.error]
    for lesson in sorted({lesson for lesson in lessons if lessons.count(lesson) > 1}):
        names = ", ".join(notebook.name for notebook in notebooks if notebook.lesson == lesson)
        yield f"Lesson {lesson} was handed in more than once; the latest answer counts. Latest last: {names}."


def _lateness(files, stamps, due):
    """Days late, and notes on how that is known."""
    told = any(owner.late for owner, _ in files)
    # Canvas gives all entries of its zip the time of the download.
    entries = [found.time for owner, found in files if found.time and owner.platform != "canvas"]
    times = [time for time in map(_moment, stamps) if time] or entries
    days = max([0.0, *(_days_between(due, time) for time in times)]) if due else 0.0
    if days:
        return days, [f"Handed in {_in_words(days)} late."]
    if told:
        return LATE_AT_LEAST, ["Canvas marks it as late, without saying how late: counted as one day."]
    unknown = due and not times and files and not any(owner.platform == "canvas" for owner, _ in files)
    return 0.0, [UNKNOWN_WHEN] * bool(unknown)


def _moment(text):
    """The moment in a text such as "2026-11-30 21:34:05.123456 Europe/Berlin"; None if there is none."""
    found = _MOMENT.match(text.strip())
    try:
        moment = datetime.fromisoformat(f"{found[1]} {found[2]}") if found else None
        return moment and moment.replace(tzinfo=_zone(found[3].strip()))
    except ValueError:
        return None


def _zone(name):
    if name in ("UTC", "GMT", "Z"):
        return UTC
    if offset := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):  # no zone that this machine knows
        return None


def _days_between(due, moment):
    if due.tzinfo is None and moment.tzinfo is not None:
        moment = moment.astimezone().replace(tzinfo=None)
    if due.tzinfo is not None and moment.tzinfo is None:
        moment = moment.astimezone()
    return (moment - due) / timedelta(days=1)


def _in_words(days):
    for size, unit in ((1, "day"), (1 / 24, "hour"), (1 / 1440, "minute")):
        if days >= size:
            count = f"{days / size:.1f}".removesuffix(".0")
            return f"{count} {unit}{'s' * (count != '1')}"
    return "less than a minute"


def _by_gradescope(students, found):
    """With the names that Gradescope's own list gives; each student of a group has the group's submission."""
    lists = [f.text for f in found if f.parts == ("submission_metadata.yml",) and f.official]
    told = {name: people for text in lists for name, people in naming.gradescope_names(text).items()}
    named: dict[tuple[str, str], _Student] = {}
    for identity, student in students.items():
        people = told.get(f"submission_{identity[1]}") if identity[0] == "gradescope" else None
        if not people:
            named.setdefault(identity, student)
        for person in people or ():
            own = naming.gradescope_identity(person, identity)
            named.setdefault(own, _Student(Owner(own, person.get("name") or student.name, ()))).join(
                student, person
            )
    return named


def _compared(submissions, release):
    """With notes that only show when the class is looked at as a whole: namesakes, and old releases."""
    names = Counter(submission.student.casefold() for submission in submissions)
    releases = Counter(n.release for s in submissions for n in s.notebooks if n.release)
    usual = release or max(sorted(releases), key=releases.get, default=None)
    for submission in submissions:
        notes = [*submission.notes, *_other_releases(submission, usual)]
        if names[submission.student.casefold()] > 1:
            notes.append(f"There is another student of this name; this is {submission.key}.")
        yield replace(submission, notes=tuple(notes))


def _other_releases(submission, usual):
    for release in sorted({n.release for n in submission.notebooks if n.release and n.release != usual}):
        told = f"This is of another release of the course ({release}) than that of the class ({usual})."
        yield f"{told} It is graded by the exercises of today."
