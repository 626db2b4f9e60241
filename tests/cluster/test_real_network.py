"""A job between two hosts with addresses of their own: slow, far, cut for five seconds, and one host gone.

The hosts are network namespaces, joined by a bridge. That takes root, `ip` and `tc`; where one is missing,
the proxy of `links` stands in, and a warning says so. Delays come from the proxy everywhere: not every kernel
has `netem`.
"""

import ctypes
import os
import shutil
import subprocess
import threading
import time
import warnings

import cluster_jobs as jobs
import numpy as np
import pytest

from course_utils.cluster import ClusterConfig, Link, LocalCluster
from course_utils.errors import ClusterError

LIMIT = 60
NUMBERS = 500_000  # float32: 2 MB
CLONE_NEWNET = 0x40000000


class Namespaces:
    """Two hosts and a switch between them, each a network namespace."""

    def __init__(self):
        self.switch, *self.hosts = (f"course-{os.getpid()}-{name}" for name in ("switch", "a", "b"))
        for name in (self.switch, *self.hosts):
            command("ip netns add", name)
        command(f"ip -n {self.switch} link add br0 type bridge")
        command(f"ip -n {self.switch} link set br0 up")
        for number, host in enumerate(self.hosts):
            command(f"ip -n {self.switch} link add port{number} type veth peer name eth0 netns {host}")
            command(f"ip -n {self.switch} link set port{number} master br0 up")
            command(f"ip -n {host} addr add 10.213.7.{number + 1}/24 dev eth0")
            command(f"ip -n {host} link set eth0 up")
            command(f"ip -n {host} link set lo up")

    def slow_down(self):
        for host in self.hosts:
            command(f"tc -n {host} qdisc add dev eth0 root tbf rate 100mbit burst 32kb latency 50ms")

    def cut(self):
        command(f"ip -n {self.switch} link set port1 down")

    def restore(self):
        command(f"ip -n {self.switch} link set port1 up")

    def run(self, job, *args):
        """What the job returns on worker 0 (host a) and worker 1 (host b)."""
        configs = ClusterConfig(worker=["10.213.7.1:2222", "10.213.7.2:2222"]).tf_configs()
        cluster = LocalCluster(2, output="quiet", timeout=LIMIT, check=False)
        return cluster.run_with(configs, on_host, self.hosts, job, *args)

    def bytes_sent(self):
        """By both hosts, whatever the packet."""
        counter = "/sys/class/net/eth0/statistics/tx_bytes"
        # A namespace has a /sys of its own only for who mounts it there, as `ip netns exec` does.
        return [int(command(f"ip netns exec {host} cat {counter}")) for host in self.hosts]

    def close(self):
        for name in (self.switch, *self.hosts):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Proxied:
    """The same with the proxy, for machines where there are no namespaces."""

    def __init__(self):
        self.link = Link()

    def slow_down(self):
        self.link = Link("100Mbit")

    def cut(self):
        self.link.cut("worker 1")

    def restore(self):
        self.link.restore("worker 1")

    def run(self, job, *args):
        return LocalCluster(2, output="quiet", timeout=LIMIT, link=self.link).run(job, *args)

    def bytes_sent(self):
        ways = ("worker 0", "worker 1"), ("worker 1", "worker 0")
        return [self.link.carried[way] for way in ways]

    def close(self):
        self.link.restore()


