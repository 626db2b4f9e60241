"""Progress is kept beside the notebooks, survives damage and rivals, and does without where it must."""

import json
import multiprocessing
import os

import pytest

from course_utils.exercises.model import Outcome
from course_utils.exercises.progress import Progress


def test_nothing_was_attempted_in_the_beginning(progress_file):
    here = Progress.here()
    assert (here.outcome("04.x"), here.attempts("04.x"), here.hints("04.x")) == (Outcome.NOT_ATTEMPTED, 0, 0)
    assert not progress_file.exists()


def test_a_check_is_remembered(progress_file):
    assert Progress.here().record("04.x", Outcome.FAILED) == ""
    assert Progress.here().outcome("04.x") is Outcome.FAILED and Progress.here().attempts("04.x") == 1
    assert json.loads(progress_file.read_text())["exercises"]["04.x"] == {"attempts": 1, "outcome": "failed"}


def test_what_was_passed_stays_passed():
    for outcome in (Outcome.FAILED, Outcome.PASSED, Outcome.RAISED):
        Progress.here().record("04.x", outcome)
    assert Progress.here().outcome("04.x") is Outcome.PASSED and Progress.here().attempts("04.x") == 3


def test_an_untouched_stub_is_not_counted(progress_file):
    Progress.here().record("04.x", Outcome.NOT_ATTEMPTED)
    assert not progress_file.exists()


@pytest.mark.parametrize("mark", ["course_utils/__init__.py", ".course/progress.json"])
def test_the_file_is_looked_for_upwards(mark, tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    (tmp_path / mark).parent.mkdir()
    (tmp_path / mark).touch()
    below = tmp_path / "notebooks" / "mine"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert Progress.here().path == tmp_path / ".course" / "progress.json"


def test_the_logs_of_a_failed_cluster_do_not_move_it(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    (tmp_path / "course_utils").mkdir()
    notebooks = tmp_path / "notebooks"
    (notebooks / ".course" / "runs").mkdir(parents=True)
    monkeypatch.chdir(notebooks)
    assert Progress.here().path == tmp_path / ".course" / "progress.json"


def test_outside_of_the_course_the_working_folder_holds_it(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.chdir(tmp_path)
    Progress.here().record("04.x", Outcome.PASSED)
    assert (tmp_path / ".course" / "progress.json").exists()


def test_switched_off_nothing_is_written_but_hints_still_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    monkeypatch.chdir(tmp_path)
    assert Progress.here().record_hint("98.off", 1) == ""
    assert Progress.here().hints("98.off") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"exercises": 3}',
        b'{"exercises": {"04.x": {"outcome": "great"}}}',
        b'{"exercises": {"04.x": {"attempts": "many"}}}',
        b'{"exercises": {"04.x": 7}}',
        b'{"exercises": {"04.x": {"hints": -7}}}',
        b'{"exercises": {"04.x": {"attempts": true}}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside_and_begun_anew(progress_file, text):
    progress_file.write_bytes(text)
    assert "damaged" in Progress.here().record("04.y", Outcome.PASSED)
    assert progress_file.with_name("progress.damaged.json").read_bytes() == text
    assert Progress.here().outcome("04.y") is Outcome.PASSED
    assert Progress.here().record("04.y", Outcome.PASSED) == ""


def test_where_nothing_can_be_written_the_state_is_kept_and_the_learner_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    assert "could not be saved" in Progress.here().record("04.x", Outcome.PASSED)
    assert Progress.here().outcome("04.x") is Outcome.PASSED


def test_a_folder_in_its_place_is_told_and_nothing_is_left_beside_it(progress_file):
    progress_file.mkdir()
    assert "could not be saved" in Progress.here().record("04.x", Outcome.PASSED)
    assert {path.name for path in progress_file.parent.iterdir()} <= {"progress.json", "progress.lock"}


def test_in_a_folder_that_is_gone_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Progress.here().path is None


def test_a_read_only_file_keeps_what_it_had_and_the_new_is_kept_in_memory(progress_file, monkeypatch):
    Progress.here().record("04.x", Outcome.PASSED)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    assert "Permission denied" in Progress.here().record("04.y", Outcome.FAILED)
    assert Progress.here().outcome("04.x") is Outcome.PASSED
    assert Progress.here().outcome("04.y") is Outcome.FAILED


def check_many(path, name):
    os.environ["COURSE_PROGRESS"] = path
    for _ in range(25):
        Progress.here().record(name, Outcome.FAILED)
        Progress.here().record("04.shared", Outcome.FAILED)


def test_two_notebooks_that_save_at_once_lose_nothing(progress_file):
    start = multiprocessing.get_context("spawn")
    writers = [start.Process(target=check_many, args=(str(progress_file), f"04.of_{i}")) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert [Progress.here().attempts(f"04.of_{i}") for i in range(3)] == [25, 25, 25]
    assert Progress.here().attempts("04.shared") == 75
    assert {path.name for path in progress_file.parent.iterdir()} == {"progress.json", "progress.lock"}
