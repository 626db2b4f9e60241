"""Whether this machine can run the course: each check says what was seen, and the cure of a problem."""

import dataclasses
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import DataError

DISTRIBUTION = "distributed-tensorflow-course"
TESTED_PYTHON = (3, 11)
POSSIBLE_PYTHON = ((3, 11), (3, 13))
MEMORY_NEEDED = 3.0  # GiB: four workers and a kernel, each with TensorFlow
DISK_NEEDED = 1.0  # GiB: checkpoints and logs of a lesson
PORTS_NEEDED = 8
# Any of these makes TensorFlow or Keras another one than the course is written for.
UNWANTED_SETTINGS = {"TF_USE_LEGACY_KERAS": ("", "0", "False", "false"), "KERAS_BACKEND": ("", "tensorflow")}
CLUSTER_MODULE = "course_utils.cluster"

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class Check:
    """One line of the report. `state` is "ok", "note" (worth knowing) or "problem"; only the last fails."""

    name: str
    state: str
    seen: str
    cure: str = ""


def examine() -> list[Check]:
    """All checks, in the order in which a problem would show; some seconds, as TensorFlow starts once."""
    return [check() for check in CHECKS]


def healthy(checks: list[Check]) -> bool:
    """True where no check found a problem."""
    return all(check.state != PROBLEM for check in checks)


def as_json(checks: list[Check]) -> str:
    """The report for programs: a list of objects with `name`, `state`, `seen` and `cure`."""
    return json.dumps([dataclasses.asdict(check) for check in checks], indent=1)


