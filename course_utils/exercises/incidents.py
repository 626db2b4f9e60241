"""Six jobs that fail, each for another reason, run for real with nobody checking: what lesson 07 diagnoses.

Two processes each, TensorFlow's own messages switched on. One that hangs is stopped after a few seconds.
"""

import html
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from course_utils.cluster import ClusterTimeout, LocalCluster
from course_utils.cluster.ports import HeldPort
from course_utils.errors import CourseError

MISTAKES = (
    "same index twice",
    "another order of addresses",
    "str(config) instead of JSON",
    "TF_CONFIG set after the strategy",
    "chief counted twice",
    "a worker was never started",
    "port taken by another program",
    "network down",
)
AT_ONCE = 2  # jobs side by side: most of their time is waiting
# TensorFlow's own messages; all clusters of lesson 07 use them, so that one warm process serves all.
TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0"}

_NOISE = re.compile(
    r"cuda|cuInit|oneDNN|absl::InitializeLog|cpu_feature_guard|^To enable the following|rebuild TensorFlow"
)
_LOCAL_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_STAMP = re.compile(r"^[IWEF]\d{4} \S+ +\d+ [\w.]+:\d+\] ")


@dataclass(frozen=True)
class Incident:
    """What is known about a failed job: how it ended; for each process its TF_CONFIG and what it printed."""

    letter: str
    given: list[str]
    printed: list[str]
    ended: str

    def __repr__(self) -> str:
        parts = [f"Incident {self.letter}: {self.ended}"]
        for number, (given, printed) in enumerate(zip(self.given, self.printed, strict=True)):
            parts += [f"[process {number}] TF_CONFIG={given}"]
            parts += [f"[process {number}] {line}" for line in printed.splitlines() or ["(nothing)"]]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        names = [f"process {number}" for number in range(len(self.given))]
        texts = [
            f"TF_CONFIG={g}\n\n{p or '(nothing)'}" for g, p in zip(self.given, self.printed, strict=True)
        ]
        title = f'<div style="margin-top:6px"><b>Incident {self.letter}</b> · {html.escape(self.ended)}</div>'
        return title + SideBySide(names, texts)._repr_html_()


class SideBySide:
    """Texts in columns, one a process, in the colours of the workers."""

    def __init__(self, names: list[str], texts: list[str]):
        self.names, self.texts = names, texts

    def __repr__(self) -> str:
        pairs = zip(self.names, self.texts, strict=True)
        return "\n".join(f"[{name}] {line}" for name, text in pairs for line in text.splitlines())

    def _repr_html_(self) -> str:
        columns = "".join(map(_column, range(len(self.names)), self.names, self.texts))
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px;margin-bottom:8px">{columns}</div>'


def _column(number: int, name: str, text: str) -> str:
    from course_utils.plots import worker_colour  # not above: each worker imports this module

    return (
        f'<div style="flex:1 1 14em;min-width:0;border-top:3px solid {worker_colour(number)}">'
        f'<div style="font-weight:600;padding:2px 0">{html.escape(name)}</div>'
        '<pre style="margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:11px;line-height:1.35">'
        f"{html.escape(text)}</pre></div>"
    )


def tidy(log: str) -> str:
    """The log without the time stamps, file names and remarks on missing GPUs that TensorFlow puts in."""
    lines = [line for line in log.splitlines() if not _NOISE.search(line)]
    return "\n".join(_STAMP.sub("", line).split(" Incarnation:")[0] for line in lines)


