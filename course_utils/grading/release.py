"""`course release`: the learners' copy of the course, with an id that says exactly which it is.

The id is made of what is in it, so the same content gives the same id, wherever and whenever it is made. It
stands in RELEASE.json, in the README and in the metadata of every notebook.
"""

import contextlib
import hashlib
import io
import json
import os
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import ReleaseError
from course_utils.exercises import catalogue, proving
from course_utils.grading import bundle, nbgrader_course
from course_utils.notebooks import build, sources

MANIFEST = sources.RELEASE
OUR_OUTPUT = ("build", "dist")  # folders of the course that are not part of it
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the time of files in an archive: none that changes


@dataclass(frozen=True)
class Release:
    """A release that was written: where, its id, the names of its lessons, the archive if one was made.

    `removed` is an archive of another release that lay beside it.
    """

    path: Path
    id: str
    lessons: tuple[str, ...]
    archive: Path | None = None
    removed: Path | None = None


def release(
    out: Path,
    lessons: tuple[str, ...] = (),
    *,
    zipped: bool = False,
    nbgrader: bool = False,
    root: Path = bundle.ROOT,
) -> Release:
    """The release of these lessons (by number or name; none: all), written into the folder `out`.

    `zipped` also writes `out`.zip. With `nbgrader`, `out` becomes what nbgrader makes a release from instead:
    the lessons *with solutions*. An earlier release in `out` is replaced, if nobody has changed it; its
    archive goes with it. All is written or nothing. `root` is the course.

    Raises ReleaseError where `out` cannot be used, a notebook differs from its source or an exercise is only
    begun, NotebookError for an unknown lesson.
    """
    paths = sources.find(lessons, root / "notebooks")
    out, archive = Path(out).resolve(), _archive(out)
    _refuse_our_own_folders(out, root.resolve())
    _refuse_begun_exercises(paths)
    with _file_errors_told(out):
        _refuse_what_is_not_ours(out, archive if zipped else None)
        name, files = _files(paths, nbgrader, root)
        _write(out, files)
        if zipped:
            _replace(archive, _zip(files, out.name))
        stale = not zipped and _is_of_another(archive, files[MANIFEST])
        if stale:  # or somebody hands it out for this one
            archive.unlink()
    lessons = tuple(path.stem for path in paths)
    return Release(out, name, lessons, archive if zipped else None, archive if stale else None)


def _files(paths, nbgrader, root):
    """Id and files of the release, RELEASE.json among them."""
    for path in paths:
        if differs := build.drift(path):
            raise ReleaseError(f"A release needs notebooks as their sources build them, and {differs}")
    name, files = _learners(paths, root)
    files = nbgrader_course.contents(paths) if nbgrader else files
    files = {
        path: bundle.stamped(content, name) if path.endswith(".ipynb") else content
        for path, content in files.items()
    }
    told = {"id": name, "version": _version(root), "lessons": [path.stem for path in paths]}
    told["files"] = _digests(files)
    return name, files | {MANIFEST: (json.dumps(told, indent=1) + "\n").encode()}


def _learners(paths, root):
    """Id and files of the learners' copy; README names the id, and counts without it."""
    files = bundle.contents(paths, root)
    content = files | {"README.md": bundle.readme(paths, "", root)}
    listed = "".join(f"{digest}  {path}\n" for path, digest in _digests(content).items())
    name = f"{_version(root)}+{hashlib.sha256(listed.encode()).hexdigest()[:12]}"
    return name, files | {"README.md": bundle.readme(paths, name, root)}


def _version(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def _digests(files):
    return {path: hashlib.sha256(files[path]).hexdigest() for path in sorted(files)}


def _archive(out):
    return Path(out).resolve().with_name(f"{Path(out).resolve().name}.zip")


def _refuse_our_own_folders(out, root):
    if root.is_relative_to(out):
        where = "a folder that holds the course"
    elif out.is_relative_to(root) and (inside := out.relative_to(root).parts[0]) not in OUR_OUTPUT:
        where = f"the course's own folder {inside}"
    else:
        return
    raise ReleaseError(
        f"A release cannot be written into {where}.",
        cure="Give a folder outside of the course, or one in `build`, as in `course release build/release`.",
    )


def _refuse_begun_exercises(paths):
    to_do = [
        told
        for path in paths
        if path.stem[:2] in catalogue.lessons()
        for exercise in catalogue.exercises_of(path.stem[:2])
        for told in proving.still_to_do(exercise)
    ]
    if to_do:
        more = f" (and {len(to_do) - 1} more)" if to_do[1:] else ""
        raise ReleaseError(
            f"An exercise is only begun, so it cannot be released. {to_do[0]}{more}",
            cure="Write what is missing, or release other lessons: `course release OUT --lessons 04 05`.",
        )


def _refuse_what_is_not_ours(out, archive):
    if out.exists() and not out.is_dir():
        raise ReleaseError(f"{out.name} is a file.", cure="Give the name of a folder, new or empty.")
    if out.is_dir() and any(out.iterdir()):
        _refuse_a_changed_folder(out)
    if archive and archive.exists() and not _is_our_archive(archive):
        raise ReleaseError(
            f"{archive.name} is there already, and is no archive of a release.",
            cure="Move it away, or give the release another name.",
        )


def _refuse_a_changed_folder(out):
    cure = "Give a new folder, or move this one away."
    try:
        known = json.loads((out / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(f"{out.name} is not empty, and holds no release.", cure=cure) from None
    files = {path: (out / path).read_bytes() for path in _listed(out) if path != MANIFEST}
    changed = sorted({path for path, _ in _digests(files).items() ^ dict(known).items()})
    if changed:
        others = f" and {len(changed) - 1} more" if changed[1:] else ""
        raise ReleaseError(
            f"{out.name} holds a release that was changed since it was made: {changed[0]}{others}.",
            cause="somebody works in it.",
            cure=cure,
        )


def _listed(folder):
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return [path.as_posix() for path in found if "__pycache__" not in path.parts]


def _is_our_archive(path):
    return zipfile.is_zipfile(path) and any(
        name.count("/") == 1 and name.endswith(f"/{MANIFEST}") for name in zipfile.ZipFile(path).namelist()
    )


def _is_of_another(archive, manifest):
    """Whether it is an archive of a release, and not of the one with this manifest."""
    if not archive.is_file() or not _is_our_archive(archive):
        return False
    with zipfile.ZipFile(archive) as held:
        return manifest not in [held.read(name) for name in held.namelist() if name.endswith(f"/{MANIFEST}")]


@contextlib.contextmanager
def _file_errors_told(out) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReleaseError(
            f"The release could not be written to {out.name}: {error.strerror or error}.",
            cure="Give a folder that you may write to, on a disk with some space; nothing was left there.",
        ) from None


def _write(out, files):
    """Write beside `out`, then take its name: whoever looks sees the old release, or the new one whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
        new, old = Path(beside, "new"), Path(beside, "old")
        for path, content in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_bytes(content)
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except BaseException:
            if old.exists():
                old.rename(out)
            raise


def _zip(files, folder):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(f"{folder}/{path}", LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path], zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _replace(path, content):
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as beside:
        draft = Path(beside, path.name)
        draft.write_bytes(content)
        os.replace(draft, path)