def python_version(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Whether this Python is tested, possible, or neither."""
    seen = ".".join(map(str, version))
    low, high = POSSIBLE_PYTHON
    if version[:2] == TESTED_PYTHON:
        return Check("Python", OK, seen)
    if low <= version[:2] <= high:
        return Check("Python", NOTE, f"{seen}; the pinned packages install, the course is tested on 3.11")
    return Check(
        "Python", PROBLEM, seen, "Use Python 3.11: `make PYTHON=python3.11 run` after `rm -r .venv`."
    )


def packages(installed: Callable[[str], str] = importlib.metadata.version) -> Check:
    """Whether the packages that the course uses are those that it was tested with."""
    from packaging.requirements import Requirement

    wrong = []
    for text in importlib.metadata.requires(DISTRIBUTION) or []:
        pin = Requirement(text)
        if pin.marker is not None and not pin.marker.evaluate({"extra": ""}):
            continue
        try:
            version = installed(pin.name)
        except importlib.metadata.PackageNotFoundError:
            version = "missing"
        if version == "missing" or not pin.specifier.contains(version):
            wrong.append(f"{pin.name} is {version}, wanted {pin.specifier}")
    cure = "Run `.venv/bin/python -m pip install -r requirements.lock`."
    if wrong:
        return Check("packages", PROBLEM, "; ".join(wrong), cure)
    return Check(
        "packages", OK, f"TensorFlow {installed('tensorflow')}, Keras {installed('keras')}, as pinned"
    )


def tensorflow_starts(command: tuple[str, ...] = (sys.executable,), limit: float = 120) -> Check:
    """Whether TensorFlow imports in a process of its own, and the GPUs that it finds."""
    script = (
        "import json, tensorflow as tf;"
        "print(json.dumps([d.name for d in tf.config.list_physical_devices('GPU')]))"
    )
    cure = "Make the environment anew: `rm -r .venv`, then `make run`."
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    try:
        done = subprocess.run(
            [*command, "-c", script], capture_output=True, text=True, timeout=limit, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("TensorFlow", PROBLEM, f"it did not start: {error}", cure)
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return Check("TensorFlow", PROBLEM, f"it did not start: {last}", cure)
    gpus = json.loads(done.stdout.splitlines()[-1])
    return Check("TensorFlow", OK, f"starts; GPUs: {len(gpus) or 'none, and none is needed'}")


def cores(count: int | None = None) -> Check:
    """How many processor cores this process may use."""
    count = count or _usable_cores()
    if count < 2:
        return Check("cores", NOTE, "1; workers will take turns and lessons take longer than their 60 s")
    return Check("cores", OK, str(count))


def memory(free: float | None = None) -> Check:
    """Free memory in GiB, a container's own limit included."""
    free = _free_memory() if free is None else free
    seen = f"{free:.1f} GiB free"
    if free < MEMORY_NEEDED:
        cure = f"Close other programs or kernels: four workers need about {MEMORY_NEEDED:.0f} GiB."
        return Check("memory", PROBLEM, seen, cure)
    return Check("memory", OK, seen)


def disk(folder: str | None = None, free: float | None = None) -> Check:
    """Free space in GiB where lessons write."""
    folder = folder or tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 2**30 if free is None else free
    seen = f"{free:.1f} GiB free for temporary files"
    if free < DISK_NEEDED:
        cure = "Free some space, or set TMPDIR to a folder that has it."
        return Check("disk", PROBLEM, seen, cure)
    return Check("disk", OK, seen)


def data(folder: Path | None = None) -> Check:
    """Whether the data files are there and are the published ones."""
    from course_utils import datasets

    try:
        datasets.verify(folder)
    except DataError as error:
        return Check("data", PROBLEM, error.seen, error.cure)
    return Check("data", OK, "Fashion-MNIST, all four files with the published checksums")


def tf_config(environment: dict[str, str] | None = None) -> Check:
    """Whether a TF_CONFIG is left in the environment: it would make every process part of some cluster."""
    value = (os.environ if environment is None else environment).get("TF_CONFIG")
    if value is None:
        return Check("TF_CONFIG", OK, "not set")
    cure = (
        "Run `unset TF_CONFIG`, look for it in your shell's start-up files, and restart the notebook server."
    )
    return Check("TF_CONFIG", PROBLEM, f"set: {value[:60]}", cure)


def settings(environment: dict[str, str] | None = None) -> Check:
    """Whether other settings in the environment change what Keras is."""
    environment = os.environ if environment is None else environment
    wrong = [
        f"{name}={environment[name]}"
        for name, allowed in UNWANTED_SETTINGS.items()
        if name in environment and environment[name] not in allowed
    ]
    if wrong:
        names = " ".join(setting.split("=")[0] for setting in wrong)
        return Check("settings", PROBLEM, ", ".join(wrong), f"Run `unset {names}`: the course uses Keras 3.")
    return Check("settings", OK, "none that changes TensorFlow or Keras")


def start_method(methods: list[str] | None = None, system: str = sys.platform) -> Check:
    """How workers are started here: forked from a warm process, or spawned."""
    methods = multiprocessing.get_all_start_methods() if methods is None else methods
    if system == "linux" and "fork" in methods:
        return Check("workers", OK, "forked from a warm process, in a fraction of a second each")
    return Check("workers", NOTE, "spawned, as fork is not safe here: the same, some seconds slower")


def loopback(host: str = "127.0.0.1") -> Check:
    """Whether ports can be had on this machine's own address."""
    sockets = []
    try:
        for _ in range(PORTS_NEEDED):
            sockets.append(socket.create_server((host, 0)))
        with socket.create_connection(sockets[0].getsockname()[:2], timeout=2):
            pass
    except OSError as error:
        cure = "Allow connections to 127.0.0.1 in the firewall or sandbox: workers talk over it."
        return Check("loopback", PROBLEM, f"no {PORTS_NEEDED} ports on {host}: {error}", cure)
    finally:
        for opened in sockets:
            opened.close()
    return Check("loopback", OK, f"{PORTS_NEEDED} free ports on {host}")


def kernel() -> Check:
    """Whether notebooks opened as "Python 3" run in this environment."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    cure = "Run `.venv/bin/python -m ipykernel install --sys-prefix`, and start it with `course lab`."
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Check("kernel", PROBLEM, "no kernel called python3", cure)
    # A bare `python` is replaced by the server's own interpreter.
    if command in ("python", "python3") or _same_environment(command):
        return Check("kernel", OK, "python3 is this environment's")
    return Check("kernel", PROBLEM, "python3 belongs to another environment", cure)


def leftover_workers() -> Check:
    """Whether workers of an earlier run are still there although the kernel that started them is not."""
    pids = [process.pid for process in _cluster_processes() if _is_orphan(process)]
    if pids:
        listed = " ".join(map(str, pids))
        return Check(
            "leftovers", PROBLEM, f"worker processes without a kernel: {listed}", f"Run `kill -9 {listed}`."
        )
    return Check("leftovers", OK, "no worker without a kernel")


CHECKS = (
    python_version,
    packages,
    tensorflow_starts,
    kernel,
    cores,
    memory,
    disk,
    data,
    tf_config,
    settings,
    start_method,
    loopback,
    leftover_workers,
)


def _usable_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_memory():
    import psutil

    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        used = int((group / "memory.current").read_text()) - _file_cache((group / "memory.stat").read_text())
        free = min(free, int((group / "memory.max").read_text()) - used)
    except (OSError, ValueError):  # not in a container, or its limit is "max"
        pass
    return free / 2**30


def _file_cache(statistics):
    return next(int(line.split()[1]) for line in statistics.splitlines() if line.startswith("inactive_file "))


def _same_environment(command):
    return Path(command).parent == Path(sys.executable).parent


def _cluster_processes():
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        if any(CLUSTER_MODULE in part for part in process.info["cmdline"] or ()):
            yield process


def _is_orphan(process):
    """True where no living Python started it: the system's first process has taken it over."""
    import psutil

    try:
        parent = process.parent()
        return parent is None or "python" not in parent.name().lower()
    except psutil.Error:
        return False
