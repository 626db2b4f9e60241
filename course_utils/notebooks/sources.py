"""A lesson's source, `notebooks/source/NN_name.py`, and the notebook that it stands for."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import nbformat

from course_utils.errors import NotebookError
from course_utils.notebooks import nbgrader

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NAME = re.compile(r"\d\d_[a-z0-9]+(_[a-z0-9]+)*")
HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
RELEASE = "RELEASE.json"  # beside `notebooks` in a released copy of the course
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

_MARKER = re.compile(r"^# %%(%*)( .*)?$")


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson. `line` is where its marker stands in the source, counted from 1."""

    index: int
    kind: str
    text: str
    line: int
    id: str
    metadata: dict = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("tags", ()))

    @property
    def exercise_id(self) -> str | None:
        return self.metadata.get("exercise_id")

    @property
    def allowances(self) -> list[str]:
        """Names of the lint rules that this cell may break."""
        return str(self.metadata.get("lint_allows", "")).split()

    @property
    def headings(self) -> list[str]:
        return headings(self.text) if self.kind == "markdown" else []


@dataclass(frozen=True)
class Lesson:
    """One lesson, as its source states it."""

    path: Path
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def number(self) -> str:
        return self.name[:2]

    @property
    def notebook_path(self) -> Path:
        return self.path.parents[1] / f"{self.name}.ipynb"

    @property
    def title(self) -> str:
        return next((text for cell in self.cells for text in cell.headings), "")

    def place(self, cell_id: str) -> str:
        """`file:line` of the cell with this id, for messages."""
        line = next((cell.line for cell in self.cells if cell.id == cell_id), 1)
        return f"{shown(self.path)}:{line}"


def find(chosen: tuple[str, ...] = (), folder: Path = FOLDER) -> list[Path]:
    """Sources of the lessons `chosen` by number ("04") or name, in order; all of them for no choice.

    Raises NotebookError when a choice names no lesson, or when there are none at all.
    """
    every = sorted((folder / "source").glob("*.py"))
    if not every:
        raise NotebookError(
            f"There is no lesson in {shown(folder / 'source')}.",
            expected="files named like 04_loss_scaling.py.",
            cure="Give --folder the folder that holds `source`, or leave it out.",
        )
    if not chosen:
        return every
    found = [[path for path in every if choice and _is_called(path.stem, choice)] for choice in chosen]
    for choice, paths in zip(chosen, found, strict=True):
        if not paths:
            raise NotebookError(
                f"There is no lesson {choice!r}.",
                expected=f"one of {', '.join(path.stem for path in every)}.",
                cure="Give a lesson's number, as in `course run 04`.",
            )
    return sorted({path for paths in found for path in paths})


def read(path: Path) -> Lesson:
    """The lesson in this source. Raises NotebookError when the text is no py:percent notebook."""
    text = path.read_text(encoding="utf-8")
    lines = _marker_lines(path, text)
    cells = jupytext.reads(text, fmt="py:percent").cells
    if len(cells) != len(lines):
        raise NotebookError(
            f"{shown(path)} has {len(lines)} cell markers, yet reads as {len(cells)} cells.",
            cause="A line that begins with `# %%` stands inside a string.",
            cure="Let only cell markers begin with `# %%`.",
        )
    metadata = [{k: v for k, v in cell.metadata.items() if k != "lines_to_next_cell"} for cell in cells]
    ids = _cell_ids(cells, metadata)
    parts = zip(cells, lines, ids, metadata, strict=True)
    return Lesson(
        path,
        tuple(
            Cell(index, cell.cell_type, cell.source, line, cell_id, data)
            for index, (cell, line, cell_id, data) in enumerate(parts)
        ),
    )


def notebook(lesson: Lesson) -> nbformat.NotebookNode:
    """The lesson's notebook, not yet executed: stable cell ids, and nothing of this machine."""
    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [make[cell.kind](cell.text, id=cell.id, metadata=_cell_metadata(cell)) for cell in lesson.cells]
    metadata = {
        "kernelspec": dict(KERNEL),
        "language_info": {"name": "python"},
        "course": {"lesson": lesson.name} | _release(lesson),
    }
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def headings(text: str) -> list[str]:
    """Texts of the headings in a Markdown text, those inside code fences left out."""
    return [match[2] for match in HEADING.finditer(FENCED.sub("", text))]


def shown(path: Path) -> str:
    """The path as messages show it: from `notebooks/` on, so that no machine's folders are in it."""
    parts = path.parts
    return "/".join(parts[parts.index("notebooks") :]) if "notebooks" in parts else path.name


def _is_called(name, choice):
    return name == choice.removesuffix(".ipynb").removesuffix(".py") or name.split("_")[0] == choice.zfill(2)


def _marker_lines(path, text):
    lines = text.splitlines()
    markers = [number for number, line in enumerate(lines, 1) if _MARKER.match(line)]
    before = [line for line in lines[: markers[0] - 1 if markers else None] if line.strip()]
    if not markers or (before and before[0] != "# ---"):
        raise NotebookError(
            f"{shown(path)} does not begin with a cell marker.",
            expected="`# %% [markdown]` on its first line",
            cure="Move what stands before the first marker into a cell.",
        )
    return markers


def _release(lesson):
    """The id of the release that the lesson is part of, if this copy of the course is one."""
    manifest = lesson.path.parents[2] / RELEASE
    return {"release": json.loads(manifest.read_text(encoding="utf-8"))["id"]} if manifest.is_file() else {}


def _cell_metadata(cell):
    # nbval compares the output of cells that carry its own tag; `stable` is the word that lessons use.
    metadata = dict(cell.metadata)
    if known := nbgrader.cell_metadata(cell):
        metadata["nbgrader"] = known
    if "stable" in cell.tags:
        metadata["tags"] = [*cell.tags, "nbval-check-output"]
    return metadata


def _cell_ids(cells, metadata):
    """An id for each cell: its exercise, or the heading that it stands under and its place there.

    So ids stay the same from build to build, and an edit moves only the ids of its own section.
    """
    sections, seen, ids, section, place = Counter(), Counter(), [], "start", 0
    for cell, data in zip(cells, metadata, strict=True):
        titles = headings(cell.source) if cell.cell_type == "markdown" else []
        if titles:
            sections[_slug(titles[0])] += 1
            section, place = _numbered(_slug(titles[0]), sections[_slug(titles[0])]), 0
        place += 1
        name = f"answer-{_slug(data['exercise_id'])}" if "exercise_id" in data else f"{section}-{place}"
        seen[name] += 1
        ids.append(_numbered(name, seen[name]))
    return ids


def _numbered(name, count):
    return name if count == 1 else f"{name}_{count}"


def _slug(text):
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:48].strip("-") or "section"
