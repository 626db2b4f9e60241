"""What each process of a job is told: its task, its share of the machine, its environment, its folders."""

import os
import sys
from pathlib import Path

from course_utils.cluster import faults, output, pool, travel
from course_utils.cluster.config import ClusterConfig
from course_utils.cluster.launch.members import Member, log_level
from course_utils.cluster.launch.options import Launch
from course_utils.cluster.launch.script import run_as_main
from course_utils.cluster.worker import IN_WORKER, Job
from course_utils.errors import ConfigError

GPUS = Path("/proc/driver/nvidia/gpus")


def write_payload(options: Launch, folder: Path) -> None:
    """None; what the workers of the pool are to call lies in the run's folder."""
    call = travel.pack_call(run_as_main, (str(options.script.resolve()), list(options.arguments)), {})
    (folder / "payload.pickle").write_bytes(call)


def make(options: Launch, folder: Path, attempt: int, addresses: list[str]) -> list[Member]:
    """The processes of an attempt, in the order of the tasks, not started yet."""
    config = options.config(addresses)
    logs = (options.log_dir or folder) / f"attempt-{attempt}"
    logs.mkdir(parents=True, exist_ok=True)
    command = None if options.pool else [sys.executable, str(options.script), *options.arguments]
    found = []
    for number, task in enumerate(config.tasks):
        name = file_name(str(task))
        job = _job(options, folder, config, number, folder / f"attempt-{attempt}-{name}.progress")
        log = output.Log(logs / f"{name}.log", log_level() != "2")
        port = int(addresses[number].rpartition(":")[2])
        found.append(Member(task, job, log, port, command))
    return found


def file_name(task: str) -> str:
    """How the files of "worker 1" are called: "worker-1"."""
    return task.replace(" ", "-")


def check_plain(options: Launch) -> None:
    """None; ConfigError where a plain Python cannot have as many devices as it should."""
    if options.devices > 1 and len(_gpus()) < options.size * options.devices:
        raise ConfigError(
            f"A new Python has one device, its CPU, where there are no {options.devices} GPUs for each.",
            cure="Leave out --no-pool: in the warm process a CPU can be several devices.",
        )


def _job(options: Launch, folder: Path, config: ClusterConfig, number: int, progress: Path) -> Job:
    task = config.tasks[number]
    training = sum(task.type in ("chief", "worker") for task in config.tasks)
    threads = max(1, _cores() // training)
    tf_config = config.tf_config(task.type, task.index)
    own = {"TF_CONFIG": tf_config, IN_WORKER: str(task)}
    own |= {faults.FIRED: str(folder), faults.PROGRESS: str(progress)}
    return Job(
        task=str(task),
        tf_config=tf_config,
        alone_is_wrong=training > 1 and task.type in ("chief", "worker"),
        folder=str(folder),
        number=number,
        workers=training,
        devices=options.devices,
        threads=threads,
        environment=environment(options, threads, number) | own,
        directory=os.getcwd(),
        path=_search_path(options.script),
        sources={},
        progress=str(progress),
        ends_on_error=True,
    )


def environment(options: Launch, threads: int, number: int) -> dict[str, str]:
    """The variables of process `number`: the caller's, and its share of the machine."""
    share = {"TF_NUM_INTRAOP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    ours = {"PYTHONFAULTHANDLER": "1"}  # an aborted process writes where it stood
    if options.faults:
        ours[faults.PLAN] = ",".join(options.faults)
    if not options.pool and (gpus := _gpu_share(number, options)):
        ours["CUDA_VISIBLE_DEVICES"] = gpus
    return share | pool.worker_environment(log_level()) | ours


def _gpu_share(number: int, options: Launch) -> str:
    """The GPUs of one process, as CUDA_VISIBLE_DEVICES; empty where there are not enough for all."""
    gpus, n = _gpus(), options.devices
    return ",".join(gpus[number * n : (number + 1) * n]) if len(gpus) >= options.size * n else ""


def _gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    return [str(number) for number, _ in enumerate(GPUS.glob("*"))]


def _search_path(script: Path) -> list[str]:
    """The search path as `python script.py` would have it: the script's folder, then what is installed."""
    ours = {"", str(Path(sys.argv[0]).parent.resolve())}  # of the command `course`
    return [str(script.parent.resolve()), *(entry for entry in sys.path if entry not in ours)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
