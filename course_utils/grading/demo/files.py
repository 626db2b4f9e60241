"""Submissions as files: lesson 04 with answers in it, in all the states in which notebooks come back."""

import copy
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat

from course_utils.notebooks import sources

NAME = "04_loss_scaling.ipynb"


@dataclass(frozen=True)
class File:
    """A file to be handed in: a path below the folder of submissions, and its bytes."""

    path: str
    data: bytes


def notebook(answers: Mapping[str, str], form: str = "as saved") -> bytes:
    """The bytes of lesson 04 with these answers in its cells, in one of FORMS."""
    cells = copy.deepcopy(_lesson())
    for cell in cells["cells"]:
        if "exercise_id" in cell["metadata"]:
            cell["source"] = answers.get(cell["metadata"]["exercise_id"], cell["source"])
    return FORMS[form](cells)


@cache
def _lesson() -> dict:
    """The lesson as handed out, without the outputs."""
    found = nbformat.read(sources.FOLDER / NAME, as_version=4)
    for cell in found.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return json.loads(nbformat.writes(found))


def _as_saved(lesson: dict) -> bytes:
    return json.dumps(lesson, indent=1, ensure_ascii=False).encode()


def _with_bom(lesson):
    return b"\xef\xbb\xbf" + _as_saved(lesson)


def _latin_1(lesson):
    text = json.dumps(lesson, ensure_ascii=False)
    return "".join(c if ord(c) < 256 else json.dumps(c)[1:-1] for c in text).encode("latin-1")


def _without_metadata(lesson):
    """As after a detour over another tool: cells keep their source and nothing else."""
    for cell in lesson["cells"]:
        cell["metadata"] = {}
    return _as_saved({**lesson, "metadata": {}})


def _answers_only(lesson):
    return _as_saved({**lesson, "cells": _answer_cells(lesson)})


def _reordered(lesson):
    return _as_saved({**lesson, "cells": lesson["cells"][::-1]})


def _doubled(lesson):
    """Each answer cell copied, the first copy as it was handed out."""
    stubs = {cell["metadata"].get("exercise_id"): cell for cell in copy.deepcopy(_lesson()["cells"])}
    cells = []
    for cell in lesson["cells"]:
        if "exercise_id" in cell["metadata"]:
            cells.append({**stubs[cell["metadata"]["exercise_id"]], "id": f"copy-{len(cells)}"})
        cells.append(cell)
    return _as_saved({**lesson, "cells": cells})


def _with_magics(lesson):
    for cell in _answer_cells(lesson):
        cell["source"] = f"%%time\n!pip install tensorflow\n{_text(cell)}\n%matplotlib inline"
    return _as_saved(lesson)


def _with_tabs(lesson):
    for cell in _answer_cells(lesson):
        cell["source"] = _text(cell).replace("    ", "\t")
    return _as_saved(lesson)


def _format_3(lesson):
    found = nbformat.reads(json.dumps(lesson), as_version=4)
    return nbformat.writes(nbformat.convert(found, 3), version=nbformat.NO_CONVERT).encode()


def _cut_off(lesson):
    whole = _as_saved(lesson)
    return whole[: len(whole) // 2]


def _answer_cells(lesson):
    return [cell for cell in lesson["cells"] if "exercise_id" in cell["metadata"]]


def _text(cell):
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


FORMS: dict[str, Callable[[dict], bytes]] = {
    "as saved": _as_saved,
    "with a byte order mark": _with_bom,
    "as Latin-1": _latin_1,
    "metadata lost": _without_metadata,
    "answer cells only": _answers_only,
    "cells in reverse": _reordered,
    "answer cells doubled": _doubled,
    "with magics": _with_magics,
    "with tabs": _with_tabs,
    "notebook format 3": _format_3,
    "cut off": _cut_off,
    "an empty file": lambda lesson: b"",
    "a renamed PDF": lambda lesson: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n",
    "a web page": lambda lesson: b"<html><body>Log in to see this page</body></html>",
    "no notebook": lambda lesson: b"\0",
}
NOTHING = "no notebook"
UNREADABLE = ("cut off", "an empty file", "a renamed PDF", "a web page", NOTHING)


def zipped(files: list[File]) -> bytes:
    """A zip that holds these files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.path, date_time=(2026, 11, 30, 12, 0, 0)), file.data)
    return data.getvalue()


def write(files: list[File], folder: Path) -> None:
    """Write the files below the folder."""
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
