"""TF_CONFIG: the JSON text that tells each process who is in its cluster and which task it is itself.

Build it (`ClusterConfig`), and find out what is wrong with it (`check_tf_configs`). TensorFlow answers most
wrong configurations by waiting for ever; here each gets one sentence that names the mistake, the process and
the cure. Nothing in this module needs TensorFlow.
"""

import ast
import ipaddress
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from course_utils.cluster.words import a_type, shortened
from course_utils.errors import ConfigError

# The order in which tasks are listed everywhere: the chief leads, the others follow.
TASK_TYPES = ("chief", "worker", "ps", "evaluator")
TRAINING_TYPES = ("chief", "worker")


@dataclass(frozen=True, order=True)
class Task:
    """One process of a cluster, such as worker 1."""

    type: str
    index: int

    def __str__(self) -> str:
        return self.type if self.type in ("chief", "evaluator") else f"{self.type} {self.index}"


@dataclass(frozen=True)
class ClusterConfig:
    """The addresses ("host:port") of a cluster, by type of task; gives each process its TF_CONFIG.

    >>> ClusterConfig(worker=["10.0.0.1:2222", "10.0.0.2:2222"]).tf_config("worker", 1)
    '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 1}}'
    """

    worker: Sequence[str] = field(default=())
    chief: Sequence[str] = field(default=())
    ps: Sequence[str] = field(default=())
    evaluator: Sequence[str] = field(default=())

    def __post_init__(self):
        for kind in TASK_TYPES:
            object.__setattr__(self, kind, _addresses(kind, getattr(self, kind)))

    @property
    def cluster(self) -> dict[str, list[str]]:
        """The "cluster" half of TF_CONFIG, the same text on every process."""
        return {kind: list(getattr(self, kind)) for kind in TASK_TYPES if getattr(self, kind)}

    @property
    def tasks(self) -> list[Task]:
        """Every task, chief first."""
        return [Task(kind, index) for kind in TASK_TYPES for index in range(len(getattr(self, kind)))]

    @property
    def leader(self) -> Task:
        """The task that saves and reports: the chief, or worker 0 where no task has that name."""
        return Task("chief", 0) if self.chief else Task("worker", 0)

    def address(self, type: str, index: int) -> str:
        """The "host:port" of one task; ConfigError if the cluster has no such task."""
        self._require_tasks()
        if type not in TASK_TYPES or not getattr(self, type):
            raise ConfigError(
                f"This cluster has no task of type {type!r}.", expected=f"one of {_words(self.cluster)}."
            )
        _check_index(index, type, self.cluster[type], f'tf_config("{type}", {_number(index)})')
        return self.cluster[type][index]

    def tf_config(self, type: str, index: int) -> str:
        """The TF_CONFIG text of one task; ConfigError if the cluster has no such task."""
        self.address(type, index)
        task = {"type": type, "index": operator.index(index)}  # JSON does not know the integers of NumPy
        return json.dumps({"cluster": self.cluster, "task": task})

    def tf_configs(self) -> list[str]:
        """The TF_CONFIG text of every task, chief first."""
        return [self.tf_config(task.type, task.index) for task in self.tasks]

    def check(self) -> None:
        """None when the addresses can work together; ConfigError that names the mistake otherwise."""
        self._require_tasks()
        check_tf_configs(self.tf_configs())

    def _require_tasks(self) -> None:
        if not self.tasks:
            raise ConfigError("This cluster has no task at all.", cure='Give worker=["host:port", …].')

    def explain(self) -> str:
        """A table of the cluster: each task, its address, and what it is there for."""
        rows = [("task", "listens on", "does")]
        rows += [(str(task), self.address(task.type, task.index), self._duty(task)) for task in self.tasks]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows)

    def _duty(self, task: Task) -> str:
        if task.type == "ps":
            return "holds variables for the workers"
        if task.type == "evaluator":
            return "evaluates checkpoints, takes no part in training"
        return "trains, and leads: saves and reports" if task == self.leader else "trains"

    @classmethod
    def from_tf_config(cls, text: str) -> "ClusterConfig":
        """The cluster that a TF_CONFIG text describes; ConfigError if the text is wrong in itself."""
        return cls(**_read(text, "This process").cluster)


