"""Checks a lesson against the rules of the course, naming cell and line."""

from dataclasses import dataclass
from pathlib import Path

import nbformat

from course_utils.notebooks import sources
from course_utils.notebooks.rules import BUILT_RULES, SOURCE_RULES


@dataclass(frozen=True)
class Finding:
    """One broken rule: where, which, and what to do about it. `line` counts in the source, from 1."""

    file: str
    line: int
    cell: int | None
    rule: str
    message: str

    def __str__(self):
        cell = "" if self.cell is None else f" cell {self.cell}:"
        return f"{self.file}:{self.line}:{cell} {self.message} [{self.rule}]"


def lint(path: Path) -> list[Finding]:
    """All findings in a lesson's source, and in its notebook where that is built, by line.

    A cell whose metadata say `lint_allows="rule"` is excused from that rule.
    """
    lesson = sources.read(path)
    found = _findings(lesson, SOURCE_RULES, lesson)
    if lesson.notebook_path.exists():
        built = nbformat.read(lesson.notebook_path, as_version=nbformat.NO_CONVERT)
        found += _findings(lesson, BUILT_RULES, lesson, built)
    return sorted(found, key=lambda finding: (finding.line, finding.rule))


def _findings(lesson, rules, *arguments):
    return [
        Finding(sources.shown(lesson.path), _line(cell, offset), cell and cell.index, name, message)
        for name, rule in rules.items()
        for cell, offset, message in rule(*arguments)
        if name not in (cell.allowances if cell else ())
    ]


def _line(cell, offset):
    return 1 if cell is None else cell.line + 1 + offset
