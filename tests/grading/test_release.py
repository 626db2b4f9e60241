"""A release: whole, without a right answer in it, told by its id, and working where there is nothing else."""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from course_utils.cli import main
from course_utils.errors import NotebookError, ReleaseError
from course_utils.exercises import all_exercises, catalogue
from course_utils.grading import right_answers
from course_utils.grading.release import release
from course_utils.notebooks import build, sources

ROOT = Path(__file__).resolve().parents[2]
LIGHT = "02"  # a lesson that runs in some seconds


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A release of the whole course."""
    return release(tmp_path_factory.mktemp("whole") / "release")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A small course: three lessons, and one file for the data."""
    root = tmp_path_factory.mktemp("course")
    for name in ("environment.yml", "pyproject.toml", "requirements.lock", "Makefile", "README.md"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(
        ROOT / "course_utils", root / "course_utils", ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in sources.find(("03", "04", "06")):
        for file in (path, sources.read(path).notebook_path):
            (root / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / file.relative_to(ROOT))
    (root / "data").mkdir()
    (root / "data" / "numbers.txt").write_text("1 2 3\n", encoding="utf-8")
    return root


@pytest.fixture
def some(course, tmp_path):
    """A release of two lessons of the small course, between which one is left out."""
    return release(tmp_path / "some", ("3", "06"), root=course)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def notebooks(made):
    """Name → notebook, for every notebook of a release."""
    found = sorted((made.path / "notebooks").glob("*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=nbformat.NO_CONVERT) for path in found}


def run(made, *arguments, limit=150):
    """A Python program in a copy of a release, with this environment's packages and no other course."""
    site = made.path.parent / "site"
    copy = made.path.parent / "copy"
    site.mkdir(exist_ok=True)
    # Our environment has this repository's course_utils installed; learners' have their own.
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in getattr(f, '__name__', '')]\n"
    )
    if not copy.exists():
        shutil.copytree(made.path, copy)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment | {"PYTHONPATH": f"{site}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=limit,
    )


# What is in it


def test_every_lesson_is_there_with_its_outputs_and_the_id_in_its_metadata(whole):
    assert whole.lessons == tuple(path.stem for path in sources.find())
    assert set(notebooks(whole)) == set(whole.lessons)
    for name, notebook in notebooks(whole).items():
        assert notebook.metadata.course == {"lesson": name, "release": whole.id}
        ours = nbformat.read(sources.FOLDER / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)
        assert notebook.cells == ours.cells


def test_the_manifest_says_what_it_is_and_the_checksum_of_every_file(whole):
    manifest = json.loads((whole.path / "RELEASE.json").read_text(encoding="utf-8"))
    files = contents(whole.path)
    del files["RELEASE.json"]
    assert manifest.pop("files") == {path: hashlib.sha256(files[path]).hexdigest() for path in sorted(files)}
    assert manifest == {"id": whole.id, "version": whole.id.split("+")[0], "lessons": list(whole.lessons)}
    assert whole.id in (whole.path / "README.md").read_text(encoding="utf-8")


def test_all_that_learners_need_is_there_and_nothing_of_the_instructors(whole):
    files = contents(whole.path)
    data = {f"data/fashion_mnist/{path.name}" for path in (ROOT / "data" / "fashion_mnist").iterdir()}
    environment = {"environment.yml", "pyproject.toml", "requirements.lock", "Makefile", "README.md"}
    assert data | environment | {"examples/train.py", "docs/first_day.md"} <= set(files)
    theirs = re.compile(
        r"solutions/|grading/(release|batch|gradebook|pages|demo)|^tests/|CONTRIBUTING|\.git|\.pyc"
    )
    assert [path for path in files if theirs.search(path)] == []


def code_of(files):
    """The Python code in a release: modules, and the code cells of notebooks."""
    for path, content in files.items():
        if path.endswith(".py"):
            yield path, content.decode()
        elif path.endswith(".ipynb"):
            cells = nbformat.reads(content.decode(), as_version=nbformat.NO_CONVERT).cells
            yield path, "\n\n".join(c.source for c in cells if c.cell_type == "code")


def meant(nodes):
    """Name → what it is: the bodies of functions, without docstrings, and the values of names."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            yield node.name, ast.dump(ast.Module(body, []))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.dump(node.value)


def tree_of(code):
    return ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", code))


def test_no_file_holds_a_reference_answer(whole):
    names = {exercise.name for exercise in all_exercises()}
    trees = [tree_of(path.read_text("utf-8")) for path in (ROOT / "course_utils/solutions").glob("l*.py")]
    known = {what: name for tree in trees for name, what in meant(tree.body) if name in names}
    assert names == set(known.values())
    files = [(path, tree_of(code)) for path, code in code_of(contents(whole.path))]
    found = {
        (path, known[what]) for path, tree in files for _, what in meant(ast.walk(tree)) if what in known
    }
    # Where an answer is a value, its check has to know it: there is nothing to compute it from.
    values = {
        (f"course_utils/exercises/lesson_{e.lesson}.py", e.name) for e in all_exercises() if not e.is_function
    }
    assert found <= values


def test_no_file_holds_the_right_answers_of_our_tests(whole):
    for path, code in code_of(contents(whole.path)):
        if re.search(r"exercises/lesson_\d\d", path):
            assert "also_right" not in code, path


def test_answer_cells_are_the_stubs(whole):
    answers = [
        c for notebook in notebooks(whole).values() for c in notebook.cells if "exercise_id" in c.metadata
    ]
    assert {cell.metadata.exercise_id for cell in answers} == {exercise.id for exercise in all_exercises()}
    stub = re.compile(r"(\.\.\.|pass|None,?|[\])}])\s*$")
    assert [cell.source for cell in answers if not stub.search(cell.source)] == []


def test_every_link_leads_somewhere(whole):
    texts = {path: path.read_text(encoding="utf-8") for path in whole.path.rglob("*.md")}
    for name, notebook in notebooks(whole).items():
        markdown = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        texts[whole.path / "notebooks" / f"{name}.ipynb"] = "\n".join(markdown)
    links = [(path, link) for path, text in texts.items() for link in re.findall(r"\]\(([^)#\s]+)", text)]
    assert len(links) > 30
    broken = [
        (path.name, link) for path, link in links if "://" not in link and not (path.parent / link).exists()
    ]
    assert broken == []


def test_make_can_set_up_run_and_open_it_and_offers_nothing_else(whole):
    def make(target):
        return subprocess.run(
            ["make", "-n", target], cwd=whole.path, capture_output=True, text=True, timeout=30
        )

    assert "bin/course run" in make("run").stdout
    assert "bin/course lab" in make("lab").stdout
    assert "requirements.lock" in make("setup").stdout
    for target in ("test", "bench", "notebooks", "grade-demo"):
        assert "bin/" not in make(target).stdout  # `notebooks` is a folder: nothing to be done


RIGHT = """\
EXERCISES = [
    Exercise(
        id="99.a",
        also_right=[by_hand, LIMIT, lambda é: "é"],
        slow=True,
    ),
    Exercise(id="99.b", also_right=[both(1)]),
]
"""
BEFORE = """\
import x

LIMIT = helper()


def helper(): ...


# It is right.
@x.cached
def by_hand(a):
    return by_hand(a - 1)


def both(a): ...


def observe(answer, case):
    return both(2)


"""
AFTER = """\
import x


def both(a): ...


def observe(answer, case):
    return both(2)


EXERCISES = [
    Exercise(
        id="99.a",
        slow=True,
    ),
    Exercise(id="99.b"),
]
"""


def test_right_answers_go_with_all_that_only_they_have_used():
    tidy = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-"],
        input=right_answers.without(BEFORE + RIGHT),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert tidy.stdout == AFTER


# Which it is


def test_the_same_content_gives_the_same_id_and_another_byte_another(course, some, tmp_path):
    assert release(tmp_path / "again", ("06", "03"), root=course).id == some.id
    assert release(tmp_path / "more", ("03", "04", "06"), root=course).id != some.id
    changed = shutil.copytree(course, tmp_path / "changed")
    (changed / "data" / "numbers.txt").write_text("1 2 4\n", encoding="utf-8")
    assert release(tmp_path / "new", ("03", "06"), root=changed).id != some.id
    assert contents(tmp_path / "again") == contents(some.path)


def test_an_archive_holds_the_same_files_and_is_the_same_to_the_byte(course, some, tmp_path):
    first = release(tmp_path / "a" / "r", ("03", "06"), root=course, zipped=True).archive
    second = release(tmp_path / "b" / "r", ("03", "06"), root=course, zipped=True).archive
    assert first.read_bytes() == second.read_bytes()
    zipfile.ZipFile(first).extractall(tmp_path / "c")
    assert contents(tmp_path / "c" / "r") == contents(some.path)


# A part of the course


def test_a_part_has_its_own_lessons_and_exercises_alone(some):
    names = {"03_all_reduce", "06_fit_and_the_global_batch"}
    assert set(some.lessons) == names == set(notebooks(some))
    modules = (some.path / "course_utils" / "exercises").glob("lesson_*.py")
    assert {path.stem for path in modules} == {"lesson_03", "lesson_06"}


def test_in_a_part_next_is_the_next_lesson_that_is_there(some):
    ends = {name[:2]: notebook.cells[-1].source for name, notebook in notebooks(some).items()}
    title = sources.read(some.path / "notebooks/source/06_fit_and_the_global_batch.py").title
    assert ends["03"].endswith(f"Next: [{title}](06_fit_and_the_global_batch.ipynb)")
    assert ends["06"].endswith("Next: 07 · How do processes find each other? (not in this release)")


def test_a_part_keeps_the_rules_and_its_notebooks_are_what_its_sources_build(some):
    for path in sources.find((), some.path / "notebooks"):
        assert build.drift(path) is None


# It works


def test_in_it_lessons_keep_the_rules_and_run(whole):
    linted = run(whole, "-m", "course_utils.cli", "lint")
    assert linted.stdout == "No findings.\n", linted
    ran = run(whole, "-m", "course_utils.cli", "run", LIGHT)
    assert "1 of 1 lessons passed" in ran.stdout, ran
    assert contents(whole.path) == contents(whole.path.parent / "copy")


LEARNER = """
import course_utils as cu, tensorflow as tf

print(cu.__file__)
print(cu.solution("04.compute_loss"))
print(cu.check("04.compute_loss", lambda errors, batch: tf.reduce_sum(errors) / batch).outcome)
print(cu.check("04.compute_loss", lambda errors, batch: tf.reduce_mean(errors)).mistake)
"""


def test_in_it_answers_are_checked_and_none_is_shown(whole):
    done = run(whole, "-c", LEARNER)
    assert done.returncode == 0, done.stderr
    assert str(whole.path.parent / "copy") in done.stdout
    assert "comes without solutions" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["passed", "mean per replica"]


def test_in_it_a_notebook_is_validated_before_it_is_handed_in(whole, tmp_path):
    notebook = notebooks(whole)["04_loss_scaling"]
    for cell in notebook.cells:
        if cell.metadata.get("exercise_id") == "04.compute_loss":
            cell.source = "def compute_loss(errors, batch):\n    return tf.reduce_sum(errors) / batch"
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    found = run(whole, "-m", "course_utils.cli", "check-submission", str(tmp_path / "mine.ipynb"))
    assert found.returncode == 0 and "04.compute_loss" in found.stdout, found
    done = run(whole, "-m", "course_utils.cli", "validate", str(tmp_path / "mine.ipynb"))
    assert done.returncode == 0, done
    assert re.search(r"04\.compute_loss\W+passed\W+2 of 2", done.stdout), done.stdout
    assert len(re.findall(r"not attempted", done.stdout)) == 2, done.stdout
    assert "The notebook is of release" not in done.stdout


@pytest.mark.parametrize("command", [["release", "elsewhere"], ["grade", ".", "--out", "elsewhere"]])
def test_what_is_for_instructors_says_so_in_it(command, whole):
    done = run(whole, "-m", "course_utils.cli", *command)
    assert done.returncode == 1
    assert f"comes without `course {command[0]}`, which is for instructors" in done.stderr
    assert "Traceback" not in done.stderr


# Where it may be written


def test_an_earlier_release_is_replaced(course, tmp_path):
    first = release(tmp_path / "r", ("03",), root=course)
    (tmp_path / "r" / "course_utils" / "__pycache__").mkdir()
    (tmp_path / "r" / "course_utils" / "__pycache__" / "x.pyc").touch()
    second = release(tmp_path / "r", ("04",), root=course)
    assert first.id != second.id
    assert set(notebooks(second)) == {"04_loss_scaling"}
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_no_archive_of_another_release_stays_beside_it(course, tmp_path):
    first = release(tmp_path / "r", ("03", "04"), root=course, zipped=True)
    same = release(tmp_path / "r", ("03", "04"), root=course)
    assert first.archive.exists() and (same.archive, same.removed) == (None, None)
    other = release(tmp_path / "r", ("04",), root=course)
    assert other.removed == first.archive and not first.archive.exists()


def test_an_archive_that_is_no_release_stays_beside_it(course, tmp_path):
    theirs = tmp_path / "r.zip"
    with zipfile.ZipFile(theirs, "w") as archive:
        archive.writestr("thesis.txt", "mine")
    before = theirs.read_bytes()
    assert release(tmp_path / "r", ("03",), root=course).removed is None
    theirs.write_bytes(before[:40])
    release(tmp_path / "r", ("03",), root=course)
    assert theirs.read_bytes() == before[:40]


def test_an_exercise_that_is_only_begun_is_not_released(course, tmp_path, monkeypatch):
    first, *rest = catalogue.exercises_of("04")
    begun = {"04": [replace(first, title="TODO: a title"), *rest]}
    whole = catalogue.exercises_of
    monkeypatch.setattr(catalogue, "exercises_of", lambda lesson: begun.get(lesson) or whole(lesson))
    with pytest.raises(ReleaseError, match=f"only begun.*{first.id}: its title is still to be written"):
        release(tmp_path / "r", ("03", "04"), root=course)
    assert list(tmp_path.iterdir()) == []
    release(tmp_path / "r", ("03",), root=course)


@pytest.mark.parametrize("change", ["a notebook of their own", "an answer", "a file removed"])
def test_a_release_that_somebody_works_in_is_left_alone(change, course, tmp_path):
    made = release(tmp_path / "r", ("03",), root=course)
    notebook = made.path / "notebooks" / "03_all_reduce.ipynb"
    if change == "a notebook of their own":
        notebook.with_name("mine.ipynb").write_text("{}")
    elif change == "an answer":
        notebook.write_text(notebook.read_text("utf-8").replace("ring_all_reduce", "my_all_reduce"), "utf-8")
    else:
        notebook.unlink()
    before = contents(made.path)
    with pytest.raises(ReleaseError, match=r"r holds a release that was changed.*notebooks/.*\.ipynb"):
        release(tmp_path / "r", ("03",), root=course)
    assert contents(made.path) == before


def a_file(course, tmp_path):
    (tmp_path / "r").write_text("mine")
    return tmp_path / "r"


def a_full_folder(course, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "RELEASE.json").write_text("[]")
    return tmp_path / "r"


def below_a_file(course, tmp_path):
    return a_file(course, tmp_path) / "release"


def an_archive_of_theirs(course, tmp_path):
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        archive.writestr("thesis.txt", "mine")
    return tmp_path / "r"


REFUSED = {
    "is a file": a_file,
    "is not empty, and holds no release": a_full_folder,
    "could not be written": below_a_file,
    "no archive of a release": an_archive_of_theirs,
    "the course's own folder notebooks": lambda course, tmp_path: course / "notebooks" / "r",
    "a folder that holds the course": lambda course, tmp_path: course.parent,
}


@pytest.mark.parametrize("told", REFUSED)
def test_a_place_that_cannot_be_used_is_refused_and_left_as_it_was(told, course, tmp_path):
    out = REFUSED[told](course, tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ReleaseError, match=told):
        release(out, ("03",), root=course, zipped=True)
    assert contents(tmp_path) == before
    assert not (course / "notebooks" / "r").exists()


def test_the_courses_folder_for_what_is_built_may_be_used(course):
    assert release(course / "build" / "release", ("03",), root=course).path == course / "build" / "release"


def test_what_breaks_off_leaves_the_release_of_before(course, tmp_path, monkeypatch):
    made = release(tmp_path / "r", ("03",), root=course)
    before, write, written = contents(made.path), Path.write_bytes, []

    def full_disk(path, content):
        written.append(path)
        if len(written) > 20:
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(ReleaseError, match="could not be written to r: No space left on device"):
        release(tmp_path / "r", ("04",), root=course)
    assert contents(made.path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_an_unknown_lesson_is_refused(course, tmp_path):
    with pytest.raises(NotebookError, match="no lesson '05'"):
        release(tmp_path / "r", ("05",), root=course)


def test_a_notebook_that_somebody_solved_is_not_released(course, tmp_path):
    changed = shutil.copytree(course, tmp_path / "changed")
    notebook = changed / "notebooks" / "04_loss_scaling.ipynb"
    stub = "This replica's part of the mean loss over the global batch."
    notebook.write_text(notebook.read_text("utf-8").replace(stub, "Solved."), "utf-8")
    with pytest.raises(ReleaseError, match=r"04_loss_scaling.ipynb differs from its source"):
        release(tmp_path / "r", root=changed)


# From the command line


@pytest.mark.parametrize("words", [["{out}", "--lessons", "3", "04"], ["--lessons", "03", "04", "{out}"]])
def test_the_command_takes_lessons_before_and_after_the_folder(words, tmp_path):
    out = tmp_path / "r"
    done = CliRunner().invoke(main, ["release", *(word.format(out=out) for word in words)])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "RELEASE.json").read_text())["id"] in done.output
    assert {path.stem for path in (out / "notebooks").glob("*.ipynb")} == {"03_all_reduce", "04_loss_scaling"}


@pytest.mark.parametrize("words", [["04"], ["a", "b"], []])
def test_the_command_needs_one_folder(words):
    done = CliRunner().invoke(main, ["release", *words])
    assert done.exit_code == 2
    assert "Name one folder" in done.output or "Missing argument" in done.output


def test_for_nbgrader_the_command_writes_solutions_and_says_so(tmp_path):
    done = CliRunner().invoke(main, ["release", str(tmp_path / "r"), "--lessons", "04", "--nbgrader"])
    assert done.exit_code == 0 and "SOLUTIONS" in done.output
    assert set(contents(tmp_path / "r")) == {
        "RELEASE.json",
        "nbgrader_config.py",
        "source/04_loss_scaling/04_loss_scaling.ipynb",
    }
