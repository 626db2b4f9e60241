"""The doctor: each check tells a sound machine from a sick one, and every problem carries its cure."""

import gzip
import subprocess
import sys
import textwrap

import pytest

from course_utils import doctor
from course_utils.doctor import NOTE, OK, PROBLEM
from course_utils.notebooks import report

SICK = {
    "Python": lambda tmp_path: doctor.python_version((3, 10, 1)),
    "packages": lambda tmp_path: doctor.packages(lambda name: "0.1"),
    "TensorFlow": lambda tmp_path: doctor.tensorflow_starts((str(tmp_path / "no-python"),)),
    "memory": lambda tmp_path: doctor.memory(0.5),
    "disk": lambda tmp_path: doctor.disk(free=0.1),
    "data": doctor.data,
    "TF_CONFIG": lambda tmp_path: doctor.tf_config({"TF_CONFIG": '{"task": {}}'}),
    "settings": lambda tmp_path: doctor.settings({"KERAS_BACKEND": "jax"}),
    "loopback": lambda tmp_path: doctor.loopback("203.0.113.1"),
}


@pytest.mark.parametrize("name", SICK)
def test_a_problem_is_named_with_its_cure(name, tmp_path):
    check = SICK[name](tmp_path)
    assert (check.name, check.state) == (name, PROBLEM)
    assert check.seen
    assert check.cure


def test_a_sound_machine_has_no_such_problem():
    sound = [
        doctor.python_version((3, 11, 7)),
        doctor.packages(),
        doctor.cores(2),
        doctor.memory(8.0),
        doctor.disk(free=50.0),
        doctor.data(),
        doctor.tf_config({}),
        doctor.settings({"KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}),
        doctor.start_method(["fork", "spawn"], "linux"),
        doctor.loopback(),
        doctor.kernel(),
    ]
    assert [check.state for check in sound] == [OK] * len(sound), sound
    assert doctor.healthy(sound)


def test_what_is_only_worth_knowing_is_a_note():
    notes = [doctor.python_version((3, 13, 0)), doctor.cores(1), doctor.start_method(["spawn"], "darwin")]
    assert [check.state for check in notes] == [NOTE] * 3
    assert doctor.healthy(notes)


def test_a_damaged_data_file_is_named(tmp_path):
    from course_utils import datasets

    for name in datasets.PUBLISHED:
        (tmp_path / name).write_bytes(gzip.compress(b"not the published file"))
    check = doctor.data(tmp_path)
    assert check.state == PROBLEM
    assert any(name in check.seen for name in datasets.PUBLISHED)


def test_a_tensorflow_that_does_not_import_is_told_with_its_last_words(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: libx.so is missing' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert "libx.so is missing" in doctor.tensorflow_starts((str(broken),)).seen


def test_a_worker_whose_kernel_is_gone_is_found_and_one_with_a_kernel_is_not(tmp_path):
    """The middle process ends at once, so that its child is left to the system, as after a killed kernel."""
    command = f"import sys; '{doctor.CLUSTER_MODULE}'; print(1, flush=True); sys.stdin.read()"
    middle = textwrap.dedent(f"""\
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {command!r}], stdin=0, stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid)
        """)
    owned = subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    orphaned = subprocess.Popen(
        [sys.executable, "-c", middle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        owned.stdout.readline()
        pid = orphaned.stdout.readline().strip()
        orphaned.wait(30)
        check = doctor.leftover_workers()
        assert check.state == PROBLEM
        assert pid in check.cure.replace("`", " ").replace(".", " ").split()
        assert str(owned.pid) not in check.cure.replace("`", " ").replace(".", " ").split()
    finally:
        for process in (owned, orphaned):
            process.stdin.close()  # both children read until then
        owned.wait(30)
        owned.stdout.close()
        orphaned.stdout.close()


def test_the_report_shows_every_check_and_the_cures(capsys):
    checks = [
        doctor.Check("disk", PROBLEM, "0.1 GiB free", "Free some space."),
        doctor.Check("data", OK, "fine"),
    ]
    report.doctor(checks)
    printed = capsys.readouterr().out
    for text in ("disk", "0.1 GiB free", "Free some space.", "data", "fine", "1 problem."):
        assert text in printed
