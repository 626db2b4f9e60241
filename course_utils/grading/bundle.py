"""What learners get: the course as files, without right answers and without what only instructors need.

Everything here is `{path: bytes}`, paths relative to the folder of the release, with forward slashes.
"""

import ast
import re
import string
from collections.abc import Iterable
from pathlib import Path

import nbformat

from course_utils.grading import right_answers
from course_utils.notebooks import sources

ROOT = sources.FOLDER.parent
AS_THEY_ARE = (
    *("environment.yml", "pyproject.toml", "requirements.lock"),
    *("data", "docs/first_day.md", "docs/running.png", "examples"),
)
# In course_utils; of `grading` only what the commands below need, directly or not.
LEFT_OUT = ("solutions/", "grading/", "exercises/authoring.py", "exercises/proving.py", "notebooks/solve.py")
LEARNERS_COMMANDS = ("validate", "check_submission")
TARGETS = ("setup", "$(READY)", "run", "lab")
PASSED_OVER = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}

_PART_OF_GRADING = re.compile(r"course_utils\.grading(?:\.(\w+))?")
_LINK = re.compile(r"(?P<next>Next: )?\[(?P<text>[^\]]*)\]\((?P<lesson>\d\d_\w+)\.ipynb\)")


def contents(paths: list[Path], root: Path = ROOT) -> dict[str, bytes]:
    """The files of a release of the lessons with these sources, but for README, which names the release."""
    lessons = {path.stem: sources.read(path).title for path in paths}
    files = _tree(root, AS_THEY_ARE)
    files |= _package(root, {name[:2] for name in lessons})
    for path in paths:
        files |= _lesson(path, lessons)
    files["Makefile"] = _makefile((root / "Makefile").read_text(encoding="utf-8")).encode()
    return files


def readme(paths: list[Path], release: str, root: Path = ROOT) -> bytes:
    """README.md for the learners of these lessons."""
    ours = (root / "README.md").read_text(encoding="utf-8")
    template = Path(__file__).with_name("learners_readme.md").read_text(encoding="utf-8")
    text = string.Template(template).substitute(
        lessons="\n".join(f"- [{sources.read(path).title}](notebooks/{path.stem}.ipynb)" for path in paths),
        needs=_section(ours, "What it needs"),
        troubles=_section(ours, "When it does not work"),
        first=paths[0].stem,
        release=release,
    )
    return text.encode()


def stamped(notebook: bytes, release: str) -> bytes:
    """The notebook with the release's id in its metadata."""
    read = nbformat.reads(notebook.decode(), as_version=nbformat.NO_CONVERT)
    read.metadata.setdefault("course", {})["release"] = release
    return written(read)


def written(notebook: nbformat.NotebookNode) -> bytes:
    """The bytes of a notebook, as `course notebooks` writes it."""
    return (nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n").encode()


def _tree(root: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Files of that name or below folders of that name."""
    found = [path for name in names for path in (root / name, *(root / name).rglob("*")) if path.is_file()]
    inside = {path.relative_to(root): path for path in found}
    return {
        shown.as_posix(): path.read_bytes()
        for shown, path in sorted(inside.items())
        if not PASSED_OVER & set(shown.parts) and path.suffix != ".pyc"
    }


def _package(root, numbers):
    """course_utils, with the exercises of the lessons with these numbers."""
    files = {}
    for path, content in _tree(root, ["course_utils"]).items():
        name = path.removeprefix("course_utils/")
        exercises = re.fullmatch(r"exercises/lesson_(\d\d)\.py", name)
        if name.startswith(LEFT_OUT) or (exercises and exercises[1] not in numbers):
            continue
        files[path] = right_answers.without(content.decode()).encode() if exercises else content
    return files | _tree(root, _of_grading(root))


def _of_grading(root):
    """What the learners' commands need of `grading`, found by following what they import."""
    package = root / "course_utils"
    commands = ast.parse((package / "cli.py").read_text(encoding="utf-8")).body
    waiting = [node for node in commands if getattr(node, "name", None) in LEARNERS_COMMANDS]
    needed = {"course_utils/grading/__init__.py"}
    while waiting:
        new = {path for path in _mentioned(root, waiting.pop()) if path not in needed}
        needed |= new
        waiting += [ast.parse((root / path).read_text(encoding="utf-8")) for path in new]
    return sorted(needed)


def _mentioned(root, tree):
    """Paths of the parts of grading that code imports, or names in a text: "course_utils.grading.x:entry"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
        for match in filter(None, map(_PART_OF_GRADING.match, names)):
            path = f"course_utils/grading/{match[1]}.py"
            if (root / path).is_file():
                yield path


def _lesson(path, lessons):
    """A lesson's notebook and its source, which lead to no lesson that is left out."""
    notebook = nbformat.read(path.parents[1] / f"{path.stem}.ipynb", as_version=nbformat.NO_CONVERT)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = relinked(cell.source, path.stem, lessons)
    return {
        f"notebooks/{path.stem}.ipynb": written(notebook),
        f"notebooks/source/{path.name}": relinked(
            path.read_text(encoding="utf-8"), path.stem, lessons
        ).encode(),
    }


def relinked(text: str, lesson: str, lessons: dict[str, str]) -> str:
    """The text with links to these lessons only (name → title).

    "Next:" goes on to the next lesson that is there; any other link becomes its own words.
    """
    following = next((name for name in sorted(lessons) if name > lesson), None)

    def link(match):
        if match["lesson"] in lessons:
            return match[0]
        if match["next"] and following:
            return f"Next: [{lessons[following]}]({following}.ipynb)"
        return f"{match['next'] or ''}{match['text']} (not in this release)"

    return _LINK.sub(link, text)


def _makefile(text):
    """The rules that a release can follow: to set up, run and open the lessons."""
    blocks = re.split(r"\n{2,}", text.strip())
    kept = [block for block in blocks if (target := _target(block)) is None or target in TARGETS]
    phony = [target for target in TARGETS if target.isalpha()]
    return re.sub(r"(?m)^\.PHONY:.*", f".PHONY: {' '.join(phony)}", "\n\n".join(kept)) + "\n"


def _target(block):
    """The first target of a rule; None for any other part of a Makefile."""
    match = re.search(r"(?m)^((?!\.)[^\s#:=]+):(?!=)", block)
    return match[1] if match and not block.startswith("define") else None


def _section(text, heading):
    """What stands under a heading of the second level."""
    match = re.search(rf"(?ms)^## {re.escape(heading)}\n+(.*?)(?=^## |\Z)", text)
    return match[1].strip()
