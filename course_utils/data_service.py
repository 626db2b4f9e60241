"""The tf.data service on this machine: a dispatcher and tf.data workers in processes of their own.

They are the `ps` tasks of a cluster, `LocalCluster(workers=2, ps=3)`: ps 0 is the dispatcher, the others are
tf.data workers, the `worker` tasks read from them. The cluster ends them with the run, however that ends.

    def consume(files, folder):
        service = data_service.join(folder, "epoch")     # on a ps: serve, and never return
        dataset = shards.read(files).apply(tf.data.experimental.service.distribute(…, service=service))

Source: https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from course_utils.errors import ClusterError

DEADLINE = 60  # seconds that anybody waits for anybody
TICK = 0.01
_NUMBER = "number"  # a file in the working directory of each tf.data worker


def join(folder: str | os.PathLike, job: str) -> str:
    """The dispatcher's address for `distribute(service=…)`, once all tasks are up. On a ps it never returns.

    It returns when all servers are up and every other task has come to this `job`, a name of your own that is
    new each time. `folder` is empty at first and the same for all tasks, which leave word for each other in
    it. Raises ClusterError where TF_CONFIG has too few ps, and when somebody is missing after a minute.
    """
    cluster, task = _from_tf_config()
    addresses = cluster.get("ps", [])
    if len(addresses) < 2:
        raise ClusterError(
            f"A tf.data service needs a dispatcher and a worker, and the cluster has {len(addresses)} ps.",
            cure="LocalCluster(workers=…, ps=2): ps 0 is the dispatcher, the others are tf.data workers.",
        )
    if task["type"] == "ps":
        _serve(Path(folder), addresses, task["index"])
    for i in range(len(addresses)):
        _wait(_word(folder, "ps", i, "up").exists, f"ps {i} to start")
    meet(folder, job)
    return f"grpc://{addresses[0]}"


def meet(folder: str | os.PathLike, place: str) -> None:
    """None, when all tasks but the servers have come to this `place`, a name that is new each time.

    Raises ClusterError when somebody has not come after a minute.
    """
    cluster, task = _from_tf_config()
    others = [(kind, i) for kind in cluster if kind != "ps" for i in range(len(cluster[kind]))]
    _word(folder, task["type"], task["index"], place).touch()
    for kind, i in others:
        _wait(_word(folder, kind, i, place).exists, f"{kind} {i} to come to {place!r}")


def server_number():
    """An int64 tensor, inside a dataset's function: the number of the tf.data worker that computes it."""
    import tensorflow as tf

    # A relative path: each tf.data worker finds a file of its own in its working directory.
    return tf.strings.to_number(tf.io.read_file(_NUMBER), tf.int64)


def restart_once(folder: str | os.PathLike, ps: int) -> None:
    """None, when tf.data worker `ps` has been stopped and a new one is up in its place; only the first time.

    What the old one had read and not handed over is gone, as when its machine had died.
    """
    _word(folder, "ps", ps, "to restart").touch()
    _wait(_word(folder, "ps", ps, "restarted").exists, f"ps {ps} to restart")


def _word(folder, kind: str, index: int, what: str) -> Path:
    """The file by which a task leaves word for the others."""
    return Path(folder, f"{kind}-{index} {what}")


def _from_tf_config() -> tuple[dict, dict]:
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    return config.get("cluster", {}), config.get("task", {"type": "worker", "index": 0})


def _serve(folder: Path, addresses: list[str], number: int) -> None:
    """Be the dispatcher or a tf.data worker until this process is ended."""
    port = int(addresses[number].rpartition(":")[2])
    if number == 0:
        server = _dispatcher(port)
        _word(folder, "ps", 0, "up").touch()
        server.join()
    home = folder / f"home-{number}"
    home.mkdir()
    (home / _NUMBER).write_text(str(number))
    os.chdir(home)
    server = _worker(addresses[0], addresses[number], port)
    _word(folder, "ps", number, "up").touch()
    _wait(_word(folder, "ps", number, "to restart").exists, limit=float("inf"))
    server.stop()
    server = _worker(addresses[0], addresses[number], port)
    _word(folder, "ps", number, "restarted").touch()
    server.join()


def _dispatcher(port: int):
    from tensorflow.data.experimental import service

    return service.DispatchServer(service.DispatcherConfig(port=port))


def _worker(dispatcher: str, address: str, port: int):
    """A tf.data worker that has registered with the dispatcher."""
    from tensorflow.data.experimental import service

    return service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=dispatcher,
            worker_address=address,
            port=port,
            heartbeat_interval_ms=100,  # 30 s by default: too slow for an epoch of a second
            dispatcher_timeout_ms=DEADLINE * 1000,
        )
    )


def _wait(met: Callable[[], bool], what: str = "", limit: float | None = None) -> None:
    limit = DEADLINE if limit is None else limit
    end = time.monotonic() + limit
    while not met():
        if time.monotonic() > end:
            raise ClusterError(f"Waited {limit:g} s in vain for {what}.")
        time.sleep(TICK)