def command(*words):
    done = subprocess.run(" ".join(words).split(), capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def on_host(hosts, job, *args):
    """Move this worker to its host, before TensorFlow opens anything, and do the job there."""
    host = hosts[int(jobs.me().split()[1])]
    with open(f"/run/netns/{host}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    return job(*args)


@pytest.fixture
def network():
    found = None
    try:
        if not (shutil.which("ip") and shutil.which("tc") and os.geteuid() == 0):
            raise OSError("root, ip and tc are needed")
        found = Namespaces()
    except (OSError, AttributeError) as error:
        remove_leftovers()
        warnings.warn(f"no network namespaces here, the proxy stands in: {error}", stacklevel=1)
        found = Proxied()
    yield found
    found.close()


def remove_leftovers():
    if shutil.which("ip"):
        for name in ("switch", "a", "b"):
            subprocess.run(["ip", "netns", "del", f"course-{os.getpid()}-{name}"], capture_output=True)


# The jobs ---------------------------------------------------------------------------------------------


def add_up_arrays(steps):
    """The first number of a sum of arrays over both workers, and seconds a step."""
    step = summing(jobs.join())
    step()  # traces and connects
    start = time.monotonic()
    for _ in range(steps):
        total = step()
    return float(total[0]), (time.monotonic() - start) / steps


def summing(strategy):
    import tensorflow as tf

    mine = tf.fill([NUMBERS], strategy.cluster_resolver.task_id + 1.0)

    def on_a_replica(array):
        return tf.distribute.get_replica_context().all_reduce("SUM", array)

    return tf.function(lambda: strategy.run(on_a_replica, args=(mine,)))


def train(steps, pause=None, folder=None):
    """A weight after so many steps; before step `pause` it says that it is there, and waits for the cut."""
    import tensorflow as tf

    strategy = jobs.join()
    with strategy.scope():
        weight = tf.Variable(1.0)
    me = strategy.cluster_resolver.task_id

    @tf.function
    def step():
        def on_a_replica():
            gradient = tf.identity(weight) * (me + 1.0)
            total = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            weight.assign_sub(0.01 * total)

        strategy.run(on_a_replica)

    for number in range(steps):
        if number == pause:
            (folder / f"worker {me} is there").touch()
            wait_for(folder / "cut")
        step()
    return float(weight.numpy())


def wait_for(path):
    end = time.monotonic() + LIMIT / 2
    while not path.exists():
        assert time.monotonic() < end, f"nobody has made {path.name}"
        time.sleep(0.01)


# The tests --------------------------------------------------------------------------------------------


def test_a_normal_job_runs_between_the_hosts_and_its_bytes_cross_the_network(network):
    before = sum(network.bytes_sent())
    results = network.run(add_up_arrays, 2)
    assert [total for total, _ in results] == [3.0, 3.0]
    sent = sum(network.bytes_sent()) - before
    assert 3 * 2 * 4 * NUMBERS < sent < 1.15 * 3 * 2 * 4 * NUMBERS  # with the headers of packets


def test_at_100_megabit_no_step_is_quicker_than_its_bytes(network):
    network.slow_down()
    results = network.run(add_up_arrays, 3)
    assert [total for total, _ in results] == [3.0, 3.0]
    assert max(seconds for _, seconds in results) > 0.9 * 4 * NUMBERS / 12.5e6  # a busy machine adds to it


def test_at_50_milliseconds_no_step_is_quicker_than_its_two_rounds():
    cluster = LocalCluster(2, output="quiet", timeout=LIMIT, link=Link(delay="50ms"))
    results = cluster.run(add_up_arrays, 2)
    assert [total for total, _ in results] == [3.0, 3.0]
    assert max(seconds for _, seconds in results) > 0.1


def test_a_cut_of_five_seconds_only_delays_the_job(network, tmp_path):
    undisturbed = np.float32(1.0)
    for _ in range(20):
        undisturbed -= np.float32(0.01) * (undisturbed * np.float32(3))
    with cable_pulled(network, tmp_path, for_seconds=5.0):
        weights = network.run(train, 20, 10, tmp_path)
    assert weights[0] == weights[1] == pytest.approx(undisturbed, rel=1e-6)


def test_a_host_that_goes_away_ends_the_job_with_an_error_and_no_hang(network, tmp_path):
    with cable_pulled(network, tmp_path, for_seconds=None), pytest.raises(ClusterError) as caught:
        network.run(train, 1_000_000, 10, tmp_path)
    assert "did not finish within" not in str(caught.value)  # TensorFlow noticed it by itself


class cable_pulled:
    """While in it, worker 1's cable is pulled once both workers have said that they are there."""

    def __init__(self, network, folder, for_seconds):
        self.network, self.folder, self.seconds = network, folder, for_seconds
        self.thread = threading.Thread(target=self.pull)

    def pull(self):
        for worker in (0, 1):
            wait_for(self.folder / f"worker {worker} is there")
        self.network.cut()
        (self.folder / "cut").touch()
        if self.seconds:
            time.sleep(self.seconds)
            self.network.restore()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.thread.join()
