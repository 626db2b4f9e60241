"""Whose a file is, by where it lies and how it is called, and a name for each student that is safe for files.

Learning platforms name what they let an instructor download:

    Canvas      lastnamefirst_LATE_12345_678901_name-1.ipynb
    Moodle      First Last_1234567_assignsubmission_file/name.ipynb, or flat, with _name.ipynb at its end
    nbgrader    submitted/STUDENT/ASSIGNMENT/name.ipynb, with a timestamp.txt beside it
    Gradescope  submission_123456/name.ipynb, with submission_metadata.yml beside the folders

What is not named so belongs to the folder or zip that it lies in; a file that lies in none, to its own name.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

import yaml

from course_utils.grading import reading

CANVAS = re.compile(
    r"(?P<name>[^_/]+)(?P<late>_LATE)?_(?P<id>\d{2,})_(?P<upload>\d{4,})_(?P<file>.+)", re.DOTALL
)
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+(?:_(?P<file>.*))?", re.DOTALL)
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)")
# Names of folders that hold students, where nothing else tells.
WRAPPERS = {
    "submissions",
    "submission",
    "submitted",
    "download",
    "downloads",
    "downloaded",
    "export",
    "abgaben",
}
_LESSON = re.compile(
    r"\d\d(_[a-z0-9_]+)?|(lesson|week|hw|homework|assignment|exercise|sheet|ps)[ _-]?\d+", re.IGNORECASE
)
_VERSION = re.compile(r"(?:-(\d{1,3})|[ _]?\((\d{1,3})\)|-Copy(\d{1,3}))$")
_RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
# Endings of what students hand in instead of a notebook.
DOCUMENTS = (
    ".pdf",
    ".docx",
    ".doc",
    ".odt",
    ".rtf",
    ".html",
    ".htm",
    ".py",
    ".rar",
    ".7z",
    ".gz",
    ".tar",
    ".tgz",
)
MAX_KEY = 60
FIELDS = ("name", "email", "sid")  # of a person in Gradescope's list


@dataclass(frozen=True)
class Owner:
    """Whose a file is. What has one `identity` is one student's; `inside` is the file's own name there."""

    identity: tuple[str, str]
    student: str
    inside: tuple[str, ...]
    platform: str = ""
    late: bool = False
    upload: int = 0  # a number that grows from one upload to the next


def owner_of(parts: tuple[str, ...], group: str = "") -> Owner:
    """The owner of what lies there, `parts` being counted from the folder that holds all students.

    `group` tells two students with one name from each other, where they are in different sections.
    """
    for index, part in enumerate(parts):
        found = _by_platform(part, parts[index + 1 :])
        if found:
            return found
    inside = parts[1:] or parts
    name = _stem(parts[0], ".zip")
    if len(parts) == 1:
        name = _stem(name, ".txt", ".json", *DOCUMENTS, ".ipynb")
        name = _without_lesson(_without_version(name))
    return Owner(("", f"{group}/{name}" if group else name), reading.clean(name) or "student", inside)


def version(name: str) -> int:
    """The number that a platform or browser adds to a file handed in again: 2 for "name-2.ipynb"."""
    found = _VERSION.search(_stem(name, ".ipynb"))
    return int(next(filter(None, found.groups()), 0)) if found else 0


def is_wrapper(name: str) -> bool:
    """Whether a folder of that name holds students rather than being one's."""
    return _stem(name.lower(), ".zip") in WRAPPERS


def is_lesson(name: str) -> bool:
    """Whether a folder of that name holds an assignment rather than being a student's."""
    return bool(_LESSON.fullmatch(name))


def is_handed_in(name: str) -> bool:
    """Whether a file that lies among the students' folders is what one of them handed in."""
    lower = name.lower()
    return ".ipynb" in lower or lower.endswith((".zip", *DOCUMENTS)) or is_of_platform(name)


def is_of_platform(name: str) -> bool:
    """Whether a learning platform named it."""
    return _by_platform(name, ()) is not None


