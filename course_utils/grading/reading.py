"""From the bytes of a file that was handed in to its answers. Nothing that the file holds makes this raise.

What cannot be read is a `Notebook` with an `error`: a sentence that says what the file is, and what to do.
Outputs are dropped while the text is taken apart, so that a notebook with a huge one costs little memory.
"""

import codecs
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from course_utils.exercises import catalogue
from course_utils.grading import cells as answering
from course_utils.grading import filekinds
from course_utils.grading.model import Notebook

MAX_BYTES = 200_000_000
# How many lists, dicts and texts a file may hold: each takes memory, however short it is in the file.
MAX_PARTS, MAX_TEXTS = 4_000_000, 10_000_000
MAX_CELLS = 2_000
MAX_CODE = 300_000  # characters in all code cells together: a lesson has about 20,000

CLEAR_OUTPUTS = "In JupyterLab: Edit → Clear Outputs of All Cells, save, and hand the notebook in again."
OTHER_CELLS = "Delete the cells that do not belong to the lesson, and hand it in again."
SAVE_AGAIN = "Open it in JupyterLab, see that it is whole, save it, and hand it in again."
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class _Unreadable(Exception):
    """A file without answers; `str(error)` says why, and what to do."""


def read(data: bytes, name: str) -> Notebook:
    """The notebook in these bytes; `name` is the file's, for messages only. Never raises for its content."""
    name = clean(name)
    if len(data) > MAX_BYTES:
        return too_large(name, len(data))
    try:
        text, notes = _decoded(data)
        return _notebook(_parsed(text), name, notes)
    except _Unreadable as reason:
        return Notebook(name, error=str(reason))
    except (RecursionError, MemoryError):
        return Notebook(name, error=f"The file is built in a way that no notebook is. {SAVE_AGAIN}")


def read_file(path: Path, name: str = "") -> Notebook:
    """The notebook in this file; what is too large, or no ordinary file, is refused without reading it."""
    name = clean(name or path.name)
    try:
        # Without waiting: opening a named pipe would wait for somebody who writes into it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                return Notebook(name, error="This is no ordinary file. Hand in the notebook itself.")
            return too_large(name, seen.st_size) if seen.st_size > MAX_BYTES else read(file.read(), name)
    except OSError as error:
        return Notebook(name, error=f"The file could not be opened: {error.strerror or error}.")


def too_large(name: str, size: int) -> Notebook:
    """What is said of a file that is refused for its size, in bytes."""
    limit = MAX_BYTES // 1_000_000
    told = f"The file has {size / 1e6:,.0f} MB; more than {limit} MB are not read. {CLEAR_OUTPUTS}"
    return Notebook(clean(name), error=told)


def clean(text: Any) -> str:
    """Text that can be stored and shown: at most 200 characters, all of them printable."""
    text = str(text).encode("utf-8", "replace").decode("utf-8")
    return "".join(c for c in text if c.isprintable()).strip()[:200]


def _decoded(data):
    """The text of the file, and notes on how it was saved."""
    if not data.strip():
        raise _Unreadable(f"The file is empty. {SAVE_AGAIN}")
    kind = filekinds.looks_like(data[:4096])
    if kind:
        told = f"This is {kind}, not a notebook, whatever its name says."
        raise _Unreadable(f"{told} {filekinds.advice(kind)}")
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if encoding is None and b"\0" in data[:4]:
        encoding = "utf-16-le" if data[1:2] == b"\0" else "utf-16-be"
    return _in(encoding or "utf-8", data)


def _in(encoding, data):
    try:
        told = encoding.startswith("utf-16")
        return data.decode(encoding), ["The file was saved as UTF-16; notebooks are UTF-8."] * told
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise _Unreadable(f"The file's text is damaged ({encoding}). {SAVE_AGAIN}") from None
        note = "The file was not saved as UTF-8; letters with accents may have suffered."
        return data.decode("cp1252", "replace"), [note]


def _parsed(text):
    if text.count("[") + text.count("{") > MAX_PARTS or text.count('"') > 2 * MAX_TEXTS:
        raise _Unreadable(f"The file holds millions of parts, as no notebook does. {CLEAR_OUTPUTS}")
    try:
        return json.loads(text, object_pairs_hook=_slim, parse_int=_small, parse_float=_small)
    except json.JSONDecodeError as error:
        raise _Unreadable(_what_is_no_json(text, error)) from None
    except ValueError:
        raise _Unreadable(f"The file is damaged. {SAVE_AGAIN}") from None


def _slim(pairs):
    """An object without what is not looked at."""
    found = dict(pairs)
    for heavy in ("outputs", "attachments", "widgets"):
        if heavy in found:
            found[heavy] = None
    return found


def _small(digits):
    return int(digits) if len(digits) < 4 and digits.isdigit() else 0


