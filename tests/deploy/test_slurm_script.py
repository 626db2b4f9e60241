"""TF_CONFIG out of Slurm's variables, and the script for sbatch."""

import json
import os
import re
import subprocess
import sys

import pytest

from course_utils.cluster import deploy, slurm
from course_utils.errors import ConfigError

JOB = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "n[08-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("one", ["one"]),
        ("n[08-10],gpu1", ["n08", "n09", "n10", "gpu1"]),
        ("n[1,3-4]x", ["n1x", "n3x", "n4x"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
    ],
)
def test_hosts_are_expanded_in_slurms_order(text, hosts):
    assert slurm.expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "n[01-", "n[a-b]", "a,,b"])
def test_what_is_no_list_of_hosts_is_refused(text):
    with pytest.raises(ConfigError, match=r"no list of hosts|no number and no range"):
        slurm.expand_hosts(text)


def test_tasks_are_counted_node_by_node():
    assert slurm.tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(ConfigError, match="how many tasks"):
        slurm.tasks_per_node("two")


def test_each_task_gets_its_place_and_all_the_same_addresses():
    texts = [
        slurm.tf_config(
            JOB | {"SLURM_PROCID": str(i), "SLURM_NODEID": str(i // 2), "SLURM_LOCALID": str(i % 2)}
        )
        for i in range(6)
    ]
    configs = [json.loads(text) for text in texts]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": i} for i in range(6)]
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    hosts = [address.split(":")[0] for address in configs[0]["cluster"]["worker"]]
    assert hosts == ["n08", "n08", "n09", "n09", "n10", "n10"]


def test_two_jobs_on_one_node_use_other_ports():
    first, second = (
        set(json.loads(slurm.tf_config(JOB | {"SLURM_JOB_ID": job}))["cluster"]["worker"])
        for job in ("77", "78")
    )
    assert not first & second


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"SLURM_PROCID": ""}, "SLURM_PROCID is not set.*srun"),
        ({"SLURM_STEP_NODELIST": "n[08-09]"}, "names 2 nodes and says for 3"),
        ({"SLURM_PROCID": "6"}, "SLURM_PROCID is 6, of 6 tasks"),
        ({"SLURM_PROCID": "1"}, "--distribution=block"),
        ({"SLURM_NODEID": "one"}, "SLURM_NODEID is 'one'"),
        ({"SLURM_NODEID": "3"}, "SLURM_NODEID is 3, of 3 nodes"),
        ({"SLURM_STEP_NODELIST": "n[10-08]"}, "counts downwards"),
        ({"SLURM_JOB_ID": "x"}, "SLURM_JOB_ID is 'x'"),
    ],
)
def test_variables_that_are_missing_or_contradict_each_other_are_named(change, words):
    with pytest.raises(ConfigError, match=words):
        slurm.tf_config(JOB | change)


def test_tensorflows_resolver_gives_the_same_where_it_is_said_to_be_right(monkeypatch):
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    assert slurm.agrees_with_tensorflow()
    assert slurm.by_tensorflow() == slurm.tf_config()
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[8-10]")  # as text, n10 comes before n8
    assert not slurm.agrees_with_tensorflow()
    assert slurm.by_tensorflow() != slurm.tf_config()


def test_uneven_nodes_are_right_too(monkeypatch):
    for name, value in (JOB | {"SLURM_STEP_TASKS_PER_NODE": "3,2,1", "SLURM_LOCALID": "0"}).items():
        monkeypatch.setenv(name, value)
    assert slurm.by_tensorflow() == slurm.tf_config()


def test_outside_of_a_job_the_command_says_so_and_fails():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    ran = subprocess.run(
        [sys.executable, "-m", "course_utils.cluster.slurm"],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1 and ran.stdout == ""
    assert "was not started by srun" in ran.stderr and "Warning" not in ran.stderr


def test_the_script_asks_for_what_was_planned():
    plan = deploy.Plan(
        "my train.py", ("--note", "it's"), workers=8, gpus=4, time="2h", per_node=2, partition="gpu"
    )
    text = deploy.slurm(plan)
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.MULTILINE))
    expected = {"nodes": "4", "ntasks": "8", "ntasks-per-node": "2", "gpus-per-task": "4", "time": "02:00:00"}
    assert expected.items() <= options.items()
    assert options["partition"] == "gpu" and options["signal"] == "TERM@120" and "requeue" in options
    assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=30).returncode == 0


