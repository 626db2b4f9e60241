"""Every file under a path that was handed in, also inside zips, and zips in zips. Nothing is unpacked.

Links are not followed, names inside zips are only read as text, and a zip that would grow beyond bounds is
refused as a whole. Notebooks are read on the way, one after the other, so that memory holds one at a time.
"""

import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from course_utils.errors import GradingError
from course_utils.grading import reading
from course_utils.grading.model import Notebook

MAX_FILES = 100_000  # in a folder, or in the zip of a whole class
MAX_ENTRIES = 10_000  # in the zip of one student, zips in it included
MAX_DEPTH = 4  # zips in zips, folders in folders are counted apart
MAX_FOLDERS = 30
MAX_UNPACKED = 1_000_000_000  # bytes that the zip of one student may hold
MAX_RATIO = 100  # what it holds over what it takes, where it holds more than a notebook may
HEAD = 4096
LINK = "This is a link to somewhere else; links are not followed."
_IGNORED = re.compile(
    r"\.[A-Za-z_].*|__MACOSX|__pycache__|Thumbs\.db|desktop\.ini|node_modules", re.IGNORECASE
)
_NOTES = {"timestamp.txt": 1_000, "submission_metadata.yml": 20_000_000}
_TAIL = 64_000_000


@dataclass(frozen=True)
class Found:
    """A file, or a folder (`is_folder`). `parts` are the folders and zips that it lies in, then its own name,
    all as they are written, and only ever taken for text.

    `notebook` is it as read; of what is none, with an error that says what it is. `time` is when the learning
    platform put it into its zip; `official` says that it lies in no zip of a student's own making.
    """

    parts: tuple[str, ...]
    is_folder: bool = False
    notebook: Notebook | None = None
    is_named_so: bool = False
    text: str = ""
    time: datetime | None = None
    official: bool = True
    note: str = ""
    stands_alone: bool = False  # it is all that there is: the path led to this file
    group: str = ""  # the section of the class, where sections have folders of their own


def walk(path: Path) -> Iterator[Found]:
    """All that lies in a folder or zip, in the order of the names; GradingError for a zip that is none."""
    if path.is_dir():
        yield from _in_folder(path, (), [0])
    elif _is_zip(path):
        yield from _in_outer_zip(path)
    else:
        yield replace(_read_file(path, (path.name,)), stands_alone=True)


def is_ignored(name: str) -> bool:
    """Whether the file system, an editor or a zip program made it."""
    return bool(_IGNORED.fullmatch(name))


def _is_zip(path):
    with open(path, "rb") as file:
        return path.suffix.lower() == ".zip" or (
            path.suffix.lower() != ".ipynb" and file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
        )


def _in_folder(folder, parts, count):
    for entry in _entries(folder, parts):
        if isinstance(entry, Found):
            yield entry
            continue
        count[0] += 1
        if count[0] > MAX_FILES:
            raise GradingError(
                f"It holds more than {MAX_FILES:,} files.",
                cure="Give the folder of the submissions alone.",
            )
        yield from _entry(entry, (*parts, entry.name), count)


def _entries(folder, parts):
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        return [_refused(parts or ("",), f"The folder could not be opened: {error.strerror}.")]
    return [entry for entry in entries if not is_ignored(entry.name)]


def _entry(entry, parts, count):
    if entry.is_symlink():
        yield _refused(
            parts, "This is a link to somewhere else; links are not followed. Hand in the file itself."
        )
    elif entry.is_dir(follow_symlinks=False):
        yield Found(parts, is_folder=True)
        if len(parts) == MAX_FOLDERS:
            yield _refused(
                (*parts, "…"), "These folders lie too deep in each other. Hand in the notebook alone."
            )
        else:
            yield from _in_folder(entry.path, parts, count)
    elif entry.name.lower().endswith(".zip") and entry.is_file(follow_symlinks=False):
        yield from _zip_on_disk(Path(entry.path), parts)
    else:
        yield _read_file(Path(entry.path), parts)


def _refused(parts, why):
    return Found(parts, notebook=Notebook(reading.clean(parts[-1]), error=why), is_named_so=True)


def _read_file(path, parts):
    """A file on disk. One that is not named like a notebook is looked at only as far as needed."""
    name = path.name.lower()
    if name in _NOTES:
        return Found(parts, text=_text(path.read_bytes()[: _NOTES[name]]))
    if _is_named_so(name):
        return Found(parts, notebook=reading.read_file(path, parts[-1]), is_named_so=True)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return _refused(parts, "This is no ordinary file. Hand in the notebook itself.")
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        return _refused(parts, f"It could not be opened: {error.strerror}.")
    whole = _could_be_one(head, name)
    return Found(
        parts, notebook=reading.read_file(path, parts[-1]) if whole else reading.read(head, parts[-1])
    )


def _is_named_so(name):
    return ".ipynb" in name.lower()