def _addresses(kind: str, addresses) -> tuple[str, ...]:
    """What ClusterConfig was given for one type of task, as a tuple of texts."""
    if isinstance(addresses, str):
        raise ConfigError(
            f"ClusterConfig({kind}={addresses!r}) got one text where it needs a list.",
            cure=f'Write {kind}=["{addresses}"].',
        )
    # Sets have no order, so indices would mean nothing.
    unfit = isinstance(addresses, (bytes, Mapping, Set)) or not isinstance(addresses, Iterable)
    given = () if unfit else tuple(addresses)
    for wrong in [addresses] if unfit else [each for each in given if not isinstance(each, str)]:
        raise ConfigError(
            f"ClusterConfig({kind}=…) got {a_type(wrong)}{'' if unfit else ' as an address'}.",
            expected=f'a list of texts, {kind}=["host:port", …].',
        )
    return given


def check_tf_configs(texts: Iterable[str | None]) -> None:
    """None when these TF_CONFIG texts make a cluster; ConfigError that names the mistake otherwise.

    One text a process, None for a process without. Each is looked at by itself first, then all together. The
    rules are those of TensorFlow's TFConfigClusterResolver and MultiWorkerMirroredStrategy, and of networks.
    """
    texts = texts_of("check_tf_configs", texts)
    processes = [_read(text, f"Process {number}") for number, text in enumerate(texts)]
    _check_same_cluster(processes)
    _check_every_task_once(processes)


def texts_of(function: str, texts: Iterable[str | None]) -> list[str | None]:
    """The configurations that `function` was given as a list; ConfigError where it was given none."""
    if isinstance(texts, (str, bytes, dict)) or not isinstance(texts, Iterable):
        got = "one text" if isinstance(texts, str) else a_type(texts)
        raise ConfigError(f"{function} got {got}.", expected="a list with one text for each process.")
    texts = list(texts)
    if not texts:
        raise ConfigError(
            "There is no process at all: the list of configurations is empty.",
            expected="one text for each process.",
        )
    return texts


def task_of(text: str | None, number: int = 0) -> Task:
    """The task that a TF_CONFIG text names; worker `number` where the text is wrong or absent."""
    try:
        return _read(text, "This process").task
    except ConfigError:
        return Task("worker", number)


@dataclass(frozen=True)
class _Process:
    who: str  # how sentences call it
    cluster: dict[str, list[str]]
    task: Task


def _read(text: str | None, who: str) -> _Process:
    """One TF_CONFIG text, checked by itself."""
    parsed = _parse(text, who)
    cluster = _checked_cluster(parsed, who + _claim(parsed))
    task = _checked_task(parsed, cluster, who)
    return _Process(f"{who} ({task})", cluster, task)


def _claim(parsed: dict) -> str:
    """ " (worker 1)" where the text says so, right or wrong: it helps to find the process."""
    task = parsed.get("task")
    if isinstance(task, dict) and task.get("type") in TASK_TYPES and _is_whole(task.get("index")):
        return f" ({Task(task['type'], task['index'])})"
    return ""


def _parse(text, who: str) -> dict:
    if text is None or (isinstance(text, str) and not text.strip()):
        raise ConfigError(
            f"{who} has no TF_CONFIG: it would train alone, and the others would wait for it for ever.",
            cure='Set os.environ["TF_CONFIG"] in it before it makes its strategy.',
        )
    if not isinstance(text, str):
        raise ConfigError(
            f"TF_CONFIG of {_low(who)} is {a_type(text)}, but it has to be a JSON text.",
            cure="Write json.dumps(config).",
        )
    parsed = _loaded(text, who)
    if not isinstance(parsed, dict):
        raise ConfigError(
            f"TF_CONFIG of {_low(who)} is the JSON of {a_type(parsed)}.",
            expected='an object with the parts "cluster" and "task".',
        )
    return parsed


def _loaded(text: str, who: str):
    try:
        return json.loads(text, object_pairs_hook=_each_key_once)
    except json.JSONDecodeError as error:
        raise _not_json(text, who, error) from None
    except _KeyTwiceError as error:
        raise ConfigError(
            f'TF_CONFIG of {_low(who)} has "{error}" twice in one object; the first would be ignored.',
            cure="Keep one of them.",
        ) from None
    except RecursionError:
        what = "parts nested too deep to be read"
    except ValueError:  # Python reads numbers of up to 4300 digits
        what = "a number too long to be read"
    raise ConfigError(f"TF_CONFIG of {_low(who)} has {what}.", cure="Write json.dumps(config).")


class _KeyTwiceError(ValueError):
    """Says which key."""


def _each_key_once(pairs: list[tuple]) -> dict:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise _KeyTwiceError(key)
    return dict(pairs)


