"""`course deploy` on the command line: whose each argument is, and what it may write over."""

import re
import shlex

import pytest
import yaml
from click.testing import CliRunner

from course_utils.cli import main

TARGETS = pytest.mark.parametrize("target", ["slurm", "kubernetes --image me/train:1"])


def deploy(words):
    return CliRunner(catch_exceptions=False).invoke(main, ["deploy", *words.split()])


def command_of(text):
    """What every worker runs, out of a batch script or manifests."""
    if text.startswith("#!"):
        return shlex.split(re.search("^.*(python -u .*)$", text, re.MULTILINE)[1])
    _, job = yaml.safe_load_all(text)
    return job["spec"]["template"]["spec"]["containers"][0]["command"]


@TARGETS
@pytest.mark.parametrize("between", ["", "-- "])
def test_what_stands_after_the_script_is_the_scripts_own(target, between, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = "--steps 400 --out weights.npz --name run1 --time 3 --workers=7 -- x"
    result = deploy(f"{target} --workers 4 ./train.py {between}{own}")
    assert result.exit_code == 0 and list(tmp_path.iterdir()) == []
    assert command_of(result.stdout) == ["python", "-u", "./train.py", *own.split()]
    told = ["--out", "--name", "--time", "--workers=7"] if not between else []
    assert result.stderr.splitlines() == [
        f"{word} stands after ./train.py, and is handed to it." for word in told
    ]


@TARGETS
def test_an_option_that_does_not_exist_is_refused_and_not_taken_for_the_script(target):
    result = deploy(f"{target} --worker 3 train.py")
    assert result.exit_code == 2 and "No such option '--worker'" in result.stderr and not result.stdout


@pytest.mark.parametrize("words", ["slurm --memory 1Gi", "slurm --with job", "kubernetes --partition p"])
def test_options_of_the_other_target_are_refused(words):
    assert "No such option" in deploy(f"{words} train.py").stderr


@TARGETS
def test_a_file_that_is_no_deployment_is_not_written_over(target, tmp_path):
    for name, content in (("train.py", b"import tensorflow\n"), ("weights.npz", b"PK\x03\x04\xff\xfe")):
        file = tmp_path / name
        file.write_bytes(content)
        result = deploy(f"{target} --out {file} train.py")
        assert result.exit_code == 1 and "was not written by this command" in result.stderr
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    "target", ["slurm", *(f"kubernetes --image i --with {kind}" for kind in ("job", "jobset", "tfjob"))]
)
def test_an_earlier_deployment_is_written_anew(target, tmp_path):
    file = tmp_path / "deployment"
    for steps in ("1", "2"):
        assert deploy(f"{target} --out {file} train.py --steps {steps}").exit_code == 0
    assert file.read_text() == deploy(f"{target} train.py --steps 2").stdout