def _what_is_no_json(text, error):
    if text.lstrip()[:1] not in ("{", "["):
        if filekinds.is_script(text):
            return f"This is a Python script, not a notebook. {filekinds.DOWNLOAD}"
        return f"This is no notebook: the text does not begin like one. {filekinds.DOWNLOAD}"
    if re.search(r"^(<{7}|>{7}|={7})( |$)", text, re.MULTILINE):
        return f"The file holds marks of a Git merge that was not finished (<<<<<<<). Finish it. {SAVE_AGAIN}"
    end = text.rstrip()
    if error.pos >= len(end) or not end.endswith(("}", "]")):
        return f"The file breaks off after {len(text):,} characters: its end is missing. {SAVE_AGAIN}"
    return f"The file is damaged at line {error.lineno}, column {error.colno}. {SAVE_AGAIN}"


def _notebook(content, name, notes):
    found = _list_of_cells(content)
    if len(found) > MAX_CELLS:
        raise _Unreadable(f"The notebook has {len(found):,} cells; {MAX_CELLS:,} are the most that are read.")
    course = _dict(_dict(content.get("metadata")).get("course"))
    code, more = _code_cells(found)
    lesson = _lesson(course.get("lesson")) or answering.lesson_of(code)
    answers = answering.answers(code, lesson)
    release = course.get("release")
    notes = [*notes, *more, *_not_found(lesson, answers)]
    if not answers:
        notes = [*notes, _nothing_found(lesson)]
    release = clean(release)[:100] if isinstance(release, str | int) else None
    return Notebook(name, lesson, release or None, answers, tuple(notes))


def _list_of_cells(content):
    if not isinstance(content, dict):
        raise _Unreadable(f"This is JSON, but no notebook. {filekinds.DOWNLOAD}")
    sheets = content.get("worksheets")  # nbformat 2 and 3
    if isinstance(sheets, list) and "cells" not in content:
        return [cell for sheet in sheets for cell in _list(_dict(sheet).get("cells"))]
    if not isinstance(content.get("cells"), list):
        raise _Unreadable(f"This is JSON, but no notebook: it has no cells. {filekinds.DOWNLOAD}")
    return content["cells"]


def _code_cells(found):
    """The code cells, and a note on each answer that stands in a cell of text."""
    code, notes = [], []
    length = sum(len(_source(cell)) for cell in found if isinstance(cell, dict) and _is_code(cell))
    if length > MAX_CODE:
        told = f"The notebook holds {length:,} characters of code; {MAX_CODE:,} is the limit."
        raise _Unreadable(f"{told} {OTHER_CELLS}")
    for number, cell in enumerate(found, 1):
        if not isinstance(cell, dict):
            continue
        marked = _marked(cell)
        if _is_code(cell):
            code.append(answering.code_cell(number, _source(cell), marked))
        elif marked and _source(cell).strip():
            notes.append(
                f"Cell {number}, the answer to {marked}, is a cell of text, which does not run. Make it code "
                "again: click beside it, press Y, and save."
            )
    return code, notes


def _is_code(cell):
    kind = cell.get("cell_type")
    return kind == "code" or (not isinstance(kind, str) and ("outputs" in cell or "input" in cell))


def _source(cell):
    """A cell's text, which may be a list of lines; nbformat 3 calls it input."""
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str):
        return ""
    source = source.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").removeprefix("\ufeff")
    return source.encode("utf-8", "replace").decode("utf-8")


def _marked(cell):
    """The exercise that the cell's metadata names: ours, nbgrader's, or the cell's id."""
    metadata = _dict(cell.get("metadata"))
    named = (metadata.get("exercise_id"), _dict(metadata.get("nbgrader")).get("grade_id"), cell.get("id"))
    return next((_known()[name] for name in named if isinstance(name, str) and name in _known()), None)


def _known():
    """Every id as it may be written in metadata, with the id that is meant."""
    ids = [exercise.id for exercise in catalogue.all_exercises()]
    return {**{i: i for i in ids}, **{f"answer-{i.replace('.', '-')}": i for i in ids}}


def _lesson(stated):
    digits = stated[:2] if isinstance(stated, str) else ""
    return digits if digits in catalogue.lessons() else None


def _not_found(lesson, answers):
    missing = [e for e in (catalogue.exercises_of(lesson) if lesson else []) if e.id not in answers]
    if not answers:
        return []
    return [
        f"There is no cell for {e.id} ({e.title}): it was deleted, or `{e.name}` was renamed."
        for e in missing
    ]


def _nothing_found(lesson):
    if lesson:
        return f"No answer to lesson {lesson} is in this notebook: its answer cells are gone or renamed."
    return "This notebook holds no exercise of the course. Was another file meant?"


def _dict(value):
    return value if isinstance(value, dict) else {}


def _list(value):
    return value if isinstance(value, list) else []