def _not_json(text: str, who: str, error: json.JSONDecodeError) -> ConfigError:
    if _is_python_dict(text):
        return ConfigError(
            f"TF_CONFIG of {_low(who)} is a Python dictionary made into text, not JSON: "
            "JSON knows only double quotes.",
            cause="it was written with str(config).",
            cure="Write json.dumps(config).",
        )
    before = text[: error.pos].rstrip()
    if before.endswith(",") and text[error.pos : error.pos + 1] in ("}", "]"):
        return ConfigError(
            f"TF_CONFIG of {_low(who)} is not JSON: it has a comma before the closing {text[error.pos]!r}, "
            f"at character {len(before) - 1}.",
            cure="Remove that comma, or write the text with json.dumps(config).",
        )
    near = text[max(0, error.pos - 15) : error.pos + 15]
    return ConfigError(
        f"TF_CONFIG of {_low(who)} is not JSON: {error.msg} at character {error.pos}, near {near!r}.",
        cure="Write it with json.dumps(config), not by hand.",
    )


def _is_python_dict(text: str) -> bool:
    if not re.search(r"[{\[,:]\s*'", text):  # also of a small slip in JSON, Python makes a dictionary
        return False
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _checked_cluster(parsed: dict, who: str) -> dict[str, list[str]]:
    if "cluster" not in parsed:
        raise ConfigError(
            f'TF_CONFIG of {_low(who)} has no "cluster" part: it would train alone.',
            cure='Add "cluster": {"worker": ["host:port", …]}, the same text on every process.',
        )
    cluster = parsed["cluster"]
    if not isinstance(cluster, dict) or not cluster:
        raise ConfigError(
            f'The "cluster" part of {_low(who)} is {_json(cluster)}.',
            expected='task types with their addresses, such as {"worker": ["host:port", …]}.',
        )
    for kind, addresses in cluster.items():
        _check_job(kind, addresses, who)
    _check_chief(cluster, who)
    _check_addresses_differ(cluster, who)
    _check_loopback(cluster, who)
    if not any(kind in cluster for kind in TRAINING_TYPES):
        raise ConfigError(
            f"The cluster of {_low(who)} has no worker: nobody would train.",
            cure='Add "worker": ["host:port", …].',
        )
    return {kind: list(cluster[kind]) for kind in TASK_TYPES if kind in cluster}


def _check_job(kind: str, addresses, who: str) -> None:
    if kind not in TASK_TYPES:
        raise ConfigError(
            f"The cluster of {_low(who)} has tasks of the unknown type {kind!r}.",
            expected=f"{_words(TASK_TYPES)}.",
            cure=_did_you_mean(kind),
        )
    if not isinstance(addresses, list) or not addresses:
        raise ConfigError(
            f"The {kind} addresses of {_low(who)} are {_json(addresses)}, which is not a list.",
            cure=f'Write "{kind}": ["host:port", …].',
        )
    for index, address in enumerate(addresses):
        _check_address(address, f"the address of {Task(kind, index)}", who)


def _check_address(address, name: str, who: str) -> None:
    if not isinstance(address, str):
        raise ConfigError(
            f"In TF_CONFIG of {_low(who)}, {name} is {_json(address)}, which is not a text.",
            expected='"host:port".',
        )
    where = f"In TF_CONFIG of {_low(who)}, {name}, {shortened(repr(address), 100)},"
    if "://" in address:
        raise ConfigError(f"{where} starts with a protocol.", expected='"host:port" alone.')
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ConfigError(f"{where} has no port.", expected='"host:port", for example "10.0.0.1:2222".')
    _check_host(host, where)
    _check_port(port, where)


def _check_host(host: str, where: str) -> None:
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise ConfigError(
            f"{where} has more than one colon.",
            expected='"host:port", and for an IPv6 address "[::1]:2222", with brackets.',
        )
    # Only digits and dots: an IP address, never a name.
    numeric = bracketed or not host.strip("0123456789.")
    if not host or (not numeric and not re.fullmatch(r"[\w.-]+", host)):
        raise ConfigError(
            f"{where} has no proper host.", expected='"host:port", the name or IP of a machine.'
        )
    if numeric and not _is_ip(host.strip("[]"), 6 if bracketed else 4):
        raise ConfigError(
            f"{where} has the host {host}, which is not an IP address.",
            expected='"host:port", for example "10.0.0.1:2222" or "[::1]:2222".',
        )


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _check_port(port: str, where: str) -> None:
    if not (port.isascii() and port.isdigit()):
        raise ConfigError(f"{where} has a port that is not a number: {port!r}.", expected='"host:port".')
    if len(port) > 5 or not 1 <= int(port) <= 65535:
        raise ConfigError(f"{where} has the port {shortened(port, 40)}.", expected="a port from 1 to 65535.")
    if port.startswith("0"):
        raise ConfigError(f"{where} has the port {port}, with a zero before it.", cure=f"Write {int(port)}.")


