"""The repository as a whole: nothing of the place it was made in, and the shape that CONTRIBUTING states."""

import ast
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_utils"
MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def tracked():
    """Text files under version control, or all that are not ignored where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        hidden = {".venv", ".git", "build", "__pycache__", ".course"}
        paths = [path for path in ROOT.rglob("*") if not hidden & set(path.parts)]
    binary = {".gz", ".png", ".jpg"}
    return [path for path in paths if path.is_file() and path.suffix not in binary]


# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a package registry": r"py"
    + r"pi\.|pythonhosted|anaconda\.(org|com)/|registry\.npm|artifactory|/simple/",
    "a path of somebody's machine": r"(?<![\w.<])/(home|Users|root|work|scratch)/[\w.]",
    "a key or a token": r"-----BEGIN [A-Z ]*PRIVATE|AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|://[^/\s:@]+:[^/\s@]+@",
}
# What may say such a thing: rules and tests that are about it.
EXCUSED = {
    "tests/test_repository.py",
    "tests/notebooks/test_lint.py",
    "tests/notebooks/test_build.py",
    "course_utils/notebooks/rules.py",
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_file_names(kind):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        if str(path.relative_to(ROOT)) not in EXCUSED
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(FORBIDDEN[kind], line)
    ]
    assert not found, "\n" + "\n".join(found)


def test_importing_the_package_is_light():
    script = (
        "import sys, course_utils, course_utils.exercises, course_utils.errors, course_utils.cli;"
        "course_utils.exercises.all_exercises();"
        "print([m for m in ('tensorflow', 'keras') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Module -> what it must not import. Arrows go down only: notebooks, exercises, library; the cli uses all.
TOOLS = ("cli", "lab", "doctor", "notebooks", "grading")
LIBRARY = [
    path
    for path in MODULES
    if path.relative_to(PACKAGE).parts[0] not in (*(f"{t}.py" for t in TOOLS), *TOOLS)
]


def forbidden_imports(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("exercises", "solutions"):
        return ("cli", "lab", "notebooks", "grading")
    return ("cli",) if part in TOOLS else (*TOOLS, "exercises", "solutions")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_go_down_only(path):
    if path == PACKAGE / "cli.py":
        return
    barred = tuple(f"course_utils.{name}" for name in forbidden_imports(path))
    wrong = {name for name in imported(TREES[path]) if name.startswith(barred)}
    assert not wrong


def public_functions():
    for path, tree in TREES.items():
        if path.relative_to(PACKAGE).parts[0] == "solutions":
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                yield path, node


def test_every_module_says_what_it_is():
    silent = [str(path.relative_to(ROOT)) for path, tree in TREES.items() if not ast.get_docstring(tree)]
    assert not silent


def test_public_functions_and_classes_have_a_docstring():
    # A lesson's exercises are named by what they are handed to; a rule's message is what it says.
    exempt = re.compile(r"exercises/lesson_\d\d\.py$|notebooks/rules\.py$")
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in public_functions()
        if not ast.get_docstring(node) and not exempt.search(str(path))
    ]
    assert not silent, "\n" + "\n".join(silent)


def test_functions_are_short():
    lengths = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    in_order = sorted(lengths.values())
    longest = sorted(lengths, key=lengths.get)[-5:]
    assert statistics.median(in_order) <= 10
    assert in_order[int(0.9 * len(in_order))] <= 30, longest


def test_code_is_formatted_and_free_of_known_mistakes():
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_readme_names_the_lessons_that_exist_and_no_others_as_ready():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(notebooks/(\d\d_\w+)\.ipynb\)", readme))
    assert linked == {path.stem for path in (ROOT / "notebooks" / "source").glob("*.py")}


def test_links_of_the_documents_lead_somewhere():
    for name in ("README.md", "INSTRUCTORS.md", "CONTRIBUTING.md", "data/fashion_mnist/README.md"):
        path = ROOT / name
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (path.parent / target).exists(), f"{name}: {target}"
