"""The coverage map: what the course promises, and for each promise the cell and the test that prove it.

The map is a set of tables in CONTRIBUTING.md, so that it is read where it is kept. Here it is checked: a row
whose lesson, heading or test is not there fails, so the map cannot go stale.
"""

import ast
import itertools
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from course_utils.errors import NotebookError
from course_utils.notebooks import sources

ROOT = sources.FOLDER.parent
COLUMNS = ["what is taught", "lesson and cell", "test"]

_CELL = re.compile(r"(\d\d|\w+\.md) · (.+)")  # a lesson, or a page for those who teach it


@dataclass(frozen=True)
class Row:
    """One promise: its table, its text, the cells ("09 · The job") and tests that prove it, what is wrong."""

    section: str
    feature: str
    cells: tuple[str, ...]
    tests: tuple[str, ...]
    problems: tuple[str, ...] = field(default=())


def read(root: Path = ROOT) -> list[Row]:
    """The rows of the map in `root`/CONTRIBUTING.md, each with its problems (none: all is there).

    Raises NotebookError when there is no such file, or no map in it.
    """
    document = root / "CONTRIBUTING.md"
    if not document.is_file():
        raise NotebookError(
            f"There is no {document.name} here, which holds the coverage map.",
            cause="this is a released copy of the course, which comes without it.",
            cure="Run `course coverage` in a clone of the course's repository.",
        )
    rows = [_row(root, *found) for found in _tables(document.read_text(encoding="utf-8"))]
    if not rows:
        raise NotebookError(
            f"{document.name} has no coverage map.",
            expected=f"tables with the columns {', '.join(COLUMNS)}.",
        )
    return rows


def _tables(text: str):
    """(heading, feature, cells, tests) of every row under the right columns."""
    section, columns, cells = "", [], None
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            section = token.content
        elif token.type == "thead_open":
            columns = []
        elif before.type == "th_open":
            columns.append(token.content)
        elif token.type == "tr_open":
            cells = []
        elif before.type == "td_open":
            cells.append(token.content)
        elif token.type == "tr_close" and cells and columns == COLUMNS:
            yield section, *cells


def _row(root: Path, section: str, feature: str, cells: str, tests: str) -> Row:
    named, proofs = _entries(cells), tuple(entry.strip("`") for entry in _entries(tests))
    problems = [problem for cell in named if (problem := _cell_problem(root, cell))]
    problems += [problem for test in proofs if (problem := _test_problem(root, test))]
    problems += [f"names no {kind}" for kind, entries in (("cell", named), ("test", proofs)) if not entries]
    return Row(section, feature, named, proofs, tuple(problems))


def _entries(cell: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in cell.split("<br>") if entry.strip())


def _cell_problem(root: Path, cell: str) -> str:
    match = _CELL.fullmatch(cell)
    if not match:
        return f"{cell!r} is not of the form `09 · Heading`"
    place, heading = match.groups()
    if heading not in _headings(root, place):
        return f"{place if place.endswith('.md') else f'lesson {place}'} has no heading {heading!r}"
    return ""


def _test_problem(root: Path, test: str) -> str:
    file, _, name = test.partition("::")
    if not (root / file).is_file():
        return f"there is no {file}"
    if file.endswith(".ipynb"):  # a lesson's own assertions, run by nbval
        return ""
    if name not in _tests(root / file):
        return f"{file} has no {name or 'test named'}"
    return ""


@cache
def _headings(root: Path, place: str) -> frozenset[str]:
    if place.endswith(".md"):
        page = root / place
        return frozenset(sources.headings(page.read_text(encoding="utf-8")) if page.is_file() else ())
    paths = sorted((root / "notebooks" / "source").glob(f"{place}_*.py"))
    return frozenset(
        heading for path in paths for cell in sources.read(path).cells for heading in cell.headings
    )


@cache
def _tests(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