def _check_chief(cluster: dict, who: str) -> None:
    chiefs = cluster.get("chief", [])
    if len(chiefs) > 1:
        raise ConfigError(
            f"The cluster of {_low(who)} has {len(chiefs)} chiefs; there can be only one.",
            cure='Keep one address under "chief" and move the others to "worker".',
        )
    workers = [_place(address) for address in cluster.get("worker", [])]
    if chiefs and _place(chiefs[0]) in workers:
        index = workers.index(_place(chiefs[0]))
        raise ConfigError(
            f"The chief is counted twice in TF_CONFIG of {_low(who)}: {chiefs[0]} is listed as chief and "
            f"again as worker {index}.",
            cause='a chief is a worker already; "worker" lists only the others.',
            cure=f'Remove {chiefs[0]} from "worker", or remove "chief": then worker 0 leads.',
        )
    if len(cluster.get("evaluator", [])) > 1:
        raise ConfigError(f"The cluster of {_low(who)} has more than one evaluator.", cure="Keep one.")


def _check_addresses_differ(cluster: dict, who: str) -> None:
    seen: dict[tuple, tuple[Task, str]] = {}
    for kind, addresses in cluster.items():
        for index, address in enumerate(addresses):
            other, first = seen.setdefault(_place(address), (Task(kind, index), address))
            if other != (task := Task(kind, index)):
                same = "" if first == address else f" under two names, {first} and"
                raise ConfigError(
                    f"In TF_CONFIG of {_low(who)}, {other} and {task} have one address"
                    f"{same or ','} {address}.",
                    cause="each task is a process of its own and needs a port of its own.",
                    cure=f"Give {task} another port.",
                )


def _place(address: str) -> tuple[str, str]:
    """What an address stands for: small and capital letters, and all names of one's own machine, are one."""
    host, _, port = address.rpartition(":")
    return ("localhost" if _is_loopback(host) else host.lower()), port


