"""Notebooks and zips as they are handed in, made in memory: for the tests of reading and collecting."""

import copy
import io
import json
import stat
import zipfile
from pathlib import Path

from course_utils.notebooks.sources import FOLDER

LOSS, L2, UNEVEN = "04.compute_loss", "04.l2_loss", "04.uneven_batch"
STUB = 'def compute_loss(per_example_loss, global_batch_size):\n    """This replica\'s part."""\n    ...'
RIGHT = (
    "def compute_loss(per_example_loss, global_batch_size):\n"
    "    return tf.reduce_sum(per_example_loss) / global_batch_size"
)
OTHER = RIGHT.replace("reduce_sum", "reduce_mean")
WHEN = (2026, 11, 30, 12, 0, 0)


def _without_outputs(number):
    content = json.loads(next(FOLDER.glob(f"{number}_*.ipynb")).read_text(encoding="utf-8"))
    for cell in content["cells"]:
        cell.pop("outputs", None)
    return content


_LESSONS = {number: _without_outputs(number) for number in ("04", "05", "07", "10")}


def lesson(number: str = "04", **answers: str) -> dict:
    """A lesson's own notebook as a dict; answers by the part of their ids after the dot."""
    content = copy.deepcopy(_LESSONS[number])
    for name, source in answers.items():
        answer_cell(content, f"{number}.{name}")["source"] = source
    return content


def answer_cell(content: dict, exercise_id: str) -> dict:
    """The cell of an exercise."""
    return next(cell for cell in content["cells"] if cell["metadata"].get("exercise_id") == exercise_id)


def place(content: dict, exercise_id: str) -> int:
    """The index of that cell."""
    return content["cells"].index(answer_cell(content, exercise_id))


def code(source: str, **metadata) -> dict:
    """A code cell that a learner has added."""
    return {
        "cell_type": "code",
        "source": source,
        "metadata": metadata,
        "outputs": [],
        "execution_count": None,
    }


def as_bytes(content: dict) -> bytes:
    """The file."""
    return json.dumps(content).encode()


def text(**answers: str) -> str:
    """The file of a lesson 04."""
    return json.dumps(lesson(**answers))


def write(folder: Path, files: dict[str, str | bytes | None]) -> Path:
    """The folder with these files; None is an untouched lesson 04, a name with / at its end a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(_bytes(content))
    return folder


def zipped(files: dict[str, str | bytes | None], when: tuple = WHEN) -> bytes:
    """A zip with these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, when)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, b"" if name.endswith("/") else _bytes(content))
    return made.getvalue()


def link_in_zip(name: str, target: str) -> bytes:
    """A zip with a symbolic link in it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        info = zipfile.ZipInfo(name, WHEN)
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, target)
    return made.getvalue()


def encrypted(data: bytes) -> bytes:
    """The zip with its entries marked as protected by a password, as zip programs mark them."""
    changed = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        changed[data.index(mark) + offset] |= 1
    return bytes(changed)


def _bytes(content):
    content = text() if content is None else content
    return content.encode() if isinstance(content, str) else content
