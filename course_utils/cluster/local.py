"""A real cluster on this machine: one process a task, real gRPC, real collectives, up in about a second."""

import contextlib
import numbers
import operator
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from course_utils.cluster import cells, errors, faults, folders, output, pool, ports, travel
from course_utils.cluster.config import ClusterConfig, Task, check_tf_configs, task_of, texts_of
from course_utils.cluster.links import Link
from course_utils.cluster.outcomes import Outcome, ToTheEnd
from course_utils.cluster.supervisor import Run, Worker
from course_utils.cluster.words import a_type
from course_utils.cluster.worker import IN_WORKER, Job
from course_utils.errors import ClusterError, ConfigError, CourseError

STAGES = ("start", "server up", "connected", "first step", "exit")


class LocalCluster:
    """Workers on this machine; `run` calls a function on each and returns what each returned.

    workers: how many; chief=True adds a chief, ps=n parameter servers, evaluator=True an evaluator.
    devices_per_worker: replicas in each. timeout: seconds for one run, counted from when all have started.
    output: "lines" (each with its worker's name), "columns" (side by side in a notebook), "quiet", or what
    shows the workers' reports while they run, such as watching.Live().
    log_dir: where the logs of failed runs go (else .course/runs). start_method: "fork" or "spawn".
    env: environment variables for the workers; TF_CPP_MIN_LOG_LEVEL="0" turns TensorFlow's own messages on
    (other variables that TensorFlow reads when it is imported need start_method="spawn").
    check=False lets `run_with` start configurations that look wrong.
    faults: what is to go wrong on purpose, such as "kill worker:1@step:40" (see `faults.Fault.parse`).
    link: the network between the workers, such as Link("100Mbit", "5ms"); None: this machine's loopback.
    """

    def __init__(
        self,
        workers: int = 2,
        devices_per_worker: int = 1,
        timeout: float = 120,
        *,
        chief: bool = False,
        ps: int = 0,
        evaluator: bool = False,
        output: str | output.Quiet = "lines",
        log_dir: str | os.PathLike | None = None,
        start_method: str | None = None,
        env: dict[str, str] | None = None,
        check: bool = True,
        faults: str = "",
        link: Link | None = None,
    ):
        self.chief, self.evaluator = _yes_or_no("chief", chief), _yes_or_no("evaluator", evaluator)
        self.workers = _whole("workers", workers, 0 if self.chief else 1)
        self.devices_per_worker = _whole("devices_per_worker", devices_per_worker, 1)
        self.ps = _whole("ps", ps, 0)
        self.timeout = _seconds(timeout)
        self.output = _display(output)
        self.start_method = _one_of("start_method", start_method or pool.default_method(), ("fork", "spawn"))
        self.log_dir, self.env, self.check = _path(log_dir), _variables(env), _yes_or_no("check", check)
        self.link = _link(link)
        self.faults = self._checked_faults(faults)
        self.configs: list[str] = []
        self.logs: list[str] = []
        self.timeline: list[list[tuple[str, float]]] = []

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_) -> None:
        """Nothing to do: each run ends its own workers, also when it fails."""

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, in the order of the results."""
        return [str(task) for task in self._config(["x:1"] * self._size()).tasks]

    def warm_up(self) -> "LocalCluster":
        """This cluster, once the process that imports TensorFlow for all is ready. `run` does it too."""
        if self.start_method == "fork":
            pool.the_pool(self._log_level())
        return self

    def run(self, fn: Callable, /, *args, **kwargs) -> list:
        """What `fn(*args, **kwargs)` returned on each task, chief first; tensors become NumPy arrays.

        `fn` starts as a script would: TF_CONFIG is set, nothing of TensorFlow is in use, it makes its own
        strategy. Raises WorkerError, WorkerDied, ClusterTimeout or ConfigError, when all are stopped.
        """
        return self._run_on_new_ports(Run, fn, args, kwargs)

    def outcomes(self, fn: Callable, /, *args, **kwargs) -> list[Outcome]:
        """How `fn(*args, **kwargs)` ended on each task, chief first, where no failure ends the others' run.

        So one sees what the survivors see, and after how many seconds. A worker that raises ends its process,
        as a script would. The run is over when all have returned or failed, when those that are left wait in
        vain for one that returned or exited, or at `timeout`; none of these raises anything here. Raises what
        `run` raises where nothing could start, ConfigError above all.
        """
        return self._run_on_new_ports(ToTheEnd, fn, args, kwargs)

    def run_with(self, configs: Iterable[str | None], fn: Callable, /, *args, **kwargs) -> list:
        """The same with TF_CONFIG texts of your own, one a process; None leaves it unset.

        They are checked first; ConfigError says what could not work.
        """
        try:
            configs = texts_of("run_with", configs)
            if self.check:
                check_tf_configs(configs)
                _check_here(configs)
            held = [ports.take(_port_of(text, task_of(text))) for text in configs]
            return self._run(configs, held, fn, args, kwargs)
        except CourseError as error:
            raise errors.plain(error) from None

    def _run_on_new_ports(
        self, kind: Callable, fn: Callable, args: tuple, kwargs: dict, fired: str | None = None
    ) -> list:
        """The results of a run of that kind; `fired` is the folder of faults that are not to fire again."""
        held = [ports.HeldPort() for _ in range(self._size())]
        try:
            config = self._config([port.address for port in held])
            return self._run(config.tf_configs(), held, fn, args, kwargs, kind, fired)
        except CourseError as error:
            raise errors.plain(error) from None
        finally:
            for port in held:
                port.release()

    def _checked_faults(self, text: str) -> str:
        """The text, once it is known that it can be read and speaks of tasks that there are."""
        for fault in faults.parse_all(text):
            if fault.name not in self.tasks:
                raise ConfigError(
                    f"{str(fault)!r} is for {fault.name}, which this cluster does not have.",
                    expected=f"one of {', '.join(self.tasks)}.",
                )
        return text

    def _size(self) -> int:
        return self.workers + self.chief + self.ps + self.evaluator

    def _config(self, addresses: list[str]) -> ClusterConfig:
        counts = {"chief": self.chief, "worker": self.workers, "ps": self.ps, "evaluator": self.evaluator}
        left = iter(addresses)
        return ClusterConfig(**{kind: [next(left) for _ in range(n)] for kind, n in counts.items()})

    def _run(self, configs: list[str | None], held: list, fn, args, kwargs, kind=Run, fired=None) -> list:
        with self.link.between(configs) if self.link else contextlib.nullcontext(configs) as configs:
            return self._run_workers(configs, held, fn, args, kwargs, kind, fired)

    def _run_workers(self, configs, held: list, fn, args, kwargs, kind, fired) -> list:
        _refuse_nesting()
        _refuse_lost_directory()
        _refuse_stale_tf_config()
        _refuse_called(fn)
        payload = travel.pack_call(fn, args, kwargs)
        self.warm_up()
        self.configs, self.logs, self.timeline = configs, [], []
        base = folders.for_logs(self.log_dir)
        folder = folders.temporary()
        kept = base / folders.kept_name(folder)
        (folder / "payload.pickle").write_bytes(payload)
        workers = self._make_workers(configs, held, folder, kind is not Run, fired or str(folder))
        screen = output.make_display(self.output, [worker.name for worker in workers])
        run = kind(workers, self._start, screen, self.timeout, kept)
        if self.link:
            run.as_written = self.link.as_written
        try:
            results = run.results()
            if fired is None:
                warn_of_faults(self.faults, folder, _last_steps(workers), depth=4)
            return results
        finally:
            if run.failed:
                folders.keep(folder, kept)
            self.logs = [worker.log.text() for worker in workers]
            self.timeline = [_in_order(worker.stages) for worker in workers]
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, log: int):
        start = pool.start_forked if self.start_method == "fork" else pool.start_spawned
        return start(log, self._log_level())

    def _log_level(self) -> str:
        return str(self.env.get("TF_CPP_MIN_LOG_LEVEL", "2"))

    def _make_workers(self, configs, held, folder: Path, ends_on_error: bool, fired: str) -> list[Worker]:
        tasks = [task_of(text, number) for number, text in enumerate(configs)]
        training = sum(task.type in ("chief", "worker") for task in tasks)
        sources = cells.sources()
        environment = pool.worker_environment(self._log_level()) | {faults.FIRED: fired}
        environment |= {faults.PLAN: self.faults} if self.faults else {}
        workers = []
        for number, (task, text, port) in enumerate(zip(tasks, configs, held, strict=True)):
            job = Job(
                task=str(task),
                tf_config=text,
                alone_is_wrong=training > 1 and task.type in ("chief", "worker"),
                folder=str(folder),
                number=len(workers),
                workers=training,
                devices=self.devices_per_worker,
                threads=max(1, _cores() // training),
                environment=environment | {faults.PROGRESS: str(folder / f"steps-{number}")} | self.env,
                directory=os.getcwd(),
                path=[entry or os.getcwd() for entry in sys.path],
                sources=sources,
                progress=str(folder / f"steps-{number}"),
                ends_on_error=ends_on_error,
            )
            name = str(task).replace(" ", "-")
            if task in tasks[:number]:  # two processes with one name: only where check=False lets them
                name += f"-process-{number}"
            log = output.Log(folder / f"{name}.log", "TF_CPP_MIN_LOG_LEVEL" in self.env)
            workers.append(Worker(task, job, log, _port_of(text, task), port))
        return workers


def warn_of_faults(plan: str, folder: Path, steps: dict[str, list[int | None]], depth: int) -> None:
    """None; a warning for each planned fault that has not struck, since the run was not put to that test.

    It points at the line that is `depth` calls further out than ours.
    """
    for sentence in faults.not_struck(plan, folder, lambda task: steps.get(task, [])):
        warnings.warn(sentence, stacklevel=depth + 2)


def _last_steps(workers: list[Worker]) -> dict[str, list[int | None]]:
    read = {worker.name: faults.Progress.read(worker.job.progress) for worker in workers}
    return {name: [progress.step] if progress else [] for name, progress in read.items()}


def _refuse_nesting() -> None:
    if os.environ.get(IN_WORKER):
        raise ClusterError(
            f"This code runs in {os.environ[IN_WORKER]}, and a worker cannot start a cluster of its own.",
            cure="Call LocalCluster from the notebook or the script, outside the function that it runs.",
        )


def _refuse_lost_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ClusterError(
            "The folder in which this process works has been deleted, and the workers would start there.",
            cure="Go to one that exists with os.chdir(…), or restart the kernel.",
        ) from None


def _refuse_called(fn) -> None:
    if not callable(fn):
        raise ConfigError(
            f"run got {'nothing' if fn is None else a_type(fn)} where it needs a function.",
            cause="the function was called in this process already: run(train()).",
            cure="Write run(train), and its arguments after it.",
        )


def _refuse_stale_tf_config() -> None:
    if os.environ.get("TF_CONFIG"):
        raise ConfigError(
            "TF_CONFIG is set in this notebook's own process, which is not a worker: a strategy made here "
            "would wait for others for ever.",
            cause="an earlier cell or the shell has set it.",
            cure='Run del os.environ["TF_CONFIG"]; each worker gets its own.',
        )


def _check_here(configs: Sequence[str]) -> None:
    """Every task of a LocalCluster runs here, on a port of its own that is free."""
    seen: dict[int, Task] = {}
    for number, text in enumerate(configs):
        task = task_of(text, number)
        port = _port_of(text, task)
        host = _host_of(text, task)
        if host and not ports.is_this_machine(host):
            raise ConfigError(
                f"{host}, the address of {task}, is not this machine, and LocalCluster starts all here.",
                cure=f'Write "127.0.0.1:{port}" for {task}; for several machines start a script on each.',
            )
        if port and port in seen:
            raise ConfigError(
                f"{seen[port]} and {task} both have port {port} of this machine, by two of its names.",
                cure=f"Give {task} another port.",
            )
        seen[port] = task
        if port and ports.holder(port):
            raise ports.taken(port, str(task))


def _port_of(text: str | None, task: Task) -> int | None:
    address = _address_of(text, task)
    return int(address.rpartition(":")[2]) if address else None


def _host_of(text: str | None, task: Task) -> str | None:
    address = _address_of(text, task)
    return address.rpartition(":")[0] if address else None


def _address_of(text: str | None, task: Task) -> str | None:
    try:
        return ClusterConfig.from_tf_config(text).address(task.type, task.index)
    except ConfigError:
        return None


def _in_order(stages: dict[str, float]) -> list[tuple[str, float]]:
    return [(name, stages[name]) for name in STAGES if name in stages]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _whole(name: str, value, least: int) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool) and (number := operator.index(value)) >= least:
            return number
    raise ConfigError(f"LocalCluster({name}={value!r}) cannot be.", expected=f"a whole number from {least}.")


def _seconds(value) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not value > 0:
        raise ConfigError(
            f"LocalCluster(timeout={value!r}) cannot be.", expected="a number of seconds greater than 0."
        )
    return value


def _yes_or_no(name: str, value) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # Python's or NumPy's
        raise ConfigError(f"LocalCluster({name}={value!r}) cannot be.", expected="True or False.")
    return bool(value)


def _display(value) -> str | output.Quiet:
    if isinstance(value, output.Quiet):
        return value
    return _one_of("output", value, ("lines", "columns", "quiet"))


def _link(value) -> Link | None:
    if not isinstance(value, (Link, type(None))):
        raise ConfigError(
            f"LocalCluster(link={value!r}) cannot be.", expected='a link, such as cluster.Link("100Mbit").'
        )
    return value


def _path(value) -> str | os.PathLike | None:
    if not isinstance(value, (str, os.PathLike, type(None))):
        raise ConfigError(f"LocalCluster(log_dir={value!r}) cannot be.", expected="the path of a folder.")
    return value


def _variables(env) -> dict[str, str]:
    """Environment variables, of which the system takes texts only."""
    if not isinstance(env, (Mapping, type(None))):
        raise ConfigError(
            f"LocalCluster(env=…) got {a_type(env)}.", expected='a dictionary such as {"NAME": "value"}.'
        )
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(
                f"LocalCluster(env=…) has {name!r} as the name of a variable.", expected='a text without "=".'
            )
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError(
                f"LocalCluster(env=…) gives {name} the value {value!r}, which is {a_type(value)}.",
                expected="a text.",
                cure=f'Write env={{"{name}": "{value}"}}.' if isinstance(value, (int, float)) else "",
            )
    return dict(env or {})


def _one_of(name: str, value, allowed: tuple):
    if value not in allowed:
        raise ConfigError(
            f"LocalCluster({name}={value!r}) cannot be.", expected=f"one of {', '.join(allowed)}."
        )
    return value
