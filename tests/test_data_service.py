"""The tf.data service in processes of its own: what each mode guarantees, and nothing left behind."""

import json
import os

import numpy as np
import pytest

from course_utils import data_service, shards
from course_utils.cluster import LocalCluster, ports
from course_utils.errors import ClusterError

FILES, EACH = 12, 8
RECORDS = FILES * EACH
JOBS = {
    "once": "distributed_epoch",
    "from each": "parallel_epochs",
    "from each, restarted": "parallel_epochs",
}


def consume(files, folder):
    """The addresses of the servers, and for each job (record numbers, servers) of each batch taken."""
    import tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    found = {}
    for job, mode in JOBS.items():
        address = data_service.join(folder, job)
        dataset = shards.read(files).map(lambda record: (record["id"], data_service.server_number()))
        distribute = tf.data.experimental.service.distribute(
            mode, address, job_name=job, max_outstanding_requests=1
        )
        found[job] = []
        for batch in dataset.batch(4).apply(distribute).as_numpy_iterator():
            found[job].append([part.tolist() for part in batch])
            data_service.meet(folder, f"{job} has begun")
            if "restarted" in job and config["task"]["index"] == 0 and 2 in batch[1]:
                data_service.restart_once(folder, ps=2)
    return config["cluster"]["ps"], found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    nothing = np.zeros((RECORDS, 2, 2, 1), np.uint8)
    files = shards.write(tmp_path_factory.mktemp("shards"), nothing, np.zeros(RECORDS), [EACH] * FILES)
    cluster = LocalCluster(workers=2, ps=3, output="quiet", timeout=90)
    consumers = cluster.run(consume, files, str(tmp_path_factory.mktemp("service")))[:2]
    return consumers[0][0], [found for _, found in consumers]


def counts(run, job):
    taken = [[numbers for numbers, _ in consumer[job]] for consumer in run[1]]
    return shards.times_received(taken, RECORDS)


def test_a_distributed_epoch_gives_each_record_once(run):
    assert set(counts(run, "once")) == {1}


def test_parallel_epochs_give_each_record_once_from_each_server(run):
    assert set(counts(run, "from each")) == {2}
    pairs = [
        pair for consumer in run[1] for batch in consumer["from each"] for pair in zip(*batch, strict=True)
    ]
    assert sorted(pairs) == [(number, server) for number in range(RECORDS) for server in (1, 2)]


def test_a_server_that_restarts_in_parallel_epochs_begins_anew(run):
    times = counts(run, "from each, restarted")
    assert times.min() == 2 and times.max() == 3


def test_both_consumers_take_part(run):
    assert all(consumer[job] for consumer in run[1] for job in JOBS)


def test_no_server_is_left(run):
    assert not any(ports.listens(int(address.rpartition(":")[2])) for address in run[0])


def test_a_cluster_without_servers_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["h:1"]}, "task": {}}))
    with pytest.raises(ClusterError, match="the cluster has 0 ps"):
        data_service.join(tmp_path, "job")


def test_who_waits_in_vain_is_told_for_whom(monkeypatch, tmp_path):
    monkeypatch.setattr(data_service, "DEADLINE", 0.05)
    config = {"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ClusterError, match=r"Waited 0\.05 s in vain for worker 0 to come to 'the job'"):
        data_service.meet(tmp_path, "the job")