@pytest.mark.parametrize(
    ("codes", "requeue", "calls", "code"),
    [
        ("0", 0, ["srun"], 0),
        ("254 0", 0, ["srun", "srun"], 0),
        ("137 254 254", 0, ["srun"] * 3, 254),  # two restarts are allowed
        ("143", 0, ["srun", "scontrol requeue 77"], 0),
        ("254 143", 0, ["srun", "srun", "scontrol requeue 77"], 0),
        ("143", 1, ["srun", "scontrol requeue 77"], 143),  # a job that is not requeued is not done
        ("255", 0, ["srun"], 255),  # without a TF_CONFIG another attempt is in vain
    ],
)
def test_what_the_script_does_follows_from_what_the_workers_ended_with(tmp_path, codes, requeue, calls, code):
    (tmp_path / "codes").write_text("\n".join(codes.split()) + "\n")
    _program(tmp_path / "srun", 'echo srun >> calls; code=$(head -n 1 codes); sed -i 1d codes; exit "$code"')
    _program(tmp_path / "scontrol", f'echo "scontrol $*" >> calls; exit {requeue}')
    script = deploy.slurm(deploy.Plan("train.py", max_restarts=2))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, timeout=30, capture_output=True
    )
    assert (ran.returncode, (tmp_path / "calls").read_text().splitlines()) == (code, calls)


def _program(path, lines):
    path.write_text(f"#!/usr/bin/env bash\n{lines}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "config", "code"),
    [
        ("exit 0", "exit 0", 0),
        ("exit 3", "exit 0", 254),
        ("kill -9 $$", "exit 0", 254),
        ("exit 143", "exit 0", 143),
        ("kill $$", "exit 0", 143),
        ("exit 0", "exit 1", 255),
        ("exit 0", "kill $$", 143),  # told to stop before it began
    ],
)
def test_a_workers_code_tells_a_failure_from_being_told_to_stop(tmp_path, script, config, code):
    _program(tmp_path / "python", f'if [ "$1" = -m ]; then {config}; else {script}; fi')
    # srun's own options come before "bash": run what comes from there on, as it would
    _program(tmp_path / "srun", 'while [ "$1" != bash ]; do shift; done; "$@"; echo $? > code; exit 0')
    script = deploy.slurm(deploy.Plan("train.py"))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77", "SLURM_PROCID": "0"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, timeout=30, capture_output=True)
    assert int((tmp_path / "code").read_text()) == code


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "--workers 0"),
        ({"workers": 10_001}, "--workers 10001 cannot be.*to 10000"),
        ({"workers": 3, "per_node": 2}, "3 workers cannot be put 2"),
        ({"time": "3min"}, "leaves no time"),
        ({"time": "soon"}, "no time"),
        ({"name": "Not_A_Name"}, "--name 'Not_A_Name' cannot be"),
        ({"name": "9"}, "--name '9' cannot be.*a letter first"),
        ({"name": ""}, "--name '' cannot be"),
        ({"script": ""}, "no script without a name"),
        ({"partition": "gpu\nrm -rf x"}, "--partition .* cannot be"),
        ({"partition": "a b"}, "--partition 'a b' cannot be"),
        ({"memory": "lots"}, "--memory 'lots' cannot be"),
        ({"memory": "0Gi"}, "--memory '0Gi' cannot be"),
        ({"claim": "x y: {"}, "--claim 'x y: {' cannot be"),
        ({"image": "me/train :1"}, "--image 'me/train :1' cannot be"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        deploy.Plan(**{"script": "train.py", **options})


@pytest.mark.parametrize(
    ("script", "name"),
    [("my_Train.py", "my-train"), ("1_train.py", "job-1-train"), ("_.py", "job"), ("9.py", "job-9")],
)
def test_a_job_is_called_after_its_script_as_far_as_a_service_can_be(script, name):
    assert deploy.Plan(script).job == name


def test_usual_words_are_taken():
    deploy.Plan("a.py", partition="gpu,big-1", memory="500Mi", claim="a-b.c", image="h:5/a/b_c:v1@sha256:0f")


def test_a_container_image_is_for_the_workers_and_not_for_the_batch_script():
    text = deploy.slurm(deploy.Plan("train.py", image="registry.example/train:1"))
    (line,) = [line for line in text.splitlines() if "container-image" in line]
    assert line.lstrip().startswith("srun ") and line.endswith(
        " --container-image=registry.example/train:1 \\"
    )
    assert "container-image" not in deploy.slurm(deploy.Plan("train.py"))