def gradescope_names(text: str) -> dict[str, tuple[dict[str, str], ...]]:
    """The submitters of each folder ("submission_123456"), from Gradescope's submission_metadata.yml."""
    try:
        told = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {name: tuple(_submitters(entry)) for name, entry in told.items() if isinstance(name, str)}


def gradescope_identity(person: dict[str, str], identity: tuple[str, str]) -> tuple[str, str]:
    """What tells one person in Gradescope's list from the others; `identity` is the submission's."""
    return (
        "gradescope",
        person.get("sid") or person.get("email") or f"{identity[1]} {person.get('name', '')}",
    )


def keys(students: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """A key for each identity: safe as a file name, unique where case does not count, the same in every run.

    Who has a number on a platform has it in the key. A name that loses something on the way to plain letters,
    and one that another student has too, gets a mark made from the identity.
    """
    plain = {identity: _slug(student) for identity, student in students.items()}
    plain = {i: f"{key}-{_slug(i[1])}" if i[0] else key for i, key in plain.items()}
    seen = Counter(plain.values())
    return {
        identity: key
        if seen[key] == 1 and (identity[0] or _is_whole(students[identity], key))
        else f"{key}-{_digest(identity)}"
        for identity, key in plain.items()
    }


def _by_platform(part, rest):
    stem = _stem(part, ".zip")
    if found := CANVAS.fullmatch(stem):
        inside = (found["file"], *rest)
        upload = int(found["upload"][:18])
        return Owner(("canvas", found["id"]), _shown(found), inside, "canvas", bool(found["late"]), upload)
    if found := MOODLE.fullmatch(stem):
        inside = (*((found["file"],) if found["file"] else ()), *rest)
        return Owner(("moodle", found["id"]), _shown(found), inside or (part,), "moodle")
    if found := GRADESCOPE.fullmatch(stem):
        return Owner(("gradescope", found["id"]), stem, rest or (part,), "gradescope")
    return None


def _shown(found):
    return reading.clean(found["name"]) or found["id"]


def _stem(name, *endings):
    for ending in endings:
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
    return name


def _without_version(name):
    return _VERSION.sub("", name) or name


def _without_lesson(name):
    """A student's name from "anna_04_loss_scaling", or "04_loss_scaling anna"."""
    for title in _titles():
        for pattern in (rf"[ _-]+{title}", rf"{title}[ _-]+"):
            shorter = re.sub(pattern, "", name, count=1, flags=re.IGNORECASE)
            if shorter != name and shorter:
                return shorter
    return name


def _titles():
    from course_utils.notebooks import sources

    folder = sources.FOLDER
    names = {path.stem for pattern in ("*.ipynb", "source/*.py") for path in folder.glob(pattern)}
    return sorted(name for name in names if sources.NAME.fullmatch(name))


def _submitters(entry):
    people = entry.get(":submitters") if isinstance(entry, dict) else None
    people = [person for person in (people if isinstance(people, list) else ()) if isinstance(person, dict)]
    told = [{field: reading.clean(p[f":{field}"]) for field in FIELDS if p.get(f":{field}")} for p in people]
    for person in told:
        others = ", ".join(other.get("name", "?") for other in told if other is not person)
        yield {**person, "others": others, "handed_in": str(entry.get(":created_at", ""))[:40]}


def _slug(student):
    letters = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:MAX_KEY].strip("-")
    return "student" if not slug else f"student-{slug}" if _RESERVED.fullmatch(slug) else slug


def _is_whole(student, key):
    """Whether the key tells this name from all others but for case, accents and what divides its words."""
    letters = "".join(c for c in unicodedata.normalize("NFKD", student) if not unicodedata.combining(c))
    return bool(re.fullmatch(r"[A-Za-z0-9 ._,'-]+", letters)) and len(letters) <= MAX_KEY and key != "student"


def _digest(identity):
    return hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()[:8]