def play(patience: float = 3) -> list[Incident]:
    """The six incidents, just run. `patience`: seconds after which one that hangs is stopped."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(
            pool.map(lambda job: _play(job[0], *job[1](), patience), zip("ABCDEF", _JOBS, strict=True))
        )


def _play(letter: str, held: list[HeldPort], texts: list[str], late: bool, patience: float) -> Incident:
    try:
        cluster, error = _run([None] * len(texts) if late else texts, patience, texts if late else None)
    finally:
        for port in held:
            port.release()
    if isinstance(error, ClusterTimeout):
        ended = f"nothing more happened, until both were stopped after {patience:g} s."
    else:
        ended = "one process raised an error." if error else "both processes ended without an error."
    return Incident(letter, texts, [tidy(log) for log in cluster.logs], ended)


def without_check(jobs: dict[str, list[str | None]], patience: float = 3) -> dict[str, list[str]]:
    """What each process of each job does when nobody has checked its TF_CONFIG.

    "waits", "trains", "trains alone" or "raises KindOfError: …". A job ends at its first error, or after
    `patience` seconds. Local addresses are exchanged for free ones, the same for the same.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        logs = pool.map(lambda notes: _logs(notes, patience), jobs.values())
        return {name: [*map(_state, each)] for name, each in zip(jobs, logs, strict=True)}


def _logs(notes: list[str | None], patience: float) -> list[str]:
    """What the processes wrote, started with these notes on ports of their own: the old ones may be taken."""
    old = sorted(set(_LOCAL_ADDRESS.findall(" ".join(filter(None, notes)))))
    held = [HeldPort() for _ in old]
    fresh = dict(zip(old, (port.address for port in held), strict=True))
    moved = [note and _LOCAL_ADDRESS.sub(lambda found: fresh[found[0]], note) for note in notes]
    try:
        return _run(moved, patience)[0].logs
    finally:
        for port in held:
            port.release()


def _run(notes, patience: float, *args) -> tuple[LocalCluster, CourseError | None]:
    cluster = LocalCluster(workers=len(notes), timeout=patience, output="quiet", env=TALKATIVE, check=False)
    try:
        cluster.run_with(notes, _train, *args)
    except CourseError as error:
        return cluster, error
    return cluster, None


def _state(log: str) -> str:
    error = re.search(r"^\w+Error: .*", log, re.MULTILINE)
    if error:
        return f"raises {error[0]}"
    replicas = re.search(r"^replicas in step: (\d+)", log, re.MULTILINE)
    if replicas:
        return "trains alone" if replicas[1] == "1" else "trains"
    return "waits"


def _train(set_too_late=None):
    """The script of every incident. It passes the resolver, which the course's own checks leave alone."""
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
        if set_too_late:
            os.environ["TF_CONFIG"] = set_too_late[0]
        total = strategy.reduce("SUM", strategy.run(tf.function(lambda: tf.constant(1))), axis=None)
    except Exception as error:  # its last line, as Python prints it; the cluster would explain it
        print(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
        raise
    print("replicas in step:", strategy.num_replicas_in_sync)
    print("hands shaken:", int(total))


def _text(cluster: dict, kind: str, index: int) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def _addresses(count: int) -> tuple[list[HeldPort], list[str]]:
    held = [HeldPort() for _ in range(count)]
    return held, [port.address for port in held]


def _another_order():
    held, (a, b) = _addresses(2)
    return held, [_text({"worker": [a, b]}, "worker", 0), _text({"worker": [b, a]}, "worker", 1)], False


def _too_late():
    held, hosts = _addresses(2)
    return held, [_text({"worker": hosts}, "worker", index) for index in range(2)], True


def _one_missing():
    held, hosts = _addresses(3)
    return held, [_text({"worker": hosts}, "worker", index) for index in range(2)], False


def _same_index():
    held, hosts = _addresses(2)
    return held, [_text({"worker": hosts}, "worker", 0)] * 2, False


def _not_json():
    held, hosts = _addresses(2)
    right = [_text({"worker": hosts}, "worker", index) for index in range(2)]
    return held, [right[0], str(json.loads(right[1]))], False


def _chief_twice():
    held, hosts = _addresses(2)
    cluster = {"chief": hosts[:1], "worker": hosts}
    return held, [_text(cluster, "chief", 0), _text(cluster, "worker", 1)], False


_JOBS = (_another_order, _too_late, _one_missing, _same_index, _not_json, _chief_twice)
