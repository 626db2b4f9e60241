"""Derives `notebooks/NN_name.ipynb` from its source, with outputs, and tells when the two differ."""

import re
from pathlib import Path

import nbformat

from course_utils.errors import NotebookError
from course_utils.notebooks import sources
from course_utils.notebooks.execute import execute

_WIDGET = "application/vnd.jupyter.widget-view+json"
# Kernel cells have a file name of their own in tracebacks, new with each process.
_CELL_FILE = re.compile(r"/[^\s\"'<>]*/ipykernel_\d+/\d+\.py")
_PACKAGES = re.compile(r"/[^\s\"'<>]*/(?=site-packages/|lib/python3\.\d+/)")
_TEMPORARY = re.compile(r"/(?:var/folders/[^\s\"'<>/]+/[^\s\"'<>/]+/T|tmp)/[^\s\"'<>,)]*?(?=/|[\s\"'<>,)]|$)")
# TensorFlow's C++ part writes these past every log level: process id, time, what hardware it did not find.
_NATIVE_LOG = re.compile(
    r"^(?:[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+:\d+\]|WARNING: All log messages before absl::"
    r"|To enable the following instructions: ).*\n?",
    re.MULTILINE,
)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{8,16}\b")


def build(path: Path, *, time_limit: float = 300, on_cell=lambda cell: None) -> Path:
    """Path of the notebook written for this source, executed and free of anything of this machine.

    Raises `execute.CellFailed`; the notebook of before is then left as it was.
    """
    lesson = sources.read(path)
    executed = execute(sources.notebook(lesson), time_limit=time_limit, on_cell=on_cell)
    return _write(clean(executed, lesson), lesson)


def refresh(path: Path) -> Path:
    """Path of the source's notebook, its metadata brought up to date; nothing is executed, outputs stay.

    Raises NotebookError where code or text differ from the source: only a build mends that.
    """
    lesson = sources.read(path)
    built, expected = _built(lesson), sources.notebook(lesson)
    for mine, theirs in zip(expected.cells, built.cells, strict=False):
        theirs.metadata = mine.metadata
    built.metadata = expected.metadata
    if (differs := _difference(lesson, expected, built)) is not None:
        raise NotebookError(differs, cure=_cure(lesson))
    return _write(built, lesson)


def clean(executed: nbformat.NotebookNode, lesson: sources.Lesson) -> nbformat.NotebookNode:
    """The lesson's notebook with the outputs of `executed`, cleaned of this machine and this run."""
    fresh = sources.notebook(lesson)
    outputs = {cell.id: cell for cell in executed.cells if cell.cell_type == "code"}
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.execution_count = outputs[cell.id].execution_count
            cleaned = (_clean_output(output) for output in outputs[cell.id].outputs)
            cell.outputs = [
                output for output in cleaned if output.get("text") != "" and output.get("data") != {}
            ]
    return fresh


def drift(path: Path) -> str | None:
    """What differs between a source and its notebook, as one sentence with the cure; None where they agree.

    Code, text and metadata are compared, cell by cell; outputs are not.
    """
    lesson = sources.read(path)
    if not lesson.notebook_path.exists():
        return f"{lesson.name}.ipynb is missing. {_cure(lesson)}"
    differs = _difference(lesson, sources.notebook(lesson), _built(lesson))
    return differs and f"{differs} {_cure(lesson)}"


def scrubbed(text: str) -> str:
    """The text of an output without what is peculiar to this machine: its folders and memory addresses."""
    root = str(sources.FOLDER.parent)
    text = _CELL_FILE.sub("cell.py", _NATIVE_LOG.sub("", text))
    text = _PACKAGES.sub("", text)
    text = text.replace(root + "/", "").replace(root, ".")
    text = _TEMPORARY.sub("<temporary folder>", text)
    text = text.replace(str(Path.home()) + "/", "~/")
    return _ADDRESS.sub("0x...", text)


def _built(lesson):
    return nbformat.read(lesson.notebook_path, as_version=nbformat.NO_CONVERT)


def _write(notebook, lesson):
    text = nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"
    lesson.notebook_path.write_text(text, encoding="utf-8")
    return lesson.notebook_path


def _cure(lesson):
    return f"Run `course notebooks {lesson.number}`, or `make notebooks` for all."


def _difference(lesson, expected, built):
    """The first difference between the notebook that a source stands for and the one built, as a sentence."""
    for index, (mine, theirs) in enumerate(zip(expected.cells, built.cells, strict=False)):
        for part in ("id", "cell_type", "source", "metadata"):
            if mine[part] != theirs.get(part):
                place = f"{sources.shown(lesson.path)}:{lesson.cells[index].line}"
                return f"{lesson.name}.ipynb differs from its source: {part} of cell {index} ({place})."
    if len(expected.cells) != len(built.cells):
        return f"{lesson.name}.ipynb has {len(built.cells)} cells, its source {len(expected.cells)}."
    if expected.metadata != built.metadata:
        return f"{lesson.name}.ipynb differs from its source in the notebook's metadata."
    return None


def _clean_output(output):
    output = nbformat.from_dict(output)
    for part in ("text", "evalue"):
        if part in output:
            output[part] = scrubbed(output[part])
    if "traceback" in output:
        output["traceback"] = [scrubbed(line) for line in output["traceback"]]
    if "data" in output:
        output["data"].pop(_WIDGET, None)
        for kind, value in output["data"].items():
            if kind.startswith("text/") and isinstance(value, str):
                output["data"][kind] = scrubbed(value)
    return output
