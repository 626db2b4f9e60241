"""docs/adding_an_exercise.md, done line by line on a copy of the course: what it says is what happens."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "adding_an_exercise.md").read_text(encoding="utf-8")
NEEDED = ("course_utils", "notebooks/source", "tests/exercises", "tests/conftest.py", "pyproject.toml")
# Where the block for a file goes: from the skeleton's first line to the line that follows it.
PLACES = {
    "exercises": (r"^# --- 06\.count_updates: TODO", r"^EXERCISES = \["),
    "solutions": (r"^def count_updates\(", r"\Z"),
    "source": (r"^# %% \[markdown\]\n# ## Exercise 06\.4", r"^# %% \[markdown\]\n# ## What must be true"),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course; `course.run(command)` gives exit code and output of a command of the guide."""
    folder = tmp_path_factory.mktemp("course")
    for part in NEEDED:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, folder / part)
    return Copy(folder)


class Copy:
    """A copy of the course, and what one does with it."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, command: str) -> tuple[int, str]:
        words = shlex.split(command)
        words = ["python", "-m", "course_utils.cli", *words[1:]] if words[0] == "course" else words
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.folder),
                "COURSE_PROGRESS": str(self.folder / "p.json"),
            },
            capture_output=True,
            text=True,
            timeout=200,
        )
        return done.returncode, done.stdout + done.stderr

    def replace(self, path: str, block: str) -> None:
        """Put a block of the guide in place of the skeleton."""
        start, end = PLACES[Path(path).parent.name]
        text = (self.folder / path).read_text(encoding="utf-8")
        begin = re.search(start, text, re.MULTILINE).start()
        stop = re.compile(end, re.MULTILINE).search(text, begin).start()
        gap = "" if stop == len(text) else "\n"
        (self.folder / path).write_text(f"{text[:begin]}{block}{gap}{text[stop:]}", encoding="utf-8")


def blocks(kind):
    """(path, text) of each fenced block of a kind, in the order of the guide."""
    return re.findall(rf"^```{kind} ?(\S*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def commands():
    """(command, lines that it prints) of each console block."""
    for _, text in blocks("console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.splitlines()


@pytest.fixture(scope="module")
def done(course):
    """What each command of the guide printed, with the skeleton, and then with the guide's exercise."""
    begin, refused, proved, linted = commands()
    printed = {"begin": course.run(begin[0]), "refused": course.run(refused[0])}
    printed["linted too early"] = course.run(linted[0])
    for path, block in blocks("python"):
        course.replace(path, block)
    printed["proved"], printed["linted"] = course.run(proved[0]), course.run(linted[0])
    expected = {"begin": begin[1], "refused": refused[1], "proved": proved[1], "linted": linted[1]}
    return printed, expected


def test_the_command_begins_the_exercise_and_says_where(done):
    (code, output), lines = done[0]["begin"], done[1]["begin"]
    assert code == 0 and output.splitlines() == lines


def test_the_tests_refuse_it_with_the_sentences_that_the_guide_shows(done):
    (code, output), lines = done[0]["refused"], done[1]["refused"]
    assert code == 1
    # The error's own lines, which begin with E: where CI is set, pytest's summary says them all once more.
    told = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
    assert [line for line in told if line.startswith("06.count_updates: ")] == lines
    assert "1 failed" in output and "error" not in output.lower().splitlines()[-1]


def test_the_lint_refuses_it_too(done):
    code, output = done[0]["linted too early"]
    assert code == 1 and "A TODO is left" in output


def test_the_guides_exercise_is_proved(done):
    (code, output), lines = done[0]["proved"], done[1]["proved"]
    assert code == 0, output
    assert re.fullmatch(r"\d+ passed", lines[0]) and re.search(r"\d+ passed", output)


def test_the_lesson_keeps_the_rules_with_it(done):
    (code, output), lines = done[0]["linted"], done[1]["linted"]
    assert (code, output.splitlines()) == (0, lines)


def test_its_files_are_formatted_and_free_of_known_mistakes(done, course):
    paths = shlex.join(path for path, _ in blocks("python"))
    for command in (f"python -m ruff check --no-cache {paths}", f"python -m ruff format --check {paths}"):
        code, output = course.run(command)
        assert code == 0, output


def test_the_card_is_the_one_that_a_learner_sees(done, course):
    ((_, session),) = blocks("pycon")
    code = "\n".join(line[4:] for line in session.splitlines() if line.startswith((">>> ", "... ")))
    shown = [line for line in session.splitlines() if line and not line.startswith((">>> ", "... "))]
    script = course.folder / "session.py"
    script.write_text(code.replace("cu.check(", "\nprint(repr(cu.check(") + "))\n", encoding="utf-8")
    exit_code, output = course.run("python session.py")
    assert exit_code == 0, output
    assert [line.rstrip() for line in output.splitlines() if line.strip()] == shown


def test_every_file_that_the_guide_links_to_is_there():
    for target in re.findall(r"\]\(([^)#\s]+)", GUIDE):
        assert (ROOT / "docs" / target).exists(), target
