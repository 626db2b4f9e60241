"""`course new-exercise` writes a skeleton in the style of the course, which is refused until it is real."""

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from course_utils import cli
from course_utils.errors import ExerciseError
from course_utils.exercises import attempt, authoring, observing, proving
from course_utils.exercises.judging import judge
from course_utils.exercises.model import Exercise, Outcome

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "exercises": "course_utils/exercises/lesson_06.py",
    "solutions": "course_utils/solutions/lesson_06.py",
    "source": "notebooks/source/06_fit_and_the_global_batch.py",
}
LESSONS = sorted(path.name[:2] for path in (ROOT / "notebooks" / "source").glob("*.py"))


@pytest.fixture
def copy(tmp_path):
    """What `new` reads and writes of the repository, to be spoiled."""
    for part in ("course_utils/exercises", "course_utils/solutions", "notebooks/source"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def begun(copy, monkeypatch, lesson="06") -> Exercise:
    """The skeleton, loaded from the copy."""
    loaded = {}
    for part in ("exercises", "solutions"):
        path = copy / "course_utils" / part / f"lesson_{lesson}.py"
        spec = importlib.util.spec_from_file_location(f"copied_{part}_{lesson}", path)
        loaded[part] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[part])
    exercise = loaded["exercises"].EXERCISES[-1]
    reference = getattr(loaded["solutions"], exercise.name)
    monkeypatch.setattr(Exercise, "reference", property(lambda self: reference))
    return exercise


# What is written


def test_every_lesson_has_a_place_for_a_function_and_for_a_value_in_the_style_of_the_course(
    copy, monkeypatch
):
    for lesson in LESSONS:
        for name, signature in (
            ("first_new", "new_one(examples, *, epochs=1)"),
            ("second_new", "my_new_one"),
        ):
            written = authoring.new(f"{lesson}.{name}", signature=signature, root=copy)
            assert {path.parent.name for path in written} == {"exercises", "solutions", "source"}
            exercise = begun(copy, monkeypatch, lesson)
            assert (exercise.id, exercise.signature) == (f"{lesson}.{name}", signature)
            assert attempt.is_untouched(exercise, proving.stub(exercise))
    # Where an import belongs is told by the whole package, which is not copied.
    for command in (["check", "--ignore", "I001"], ["format", "--check"]):
        done = ruff(*command, cwd=copy)
        assert done.returncode == 0, done.stdout


def ruff(*command, cwd):
    line = [sys.executable, "-m", "ruff", *command, "--no-cache", "."]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_lesson_gets_question_answer_cell_and_check_before_what_must_be_true_now(copy):
    before = (copy / FILES["source"]).read_text(encoding="utf-8")
    parts = {"title": "How many updates?", "length": "about 1 line", "signature": "how_many(examples)"}
    authoring.new("06.how_many", **parts, root=copy)
    after = (copy / FILES["source"]).read_text(encoding="utf-8")
    head, _, tail = before.partition("# %% [markdown]\n# ## What must be true now")
    assert after.startswith(head) and after.endswith(tail)
    assert after.removeprefix(head).removesuffix(tail) == (
        "# %% [markdown]\n"
        "# ## Exercise 06.4 · How many updates?\n"
        "#\n"
        "# TODO: what is given, and what to return; at most 120 words. About 1 line.\n"
        "\n\n"
        '# %% tags=["exercise"] exercise_id="06.how_many"\n'
        "def how_many(examples):\n"
        '    """TODO: what comes back."""\n'
        "    ...\n"
        "\n\n"
        "# %%\n"
        'cu.check("06.how_many", how_many)\n'
        "\n"
        "# %% [markdown]\n"
        "# ## What must be true now"
    )


def test_nothing_that_stood_in_the_files_is_changed(copy):
    before = {name: (copy / path).read_text(encoding="utf-8").splitlines() for name, path in FILES.items()}
    authoring.new("06.how_many", root=copy)
    for name, path in FILES.items():
        lines = iter((copy / path).read_text(encoding="utf-8").splitlines())
        lost = [line for line in before[name] if line not in lines]
        assert [line for line in lost if not line.startswith("EXERCISES = ")] == []
    others = [path for path in contents(copy) if str(path.relative_to(copy)) not in FILES.values()]
    assert all(path.read_bytes() == (ROOT / path.relative_to(copy)).read_bytes() for path in others)


