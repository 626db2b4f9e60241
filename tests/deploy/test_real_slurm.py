"""The script that `course deploy slurm` writes, under a Slurm with a controller and two nodes."""

import pytest
import slurm_cluster
import trained

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
# Worker 1 is killed after step 3, where the checkpoint is of step 2. After step 5 it stops, and all wait for
# it, until Slurm's preemption continues it (SIGCONT) and tells it to end (SIGTERM).
FAULTS = "kill worker:1@step:3, stop worker:1@step:5"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if reason := slurm_cluster.missing():
        pytest.skip(reason)
    with slurm_cluster.Slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture
def job(slurm, tmp_path):
    """Submits the generated script for a script and its arguments: the number of the job."""

    def submit(script, *arguments, restarts=3, **environment):
        options = ("--workers", "2", "--cpus", "2", "--time", "20min", "--max-restarts", str(restarts))
        text = trained.course("deploy", "slurm", *options, str(script), "--", *arguments)
        (tmp_path / "job.sh").write_text(text)
        where = {"cwd": trained.ROOT, "env": {"PATH": trained.PATH, **environment}}
        return slurm.submit(tmp_path / "job.sh", f"--output={tmp_path}/job.log", **where)

    return submit


@pytest.mark.timeout(3 * trained.LIMIT)
def test_a_job_that_fails_and_is_preempted_ends_as_if_nothing_had_happened(slurm, job, tmp_path, launched):
    fired = tmp_path / "fired"
    fired.mkdir()
    faults = {"COURSE_FAULTS": FAULTS, "COURSE_FAULTS_FIRED": str(fired)}
    number = job(trained.SCRIPT, *trained.arguments(tmp_path), **faults)
    slurm.wait(lambda: len(list(fired.iterdir())) == 2, "step 5", trained.LIMIT)
    slurm.submit("--wrap=true", "--partition=urgent", "--nodes=2", "--output=/dev/null")
    slurm.wait(lambda: slurm.job(number)["JobState"] in ENDED, "the end", trained.LIMIT)

    log = (tmp_path / "job.log").read_text()
    told = slurm.job(number)
    assert (told["JobState"], told["ExitCode"], told["Restarts"]) == ("COMPLETED", "0:0", "1"), log
    starts = [int(line.split()[4]) for line in log.splitlines() if "replicas, from step" in line]
    assert starts[:2] == [0, 2] and 5 < starts[2] < trained.STEPS, log  # saved because it was told to end
    assert log.count("attempt 0 ended with code 254") == 1
    trained.assert_equal(trained.weights(tmp_path), launched)


FAILS = """
import json, os, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    sys.exit(3)
time.sleep(120)  # until it is ended, as a worker would be that waits for the other
"""


def test_a_script_that_fails_is_tried_as_often_as_it_may_and_does_not_go_back_into_the_queue(
    slurm, job, tmp_path
):
    (tmp_path / "fails.py").write_text(FAILS)
    number = job(tmp_path / "fails.py", restarts=1)
    # The other worker's 143, which srun's SIGTERM brought about, is not what counts.
    slurm.wait(lambda: slurm.job(number)["JobState"] in ENDED, "the end", 120)
    told = slurm.job(number)
    assert (told["JobState"], told["ExitCode"], told["Restarts"]) == ("FAILED", "254:0", "0")
    assert (tmp_path / "job.log").read_text().count("worker 0 ended with code 3") == 2


WAITS = "import time; print('it runs', flush=True); time.sleep(120)"


def test_a_job_that_is_cancelled_stays_so(slurm, job, tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    number = job(tmp_path / "waits.py")
    log = tmp_path / "job.log"
    slurm.wait(lambda: log.exists() and log.read_text().count("it runs") == 2, "its start", 60)
    slurm.call("scancel", number)
    slurm.wait(lambda: slurm.job(number)["JobState"] in ENDED, "the end", 60)
    told = slurm.job(number)
    assert (told["JobState"], told["Restarts"]) == ("CANCELLED", "0")