def _could_be_one(head, name):
    """Whether it may be a notebook that was given another ending, such as by a browser."""
    return (
        Path(name).suffix.lower() in ("", ".json", ".txt", ".download")
        and head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")[:1] == b"{"
    )


def _is_read_whole(name):
    lower = name.lower()
    return _is_named_so(name) or lower.endswith((".zip", *_NOTES)) or _could_be_one(b"{", name)


def _text(data):
    return data.decode("utf-8", "replace")


class _Budget:
    """What the zip of one student may still hold, zips in it included."""

    def __init__(self, entries, size):
        self.entries, self.size = entries, size

    def refuses(self, infos, packed) -> str:
        """Why these entries are too many or too large; empty, and taken off, if they are not."""
        total = sum(info.file_size for info in infos if _is_read_whole(info.filename))
        self.entries -= len(infos)
        self.size -= total
        if self.entries < 0:
            return "The zip holds too many files. Hand in a zip of your notebooks alone."
        if self.size < 0 or total > max(reading.MAX_BYTES, MAX_RATIO * packed):
            return (
                f"The zip would unpack to {total / 1e6:,.0f} MB, which no notebooks need: it was not opened. "
                "Hand in a zip of your notebooks alone."
            )
        return ""


def _zip_on_disk(path, parts):
    """A zip that lies in a folder: a student's own."""
    try:
        size = path.stat().st_size
        if size > reading.MAX_BYTES:
            yield replace(_refused(parts, ""), notebook=reading.too_large(parts[-1], size))
            return
        data = path.read_bytes()
    except OSError as error:
        yield _refused(parts, f"The zip could not be opened: {error.strerror}.")
        return
    yield from _inner_zip(data, parts, _Budget(MAX_ENTRIES, MAX_UNPACKED), 1, None)


def _in_outer_zip(path):
    """The zip of a class, as a learning platform makes it; it may be large."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        if file.read().count(b"PK\x01\x02") > MAX_FILES:
            raise GradingError(f"There are more than {MAX_FILES:,} files in {path.name}.")
        try:
            with zipfile.ZipFile(file) as archive:
                for info in _sorted(archive):
                    yield from _zipped(archive, info, (), None, 0, None)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise GradingError(
                f"{path.name} is no zip that can be read ({error}).",
                cause="It was cut off on the way, or is something else.",
                cure="Download it again.",
            ) from None


def _inner_zip(data, parts, budget, depth, time):
    """What a student's own zip holds."""
    official = replace(_refused(parts, ""), official=False, time=time)
    if depth > MAX_DEPTH:
        yield _because(official, "There are zips in zips in zips. Hand in one zip with your notebooks.")
        return
    if data.count(b"PK\x01\x02") > MAX_FILES:
        yield _because(official, "The zip holds too many files. Hand in a zip of your notebooks alone.")
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = _sorted(archive)
            if why := budget.refuses(infos, len(data)):
                yield _because(official, why)
                return
            yield replace(official, notebook=None, is_named_so=False, is_folder=True)
            for info in infos:
                yield from _zipped(archive, info, parts, budget, depth, time)
    except Exception as error:  # zipfile raises many kinds for bytes that are no zip
        yield _because(official, _no_zip(data, error))


def _because(refused, why):
    return replace(refused, notebook=replace(refused.notebook, error=why))


def _no_zip(data, error):
    if not data:
        return f"The zip is empty. {reading.SAVE_AGAIN}"
    told = (
        "The zip is cut off or damaged"
        if data.startswith(b"PK")
        else "This is no zip, whatever its name says"
    )
    return f"{told} ({type(error).__name__}). Make it again, see that it opens, and hand it in."


def _sorted(archive):
    """The entries that matter, by name: a zip may hold a whole environment beside the notebooks."""
    infos = [info for info in archive.infolist() if not any(map(is_ignored, _parts_of(_filename(info))[0]))]
    return sorted(infos, key=lambda info: info.filename)


def _zipped(archive, info, parts, budget, depth, time):
    """One entry of a zip. `budget` is None in the zip of a class, where each student's zip gets its own."""
    inside, note = _parts_of(_filename(info))
    if not inside:
        return
    found = Found((*parts, *inside), time=_time(info) if depth == 0 else time, official=depth == 0, note=note)
    if info.is_dir():
        yield replace(found, is_folder=True)
        return
    why = _why_not(info)
    data, why = (b"", why) if why else _unzipped(archive, info, inside[-1])
    name = inside[-1].lower()
    if why:
        yield replace(_refused(found.parts, why), official=found.official, time=found.time, note=note)
    elif name.endswith(".zip"):
        own = budget or _Budget(MAX_ENTRIES, MAX_UNPACKED)
        yield from _inner_zip(data, found.parts, own, depth + 1, found.time)
    elif name in _NOTES:
        yield replace(found, text=_text(data[: _NOTES[name]]))
    else:
        yield replace(found, notebook=reading.read(data, inside[-1]), is_named_so=_is_named_so(name))


def _why_not(info):
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"{LINK} Put the file itself into the zip."
    if info.flag_bits & 0x1:
        return "The zip is protected by a password. Hand it in without one."
    limit = reading.MAX_BYTES
    return reading.too_large("", info.file_size).error if info.file_size > limit else ""


def _unzipped(archive, info, name):
    """Its bytes (of what can be no notebook or zip only the first), and why there are none."""
    try:
        with archive.open(info) as file:
            head = file.read(HEAD)
            rest = _is_read_whole(name) and (not _could_be_one(b"{", name) or _could_be_one(head, name))
            return head + (file.read(reading.MAX_BYTES) if rest else b""), ""
    except Exception as error:  # damaged, or packed in a way that Python does not know
        return (
            b"",
            f"It is damaged inside its zip ({type(error).__name__}). Make the zip again, and hand it in.",
        )


def _filename(info):
    """Its name; where the zip does not say that it is UTF-8, it mostly is so nevertheless."""
    if info.flag_bits & 0x800:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.orig_filename


def _parts_of(filename):
    """The parts of a name inside a zip, none of which leads anywhere; a note where one would have."""
    parts = [part for part in re.split(r"[/\\]+", filename.partition("\0")[0]) if part not in ("", ".")]
    drive = bool(re.match(r"[A-Za-z]:", filename))
    if ".." not in parts and not filename.startswith(("/", "\\")) and not drive:
        return tuple(parts[:MAX_FOLDERS]), ""
    note = f"A name in the zip leads out of it ({reading.clean(filename)!r}); only its last part was used."
    return tuple(part for part in parts[-1:] if part != ".."), note


def _time(info):
    try:
        return datetime(*info.date_time)
    except ValueError:
        return None