def test_a_lesson_without_exercises_gets_its_files(copy, monkeypatch):
    shutil.copy(copy / FILES["source"], copy / "notebooks/source/42_another.py")
    authoring.new("42.how_many", root=copy)
    assert begun(copy, monkeypatch, "42").id == "42.how_many"
    assert (copy / "course_utils/solutions/lesson_42.py").read_text().startswith('"""')


def test_the_ends_of_lines_and_the_rights_of_a_file_stay_what_they_are(copy):
    path = copy / FILES["exercises"]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    path.chmod(0o640)
    authoring.new("06.how_many", root=copy)
    text = path.read_bytes()
    assert b"06.how_many" in text and text.count(b"\n") == text.count(b"\r\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_title_may_hold_quotes_and_a_list_may_grow_long(copy, monkeypatch):
    for number in range(8):
        authoring.new(f"06.a_rather_long_name_{number}", title='The "right" mean', root=copy)
    exercise = begun(copy, monkeypatch)
    assert exercise.title == 'The "right" mean'
    assert ruff("format", "--check", cwd=copy).returncode == 0


def test_a_name_that_the_lessons_exercises_use_for_something_else_is_left_alone(copy, monkeypatch):
    assert "UPDATES, " in (copy / FILES["exercises"]).read_text(encoding="utf-8")
    authoring.new("06.updates", signature="how_many(x)", root=copy)
    assert begun(copy, monkeypatch).id == "06.updates"


# It is refused until it is real


def test_what_is_left_to_do_is_told_part_by_part(copy, monkeypatch):
    authoring.new("06.how_many", root=copy)
    left = proving.still_to_do(begun(copy, monkeypatch))
    for part in ("title", "length", "hint 1", "hint 2", "cases", "observe", "expected"):
        assert any(f"its {part} is still to be written" in sentence for sentence in left), part
    assert any("its reference, how_many in course_utils/solutions/lesson_06.py, is still" in s for s in left)
    assert any(s.startswith("06.how_many: 0 of its mistakes are written, and at least 4") for s in left)
    assert any("no second right answer" in sentence for sentence in left)


def test_a_value_needs_no_cases_and_no_second_answer(copy, monkeypatch):
    authoring.new("06.how_many", signature="my_number", root=copy)
    left = "\n".join(proving.still_to_do(begun(copy, monkeypatch)))
    assert "observe" in left and "mistakes" in left and "cases" not in left and "second" not in left


def test_no_answer_passes_what_is_only_begun_and_the_stub_is_not_attempted(copy, monkeypatch):
    authoring.new("06.how_many", root=copy)
    exercise = begun(copy, monkeypatch)
    with pytest.raises(ExerciseError, match="has no cases yet"):
        observing.observe(exercise, lambda x: 1)
    with pytest.raises(ExerciseError, match="has no cases yet"):
        judge(exercise, [])
    untouched = observing.observe(exercise, proving.stub(exercise))
    assert judge(exercise, untouched).outcome is Outcome.NOT_ATTEMPTED


def test_an_exercise_that_is_written_has_nothing_left_to_do(make_exercise, monkeypatch):
    monkeypatch.setitem(proving.FEWEST_MISTAKES, "99", 2)
    monkeypatch.setattr(Exercise, "reference", property(lambda self: lambda x: 2 * x))
    assert proving.still_to_do(make_exercise(also_right=[lambda x: x + x])) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"cases": lambda random: []}, "it has no case"),
        ({"also_right": []}, "no second right answer"),
        ({"hints": ["Look.", "TODO: more"]}, "its hint 2 is still"),
        ({"mistakes": []}, "0 of its mistakes are written, and at least 2"),
    ],
)
def test_each_part_that_is_left_is_told_alone(parts, said, make_exercise, monkeypatch):
    monkeypatch.setitem(proving.FEWEST_MISTAKES, "99", 2)
    monkeypatch.setattr(Exercise, "reference", property(lambda self: lambda x: 2 * x))
    (sentence,) = proving.still_to_do(make_exercise(**{"also_right": [lambda x: x + x], **parts}))
    assert said in sentence


# What cannot be, and changes nothing


