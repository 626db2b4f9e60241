"""Results on disk, so that a second run goes on where the first has ended and grades only what has changed.

A result's file is named by a digest of all that the result depends on (`Terms.key`). What has changed has
another name, so nothing is ever out of date; equal answers are graded once. Files are written whole or not
at all; one that is damaged all the same counts as absent.
"""

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from course_utils.errors import GradingError
from course_utils.grading import answers
from course_utils.grading.model import Answer, Result

try:
    import fcntl
except ImportError:  # Windows: two runs in one folder are not told apart there
    fcntl = None

FORM = 1  # of what is stored; a new one makes all else out of date
# The seed, where points by hand are, and the files written.
REMEMBERED = {"seed": int, "overrides": str, "written": list}
PACKAGE = Path(__file__).resolve().parents[1]
# What cannot change a verdict: what makes notebooks and tools, what finds answers, what writes results down.
_GRADING = (
    *("batch", "cells", "collecting", "demo", "examination", "filekinds", "gradebook", "gradescope", "junit"),
    *("late", "magics", "model", "options", "overrides", "reading", "release", "report", "store", "writing"),
)
_APART = (
    *("notebooks", "solutions", "cli.py", "lab.py", "doctor.py", "exercises/cards", "exercises/authoring.py"),
    *("grading/pages", *(f"grading/{name}.py" for name in _GRADING)),
)


class Store:
    """The stored results of one output folder, and what its last run was told.

    A context manager: while it is open, a second run into the same folder is refused (GradingError).
    """

    def __init__(self, out: Path):
        self.folder = out / ".work"
        self.parts = self.folder / "parts"
        self._lock = None

    def __enter__(self) -> "Store":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / "lock")
        shutil.rmtree(self.parts, ignore_errors=True)  # of a run that was killed while it wrote
        self.parts.mkdir()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.parts, ignore_errors=True)
        self._lock.close()

    def read(self, exercise_id: str, key: str) -> Result | None:
        """The stored result; None if there is none, or a damaged one."""
        stored = _read(self._path(exercise_id, key))
        try:
            result = Result.from_json(stored["result"])
        except (KeyError, TypeError):
            return None
        return result if stored.get("digest") == _digest(result.to_json()) else None

    def write(self, key: str, result: Result) -> None:
        """Keep a result."""
        plain = result.to_json()
        text = json.dumps({"digest": _digest(plain), "result": plain}, ensure_ascii=False, indent=1)
        self.write_text(self._path(result.exercise_id, key), text)

    def write_text(self, path: Path, text: str, encoding: str = "utf-8") -> None:
        """Write a file whole: a reader, or a run after a kill, sees the old one or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = self.parts / hashlib.sha256(str(path).encode()).hexdigest()[:32]
        part.write_bytes(text.encode(encoding, "backslashreplace"))
        os.replace(part, path)

    def remembered(self) -> dict:
        """What `remember` was given last, as far as it is not damaged."""
        kept = _read(self.folder / "run.json") or {}
        return {name: kept[name] for name, kind in REMEMBERED.items() if isinstance(kept.get(name), kind)}

    def remember(self, **told) -> None:
        """Keep what the next run needs of this one, beside what was remembered before."""
        told = {**self.remembered(), **told}
        self.write_text(self.folder / "run.json", json.dumps(told, indent=1, sort_keys=True))

    def _path(self, exercise_id, key):
        return self.folder / "answers" / exercise_id / f"{key}.json"


@dataclass(frozen=True)
class Terms:
    """What results depend on beside the answers and the course's code: the seed, limits that matter."""

    seed: int
    timeout: float | None = None
    memory: int | None = None

    def key(self, exercise_id: str, answer: Answer) -> str:
        """The name of the result of an answer: a digest of the program that is run for it, and more."""
        lesson = exercise_id[:2]
        program = answers.program(answer, answers.release_cells(lesson))
        told = [FORM, exercise_id, answer.source, program.to_json(), asdict(self), version(lesson)]
        return _digest(told)[:40]


@cache
def version(lesson: str) -> str:
    """A digest of all that can change a verdict on a lesson: the course's code, and TensorFlow's version."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if _matters(path.relative_to(PACKAGE).as_posix(), lesson):
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for package in ("tensorflow", "keras", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(metadata.version(package).encode())
    return digest.hexdigest()


def _matters(path, lesson):
    if path.startswith("exercises/lesson_"):
        return path == f"exercises/lesson_{lesson}.py"
    return not any(path == apart or path.startswith(f"{apart}/") for apart in _APART)


def _locked(path):
    lock = open(path, "a")  # noqa: SIM115 - held until the store is closed
    if fcntl:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise GradingError(
                f"Another `course grade` is writing into {path.parents[1]}.",
                cure="Wait until it has ended, or give this one another --out.",
            ) from None
    return lock


def _read(path):
    """A JSON object; None for a file that is missing or damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return stored if isinstance(stored, dict) else None


def _digest(plain):
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