def _check_loopback(cluster: dict, who: str) -> None:
    hosts = {a.rpartition(":")[0] for addresses in cluster.values() for a in addresses}
    here = {host for host in hosts if _is_loopback(host)}
    if here and hosts - here:
        local, remote = sorted(here)[0], sorted(hosts - here)[0]
        raise ConfigError(
            f"The cluster of {_low(who)} spans several machines (there is {remote}) but names {local}, "
            "which on each machine means that machine itself.",
            cure=f"Write the name or address by which the other machines reach it, instead of {local}.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "localhost.localdomain", "ip6-localhost")


def _checked_task(parsed: dict, cluster: dict, who: str) -> Task:
    if "task" not in parsed:
        raise ConfigError(
            f'TF_CONFIG of {_low(who)} has no "task" part: the process does not know which task it is.',
            cure='Add "task": {"type": "worker", "index": 0}, with another index on each process.',
        )
    task = parsed["task"]
    if not isinstance(task, dict) or "type" not in task:
        raise ConfigError(
            f'The "task" part of {_low(who)} is {_json(task)}: the type is missing.',
            expected='for example {"type": "worker", "index": 0}.',
        )
    kind = task["type"]
    if kind not in TASK_TYPES:
        raise ConfigError(
            f"{who} says it is of the unknown type {shortened(repr(kind), 100)}.",
            expected=f"{_words(TASK_TYPES)}.",
            cure=_did_you_mean(str(kind)),
        )
    # TensorFlow lets the evaluator be missing in the cluster: it trains with nobody.
    if kind not in cluster and kind != "evaluator":
        raise ConfigError(
            f"{who} says it is a {kind}, but its cluster lists no {kind}.",
            cure=f'Add its address under "{kind}", or give it a type of the cluster: {_words(cluster)}.',
        )
    if "index" not in task:
        raise ConfigError(
            f"{who} says that it is a {kind}, but not which: the index is missing.",
            cure=f'Write "task": {{"type": "{kind}", "index": 0}}.',
        )
    _check_index(task["index"], kind, cluster.get(kind, [None]), who)
    return Task(kind, task["index"])


def _check_index(index, kind: str, addresses: Sequence, who: str) -> None:
    if isinstance(index, str):
        raise ConfigError(
            f"{who} has its index as a text, {shortened(repr(index), 40)}, not as a number.",
            cure=f'Write "index": {int(index)}.'
            if re.fullmatch("[0-9]{1,9}", index)
            else 'Write a number, such as "index": 0.',
        )
    if not _is_integer(index):
        raise ConfigError(f"{who} has the index {_json(index)}.", expected="a whole number from 0.")
    if not 0 <= index < len(addresses):
        cause = "indices count from 0." if index == len(addresses) else ""
        raise ConfigError(
            f"{who} says it is {kind} {_number(index)}, but its cluster lists "
            f"{_count(len(addresses), kind)}.",
            expected=f"an index from 0 to {len(addresses) - 1}." if len(addresses) > 1 else "index 0.",
            cause=cause,
        )


def _is_integer(value) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0


def _is_whole(value) -> bool:
    """Whether it is an integer that can be an index of something."""
    return _is_integer(value) and 0 <= value < 10**9


def _number(value) -> str:
    """An index as text; Python refuses to write numbers of very many digits."""
    if _is_integer(value) and not -(10**18) < value < 10**18:
        return "a number of very many digits"
    return repr(operator.index(value)) if _is_integer(value) else shortened(repr(value), 100)


def _json(value) -> str:
    """A value as JSON, short enough for a sentence, whatever it is."""
    try:
        return shortened(json.dumps(value), 200)
    except (TypeError, ValueError, RecursionError):
        return a_type(value)


def _check_same_cluster(processes: list[_Process]) -> None:
    first = processes[0]
    for other in processes[1:]:
        # The evaluator trains with nobody: its entry may be missing on the others.
        for kind in ("chief", "worker", "ps"):
            ours, theirs = first.cluster.get(kind, []), other.cluster.get(kind, [])
            if [address.lower() for address in ours] != [address.lower() for address in theirs]:
                raise ConfigError(
                    _difference(first, other, kind, ours, theirs),
                    cure='Give every process the same "cluster" part; only "task" differs.',
                )


def _difference(first: _Process, other: _Process, kind: str, ours: list, theirs: list) -> str:
    if len(ours) != len(theirs):
        return (
            f"{other.who} knows {_count(len(theirs), kind)}, but {_low(first.who)} knows "
            f"{_count(len(ours), kind)}: they would wait for different clusters."
        )
    if sorted(map(str.lower, ours)) == sorted(map(str.lower, theirs)):
        return f"{other.who} lists the {kind} addresses in another order than {_low(first.who)}."
    index = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.lower() != b.lower())
    return (
        f"{other.who} expects {Task(kind, index)} at {theirs[index]}, but {_low(first.who)} expects it at "
        f"{ours[index]}."
    )


def _check_every_task_once(processes: list[_Process]) -> None:
    started: dict[Task, _Process] = {}
    for number, process in enumerate(processes):
        if process.task in started:
            raise ConfigError(
                f"Process {number} says it is {process.task}, which process "
                f"{processes.index(started[process.task])} is already.",
                cure=f"Give each process an index of its own, here {_free(processes, process.task.type)}.",
            )
        started[process.task] = process
    cluster = processes[0].cluster
    for task in ClusterConfig(**cluster).tasks:
        if task not in started and task.type != "evaluator":
            raise ConfigError(
                f"{_up(str(task))} is listed at {cluster[task.type][task.index]}, but no process is it: "
                "all others would wait for it for ever.",
                cure=f"Start a process for {task} too, or take its address out of every TF_CONFIG.",
            )


def _free(processes: list[_Process], kind: str) -> str:
    taken = {process.task.index for process in processes if process.task.type == kind}
    free = [str(i) for i in range(len(processes[0].cluster.get(kind, []))) if i not in taken]
    return f"{kind} {free[0]}" if free else f"or list one more {kind}"


def _did_you_mean(kind: str) -> str:
    near = {
        "workers": "worker",
        "master": "chief",
        "chiefs": "chief",
        "parameter_server": "ps",
        "eval": "evaluator",
    }
    guess = near.get(kind.lower()) or (kind.lower() if kind.lower() in TASK_TYPES else None)
    return f'Write "{guess}".' if guess else ""


def _count(number: int, kind: str) -> str:
    return f"{number or 'no'} {kind}{'' if number == 1 or kind == 'ps' else 's'}"


def _words(names) -> str:
    *most, last = [f'"{name}"' for name in names]
    return f"{', '.join(most)} or {last}" if most else last


def _low(who: str) -> str:
    return who[:1].lower() + who[1:]


def _up(text: str) -> str:
    return text[:1].upper() + text[1:]
