"""The command `course`: thin, with exit codes that scripts can rely on and sentences that people can."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from course_utils import doctor, lab
from course_utils.cli import main
from course_utils.notebooks import report, run

PASSED = "# %% [markdown]\n# # 90\n\n# %%\n1\n"
FAILED = "# %% [markdown]\n# # 91\n\n# %% [markdown]\n# ## Worse\n\n# %%\nraise ValueError('by design')\n"


def course(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "notebooks"
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "90_passes.py").write_text(PASSED, encoding="utf-8")
    (folder / "source" / "91_fails.py").write_text(FAILED, encoding="utf-8")
    return folder


def test_run_shows_every_lesson_and_fails_with_cell_line_and_traceback(folder):
    result = course("run", "--folder", folder)
    assert result.exit_code == 1
    assert "1 of 2 lessons passed" in result.output
    assert "notebooks/source/91_fails.py:7: ValueError: by design" in result.output
    assert "Traceback" in result.output


def test_run_succeeds_where_all_chosen_lessons_do_and_leaves_the_folder_alone(folder):
    before = sorted(folder.rglob("*"))
    assert course("run", "90", "--folder", folder).exit_code == 0
    assert sorted(folder.rglob("*")) == before


def test_lessons_run_side_by_side_with_the_same_outcomes(folder, tmp_path):
    paths = sorted((folder / "source").glob("*.py"))
    outcomes = list(run.run(paths, jobs=2, save_in=tmp_path / "kept"))
    assert {outcome.lesson: outcome.passed for outcome in outcomes} == {"90_passes": True, "91_fails": False}
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "90_passes.ipynb",
        "91_fails.ipynb",
    ]


def test_notebooks_are_built_and_checked(folder):
    assert course("notebooks", "90", "--check", "--folder", folder).exit_code == 1
    assert course("notebooks", "90", "--folder", folder).exit_code == 0
    assert (folder / "90_passes.ipynb").exists()
    assert course("notebooks", "90", "--check", "--folder", folder).exit_code == 0


def test_lint_fails_with_a_line_a_finding(folder):
    result = course("lint", "90", "--folder", folder)
    assert result.exit_code == 1
    assert "notebooks/source/90_passes.py:2: cell 0: The first line must be" in result.output


def test_an_unknown_lesson_is_a_sentence_and_no_traceback(folder):
    result = course("run", "17", "--folder", folder)
    assert result.exit_code == 1
    assert result.output.startswith("Error: There is no lesson '17'.")


@pytest.mark.parametrize("command", ["run", "lint", "notebooks"])
def test_a_folder_without_lessons_is_no_success(command, tmp_path):
    result = course(command, "--folder", tmp_path)
    assert result.exit_code == 1
    assert "There is no lesson in" in result.output and "Traceback" not in result.output


def test_an_empty_name_names_no_lesson(folder):
    assert course("lint", "", "--folder", folder).exit_code == 1


def test_a_folder_that_cannot_be_written_is_a_sentence(folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    result = course("run", "90", "--folder", folder, "--save-in", file / "inside")
    assert result.exit_code == 1
    assert "Not a directory" in result.output and "Traceback" not in result.output


@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_time_limit_is_a_number_of_seconds(seconds, folder):
    assert course("run", "--folder", folder, "--time-limit", seconds).exit_code == 2


def test_the_table_lists_lessons_in_order_with_time_and_slowest_cell():
    outcomes = [
        run.Outcome("07_b", 12.3, True, 4.5, "notebooks/source/07_b.py:30"),
        run.Outcome("04_a", 61.0, False, 0.0, "notebooks/source/04_a.py:9", "ValueError: no"),
    ]
    grid = report.table(outcomes, 73.3)
    columns = [list(column.cells) for column in grid.columns]
    assert columns[0] == ["04_a", "07_b"]
    assert columns[1] == ["61 s", "12 s"]
    assert columns[3] == ["notebooks/source/04_a.py:9", "4.5 s  notebooks/source/07_b.py:30"]
    assert grid.caption == "1 of 2 lessons passed in 73 s"


def test_doctor_fails_on_a_problem_alone(monkeypatch):
    note = doctor.Check("cores", "note", "1")
    problem = doctor.Check("TF_CONFIG", "problem", "set: {}", "Run `unset TF_CONFIG`.")
    monkeypatch.setattr(doctor, "examine", lambda: [note])
    assert course("doctor").exit_code == 0
    monkeypatch.setattr(doctor, "examine", lambda: [note, problem])
    result = course("doctor")
    assert result.exit_code == 1
    assert "Run `unset TF_CONFIG`." in result.output
    result = course("doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)[1]["cure"] == "Run `unset TF_CONFIG`."


def test_lab_opens_the_first_lesson_and_keeps_its_state_in_the_course(folder, tmp_path):
    (folder / "00_first.ipynb").write_text("{}", encoding="utf-8")
    command = lab.command(folder, tmp_path / "state", ("--no-browser",))
    assert "--LabApp.default_url=/lab/tree/00_first.ipynb" in command
    assert command[-1] == "--no-browser"
    settings = [part for part in command if "settings_dir" in part or "workspaces_dir" in part]
    assert len(settings) == 3
    assert all(str(tmp_path / "state") in part for part in settings)


def test_lab_starts_for_the_root_of_a_container_too(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert "--allow-root" in lab.command(folder, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    assert "--allow-root" not in lab.command(folder, tmp_path)


def test_lab_has_no_pop_up_and_no_stale_tf_config(tmp_path):
    written = json.loads(lab.write_settings(tmp_path).read_text(encoding="utf-8"))
    assert written["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    environment = lab.environment({"TF_CONFIG": "{}", "PATH": "/bin"})
    assert "TF_CONFIG" not in environment
    assert environment["PATH"] == "/bin"


def test_jupyterlab_takes_the_options_that_we_give_it(folder, tmp_path):
    """`jupyter lab --show-config-json` reads the options without starting a server."""
    command = [*lab.command(folder, tmp_path / "state"), "--show-config-json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=lab.environment(os.environ)
    )
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)["LabApp"]
    assert settings["user_settings_dir"] == str(tmp_path / "state" / "user-settings")


def test_the_command_starts_without_tensorflow():
    script = "import sys; from course_utils.cli import main; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