REFUSED = [
    ("4.updates", {}, 'no id of an exercise.*Did you mean "04.updates"'),
    ("06.Up dates!", {}, 'no id of an exercise.*Did you mean "06.up_dates"'),
    ("updates", {}, "no id of an exercise"),
    ("06.", {}, "no id of an exercise"),
    ("", {}, "no id of an exercise"),
    ("77.updates", {}, r"There is no lesson 77\..*one of 00, 01"),
    ("06.accumulate", {}, r"an exercise '06.accumulate' already: lesson_06.py, line \d+"),
    ("06.class", {}, "'class' is a word of Python"),
    ("06.how_many", {"signature": "up dates(x)"}, "must begin with a name"),
    ("06.how_many", {"signature": "updates(x"}, "is no signature"),
    ("06.how_many", {"signature": "accumulate(x)"}, r"lesson_06.py defines accumulate already, in line \d+"),
    ("06.how_many", {"signature": "np(x)"}, r"06_fit\w+.py defines np already, in line \d+.*another_name"),
    ("06.how_many", {"title": "one\ntwo"}, "title does not fit into its line"),
    ("06.how_many", {"title": "long " * 40}, "title does not fit into its line"),
    ("06.how_many", {"points": 0}, "points must be above 0"),
]


@pytest.mark.parametrize(("exercise_id", "parts", "said"), REFUSED)
def test_what_cannot_be_an_exercise_is_refused_and_nothing_changes(copy, exercise_id, parts, said):
    before = contents(copy)
    with pytest.raises(ExerciseError, match=said):
        authoring.new(exercise_id, **parts, root=copy)
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("source", "## What must be true now", "## The end", "has no place.*What must be true now"),
        ("exercises", "EXERCISES = [", "EXERCISES = [*[], ", "has no place.*EXERCISES = "),
        ("exercises", "EXERCISES = [", "def broken(:\nEXERCISES = [", "is no Python: .*, line"),
        ("solutions", "def ", "def (", "is no Python"),
    ],
)
def test_a_file_without_a_place_is_named_and_nothing_changes(copy, file, old, new, said):
    path = copy / FILES[file]
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    before = contents(copy)
    with pytest.raises(ExerciseError, match=rf"{path.name} .*{said}|{path.name} {said}"):
        authoring.new("06.how_many", root=copy)
    assert contents(copy) == before


def test_a_release_without_solutions_is_no_place_for_new_exercises(copy):
    shutil.rmtree(copy / "course_utils/solutions")
    with pytest.raises(ExerciseError, match="holds no lesson sources, or no solutions"):
        authoring.new("06.how_many", root=copy)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_disk_that_fails_half_way_leaves_every_file_as_it_was(copy, monkeypatch, fails_at, error):
    before, calls, replace = contents(copy), [], os.replace

    def failing(source, target):
        calls.append(target)
        if len(calls) == fails_at:
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(type(error)):
        authoring.new("06.how_many", root=copy)
    assert contents(copy) == before and len(calls) >= fails_at


def test_a_file_that_somebody_edits_meanwhile_keeps_that_edit(copy, monkeypatch):
    edited, staged = copy / FILES["exercises"], authoring._staged

    def edits_then_stages(path, content):
        edited.write_text("# mine\n", encoding="utf-8")
        return staged(path, content)

    before = contents(copy)
    monkeypatch.setattr(authoring, "_staged", edits_then_stages)
    with pytest.raises(ExerciseError, match="changed by somebody else"):
        authoring.new("06.how_many", root=copy)
    assert contents(copy) == {**before, edited: b"# mine\n"}


@pytest.mark.parametrize("kept", [1, 2])
def test_a_run_that_was_killed_between_two_files_is_finished_by_the_next(copy, kept):
    """Solutions and source come first: the id is taken only when all of it is there."""
    before = contents(copy)
    authoring.new("06.how_many", root=copy)
    whole = contents(copy)
    for name in ["exercises", "solutions"][:kept]:
        (copy / FILES[name]).write_bytes(before[copy / FILES[name]])
    authoring.new("06.how_many", root=copy)
    assert contents(copy) == whole


def test_the_command_says_what_it_wrote_and_errors_are_a_sentence(copy, monkeypatch):
    monkeypatch.setattr(authoring, "ROOT", copy)
    monkeypatch.setattr(authoring.new, "__kwdefaults__", {**authoring.new.__kwdefaults__, "root": copy})
    done = CliRunner().invoke(cli.main, ["new-exercise", "06.how_many", "--title", "How many?"])
    assert done.exit_code == 0, done.output
    assert all(path in done.output for path in FILES.values()) and "-k 06.how_many" in done.output
    again = CliRunner().invoke(cli.main, ["new-exercise", "06.how_many"])
    assert again.exit_code == 1 and again.output.startswith(
        "Error: There is an exercise '06.how_many' already"
    )
