"""Faults on purpose: read from text, injected into the right task at the right step, once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from course_utils.cluster import LocalCluster, faults
from course_utils.cluster.faults import Fault, InjectedFault, Progress
from course_utils.errors import ConfigError


@pytest.fixture
def plan(monkeypatch):
    """A function that makes this process worker 1 of 2, with faults planned."""
    cluster = {"worker": ["127.0.0.1:1001", "127.0.0.1:1002"]}

    def plan(text, index=1, **more):
        task = {"type": "worker", "index": index}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
        for name, value in {faults.PLAN: text, **more}.items():
            monkeypatch.setenv(name, str(value))

    return plan


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill worker:1@step:40", Fault("kill", "worker", 1, 40)),
        ("worker:1@step:40", Fault("kill", "worker", 1, 40)),
        (" Stop  worker:0 @ step:3 ", Fault("stop", "worker", 0, 3)),
        ("terminate chief@step:2", Fault("terminate", "chief", 0, 2)),
        ("exception ps:2@step:0", Fault("exception", "ps", 2, 0)),
        ("exit=3 evaluator:0@step:12", Fault("exit", "evaluator", 0, 12, code=3)),
        ("kill worker:0@step:7+0.25s", Fault("kill", "worker", 0, 7, delay=0.25)),
    ],
)
def test_a_fault_is_read_and_written_the_same(text, fault):
    assert Fault.parse(text) == fault == Fault.parse(str(fault))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kill worker:1", "does not describe a fault"),
        ("kill worker:one@step:1", "does not describe a fault"),
        ("worker:1@step:-1", "does not describe a fault"),
        ("", "does not describe a fault"),
        (None, "None does not describe a fault"),
        ("explode worker:1@step:4", "no fault of the kind 'explode'"),
        ("kill boss:1@step:4", "no task of the type 'boss'"),
        ("kill worker@step:4", "does not say which worker"),
        ("kill=3 worker:1@step:4", "only an exit has a code"),
        ("exit=256 worker:1@step:4", "cannot end with a code above 255"),
        ("exception worker:1@step:4+1s", "strikes at the step itself"),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text, words):
    with pytest.raises(ConfigError, match=words) as refused:
        Fault.parse(text)
    assert "kill worker:1@step:40" in refused.value.expected


def test_several_faults_stand_between_commas_or_semicolons():
    assert [str(fault) for fault in faults.parse_all("worker:1@step:2, stop chief@step:3;")] == [
        "kill worker:1@step:2",
        "stop chief:0@step:3",
    ]
    assert faults.parse_all("") == []


def test_a_step_without_a_plan_does_nothing():
    faults.step(3)


@pytest.mark.parametrize("done", ["x", None, float("nan"), float("inf")])
def test_what_is_no_number_of_steps_is_refused(done):
    with pytest.raises(ConfigError, match="is no number of steps"):
        faults.step(done)


def test_a_fault_strikes_its_task_at_its_step_once(plan):
    plan("exception worker:1@step:2, exception worker:0@step:1")
    faults.step(0)
    faults.step(1)
    with pytest.raises(InjectedFault, match=r"exception worker:1@step:2"):
        faults.step(2)
    faults.step(2)
    faults.step(3)


def test_a_step_that_jumps_over_the_planned_one_meets_the_fault_all_the_same(plan):
    plan("exception worker:1@step:2")
    with pytest.raises(InjectedFault):
        faults.step(5)


def test_a_fault_that_fired_is_known_to_the_next_attempt(plan, tmp_path):
    plan("exception worker:1@step:2, exception worker:1@step:3", COURSE_FAULTS_FIRED=tmp_path)
    before = time.monotonic()
    with pytest.raises(InjectedFault):
        faults.step(2)
    (tmp_path / "next").mkdir()
    plan(
        "exception worker:1@step:2, exception worker:1@step:3 "
    )  # another text: read anew, as by a new process
    faults.step(2)
    with pytest.raises(InjectedFault):
        faults.step(3)
    fired = faults.fired(tmp_path)
    assert list(fired) == ["exception worker:1@step:2", "exception worker:1@step:3"]
    assert before <= fired["exception worker:1@step:2"] <= time.monotonic()


def test_a_plan_that_cannot_be_read_is_refused_at_the_first_step(plan):
    plan("kill worker:1@stop:4")
    with pytest.raises(ConfigError, match="'kill worker:1@stop:4' does not describe a fault"):
        faults.step(0)


def test_a_cluster_refuses_faults_for_tasks_that_it_does_not_have():
    with pytest.raises(ConfigError, match="worker 2, which this cluster does not have") as refused:
        LocalCluster(2, faults="kill worker:2@step:1")
    assert "worker 0, worker 1" in refused.value.expected
    with pytest.raises(ConfigError, match="does not describe a fault"):
        LocalCluster(2, faults="kill everybody")


def test_the_last_step_outlives_a_killed_process(tmp_path):
    code = "from course_utils.cluster import faults; [faults.step(k) for k in range(9)]"
    assert run(code, "kill worker:0@step:6", tmp_path) == -signal.SIGKILL
    progress = Progress.read(tmp_path / "progress")
    assert progress.step == 6 and 0 < progress.at <= time.monotonic()
    assert Progress.read(tmp_path / "nobody") is None


@pytest.mark.parametrize(
    ("fault", "code"),
    [("terminate", -signal.SIGTERM), ("exit", 0), ("exit=3", 3), ("exception", 1)],
)
def test_each_kind_ends_the_process_in_its_own_way(fault, code, tmp_path):
    program = "from course_utils.cluster import faults; faults.step(1); print('survived')"
    assert run(program, f"{fault} worker:0@step:1", tmp_path) == code
    assert (tmp_path / "out").read_text() == ""


def test_a_stopped_process_is_halted_and_can_go_on(tmp_path):
    program = "from course_utils.cluster import faults; faults.step(1)"
    process = start(program, "stop worker:0@step:1", tmp_path)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()


def test_a_delayed_fault_strikes_whatever_happens_then(tmp_path):
    program = (
        "from course_utils.cluster import faults; import threading; faults.step(1);"
        "print('went on', flush=True); threading.Event().wait(30)"
    )
    assert run(program, "kill worker:0@step:1+0.3s", tmp_path) == -signal.SIGKILL
    assert (tmp_path / "out").read_text() == "went on\n"


def test_a_delayed_fault_counts_as_fired_when_it_strikes(plan, tmp_path):
    text = "stop worker:1@step:1+500s, exception worker:1@step:2"
    plan(text, COURSE_FAULTS_FIRED=tmp_path)
    # Not in this process: it would be halted, 500 seconds later and in the middle of another test.
    assert run("from course_utils.cluster import faults; faults.step(2)", text, tmp_path) == 1
    assert list(faults.fired(tmp_path)) == ["exception worker:1@step:2"]
    (sentence,) = faults.not_struck(text, tmp_path, lambda task: [None, 2])
    assert "'stop worker:1@step:1+500s' has not struck: worker 1 has ended before 500 s" in sentence


def test_fit_counts_the_steps_of_all_epochs_and_goes_on_counting_where_it_resumed(plan, tmp_path):
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 1), "float32")
    plan("exception worker:1@step:6", COURSE_FAULTS_FIRED=tmp_path, COURSE_STEPS=tmp_path / "progress")
    with pytest.raises(InjectedFault):
        model.fit(x, x, batch_size=2, epochs=2, verbose=0, callbacks=[faults.callback()])
    assert Progress.read(tmp_path / "progress").step == 6
    model.fit(x, x, batch_size=2, epochs=1, verbose=0, callbacks=[faults.callback()])
    assert Progress.read(tmp_path / "progress").step == 10


def start(program, plan, folder):
    env = os.environ | {faults.PLAN: plan, faults.PROGRESS: str(folder / "progress")}
    with open(folder / "out", "w") as out:
        return subprocess.Popen(
            [sys.executable, "-c", program], env=env, stdout=out, stderr=subprocess.DEVNULL
        )


def run(program, plan, folder) -> int:
    process = start(program, plan, folder)
    try:
        return process.wait(timeout=60)
    finally:
        process.kill()
