"""Links: bytes pass unchanged, counted, not before they are due, and not at all over a cut cable."""

import contextlib
import json
import pickle
import socket
import threading
import time

import cluster_jobs as jobs
import pytest
from pytest import approx

from course_utils.cluster import ClusterConfig, Link, LocalCluster, WorkerDied, links
from course_utils.errors import ConfigError

MBIT_100 = 12_500_000  # bytes a second
LIMIT = 20  # seconds for anything to arrive on a busy machine
QUIET = {"output": "quiet", "timeout": 60}


@pytest.mark.parametrize(
    "text, bytes_per_second",
    [("100Mbit", MBIT_100), ("100 Mbit/s", MBIT_100), ("1.5gbit", 187_500_000), ("56kbit", 7000)],
)
def test_a_bandwidth_is_bits_a_second(text, bytes_per_second):
    assert Link(text).bytes_per_second == bytes_per_second


@pytest.mark.parametrize("wrong", ["100MB", "100Mbps", "fast", "", "0Mbit", "-1Mbit", 100])
def test_what_is_no_bandwidth_is_refused(wrong):
    with pytest.raises(ConfigError, match="a byte is 8 bits"):
        Link(wrong)


def test_a_delay_is_a_text_with_a_unit():
    assert [Link(delay=text).delay_seconds for text in ("50ms", "0.1s", "10 us")] == approx([0.05, 0.1, 1e-5])
    for wrong in ("50", 50, "a while", "-5ms"):
        with pytest.raises(ConfigError, match="no time"):
            Link(delay=wrong)


def test_a_link_says_how_long_bytes_take():
    assert Link("100Mbit", "50ms").seconds(MBIT_100) == 1.05
    assert Link().seconds(10**12) == 0


def test_a_link_does_not_travel_to_a_worker():
    with pytest.raises(TypeError, match="stays with the notebook"):
        pickle.dumps(Link("1Gbit"))


def test_a_cluster_takes_links_only():
    with pytest.raises(ConfigError, match="Link"):
        LocalCluster(2, link="100Mbit")


# The schedule -----------------------------------------------------------------------------------------


def ways(link, *pairs):
    proxy = links._Proxy(link)
    return [proxy._way(source, target) for source, target in pairs]


def test_bytes_over_time_are_the_bandwidth_however_they_are_cut():
    for piece in (1, 1000, 62_500):
        (way,) = ways(Link("100Mbit"), ("a", "b"))
        arrivals = [way.due(7.0, piece) for _ in range(200)]
        assert 200 * piece / (arrivals[-1] - 7.0) == approx(MBIT_100, rel=1e-6)


def test_who_was_silent_has_saved_nothing_up():
    (way,) = ways(Link("100Mbit"), ("a", "b"))
    way.due(0.0, 1000)
    assert way.due(100.0, MBIT_100) == approx(101.0)


def test_a_proxy_that_falls_behind_catches_up():
    (way,) = ways(Link("100Mbit"), ("a", "b"))
    on_time = [way.due(0.1 * i, MBIT_100 // 20) for i in range(10)]
    (way,) = ways(Link("100Mbit"), ("a", "b"))
    late = [way.due(0.1 * i + 0.09 * (i == 4), MBIT_100 // 20) for i in range(10)]
    assert late[4] > on_time[4] and late[5] > on_time[5] and late[6:] == approx(on_time[6:])


def test_a_delay_postpones_and_takes_no_bandwidth():
    (way,) = ways(Link("100Mbit", "50ms"), ("a", "b"))
    arrivals = [way.due(0.0, 12_500) for _ in range(1000)]
    assert arrivals[0] == approx(0.051) and arrivals[-1] == approx(1.05)


def test_two_senders_to_one_target_share_its_cable():
    from_a, from_b = ways(Link("100Mbit"), ("a", "c"), ("b", "c"))
    arrivals = [way.due(0.0, 12_500) for _ in range(500) for way in (from_a, from_b)]
    assert arrivals[-1] == approx(1.0)


def test_one_sender_to_two_targets_shares_its_own_cable():
    to_b, to_c = ways(Link("100Mbit"), ("a", "b"), ("a", "c"))
    arrivals = [way.due(0.0, 12_500) for _ in range(500) for way in (to_b, to_c)]
    assert arrivals[-1] == approx(1.0)


def test_both_directions_and_other_pairs_have_cables_of_their_own():
    four = ways(Link("100Mbit"), ("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"))
    assert [way.due(0.0, MBIT_100) for way in four] == approx([1.0] * 4)


# The proxy, with plain sockets ------------------------------------------------------------------------


@contextlib.contextmanager
def joined(link):
    """A connection that worker 0 has opened to worker 1 through the link: both its ends."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        server.settimeout(LIMIT)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        configs = ClusterConfig(worker=["127.0.0.1:1", address]).tf_configs()
        texts = stack.enter_context(link.between(configs))
        proxy = json.loads(texts[0])["cluster"]["worker"][1]
        ours = stack.enter_context(socket.create_connection(("127.0.0.1", int(proxy.split(":")[1])), LIMIT))
        theirs = stack.enter_context(server.accept()[0])
        theirs.settimeout(LIMIT)
        yield ours, theirs


def send_all(sender, data):
    def send():
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()


def all_of(receiver):
    parts = []
    while part := receiver.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


DATA = bytes(range(256)) * 4000  # about a megabyte


def test_bytes_pass_unchanged_both_ways_and_are_counted():
    link = Link("200Mbit", "1ms")
    with joined(link) as (ours, theirs):
        send_all(ours, DATA)
        send_all(theirs, DATA[::-1])
        assert all_of(theirs) == DATA and all_of(ours) == DATA[::-1]  # the end passes too, each way by itself
    assert link.carried == {("worker 0", "worker 1"): len(DATA), ("worker 1", "worker 0"): len(DATA)}


def test_nothing_arrives_before_it_is_due():
    link = Link("20Mbit", "100ms")
    with joined(link) as (ours, theirs):
        start = time.monotonic()
        send_all(ours, DATA)
        assert all_of(theirs) == DATA
        assert time.monotonic() - start >= link.seconds(len(DATA))  # a busy machine only adds to it


def test_a_cut_cable_holds_everything_back_until_it_is_restored():
    link = Link()
    with joined(link) as (ours, theirs):
        ours.sendall(b"before")
        assert theirs.recv(6) == b"before"
        link.cut("worker 1")
        send_all(ours, DATA)
        theirs.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.recv(1)
        theirs.settimeout(LIMIT)
        link.restore("worker 1")
        assert all_of(theirs) == DATA


def test_the_end_of_a_connection_does_not_pass_a_cut_cable():
    link = Link()
    with joined(link) as (ours, theirs):
        link.cut()
        ours.close()
        theirs.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.recv(1)
        theirs.settimeout(LIMIT)
        link.restore()
        assert theirs.recv(1) == b""


def test_a_run_that_ends_while_a_cable_is_cut_leaves_no_thread_and_no_complaint(caplog):
    link = Link()
    with joined(link) as (ours, theirs):
        ours.sendall(b"before")
        assert theirs.recv(6) == b"before"
        link.cut()
        ours.sendall(DATA)
    assert not serving() and not caplog.records


def test_one_cable_is_cut_and_the_others_go_on():
    link = Link()
    link.cut("worker 2")
    assert link.passes("worker 0", "worker 1")
    assert not link.passes("worker 0", "worker 2") and not link.passes("worker 2", "worker 1")
    link.cut()
    assert not link.passes("worker 0", "worker 1")
    link.restore()
    assert link.passes("worker 2", "worker 1")


@pytest.mark.parametrize("wrong", ["wroker 9", "xx", "", 1])
def test_what_is_no_task_cannot_be_cut_or_restored(wrong):
    for act in (Link().cut, Link().restore):
        with pytest.raises(ConfigError, match="no task's name"):
            act(wrong)


def test_a_task_that_the_cluster_does_not_have_is_refused():
    link, configs = Link(), ClusterConfig(["127.0.0.1:9", "127.0.0.1:10"]).tf_configs()
    with link.between(configs), pytest.raises(ConfigError, match=r"no worker 2 .*one of worker 0, worker 1"):
        link.cut("worker 2")
    early = Link()
    early.cut("worker 2")
    with pytest.raises(ConfigError, match="no worker 2"), early.between(configs):
        pass
    assert not serving()


def test_of_all_cables_that_were_cut_one_can_be_restored():
    link, configs = Link(), ClusterConfig([f"127.0.0.1:{n}" for n in (9, 10, 11)]).tf_configs()
    link.cut()
    with pytest.raises(ConfigError, match="before a cluster runs"):
        link.restore("worker 1")
    with link.between(configs):
        link.restore("worker 1")
        assert not link.passes("worker 0", "worker 1")
        link.restore("worker 0")
        assert link.passes("worker 0", "worker 1") and not link.passes("worker 1", "worker 2")


def test_a_target_that_does_not_read_makes_the_sender_wait():
    with joined(Link()) as (ours, _):
        ours.settimeout(1.0)
        with pytest.raises(TimeoutError):
            while True:  # until every buffer on the way is full
                ours.sendall(bytes(1 << 20))


def test_a_target_that_is_gone_ends_the_connection():
    with joined(Link()) as (ours, theirs):
        theirs.close()
        assert ours.recv(1) == b""


# A cluster --------------------------------------------------------------------------------------------


def serving():
    return [thread for thread in threading.enumerate() if thread.name == "links"]


def addresses_and_sum(numbers):
    """What TF_CONFIG says of the cluster, and the first number of a sum over all workers."""
    import os

    import tensorflow as tf

    strategy = jobs.join()

    @tf.function
    def step():
        mine = tf.fill([numbers], strategy.cluster_resolver.task_id + 1.0)
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(mine)),
        )

    total = step()
    jobs.add_up(strategy)  # nobody leaves while another still reads from it
    return json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"], float(total[0])


def test_workers_add_up_over_the_link_and_send_what_a_ring_sends():
    numbers, link = 300_000, Link("1Gbit", "1ms")
    cluster = LocalCluster(3, link=link, **QUIET)
    results = cluster.run(addresses_and_sum, numbers)
    assert [total for _, total in results] == [6.0] * 3
    assert not serving()
    on_the_ring = 2 * (3 - 1) / 3 * 4 * numbers
    for worker in range(3):
        sent = sum(n for (source, _), n in link.carried.items() if source == f"worker {worker}")
        assert on_the_ring <= sent < 1.05 * on_the_ring
    seen = [addresses for addresses, _ in results]
    own = [seen[i][i] for i in range(3)]
    assert not {address for row in seen for address in row if address not in own} & set(own)
    assert len({address for row in seen for address in row}) == 3 + 3 * 2  # six ways, a port each
    for address in {address for row in seen for address in row}:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(address.split(":")[1])))


def test_a_worker_that_dies_behind_the_link_ends_the_run_as_ever():
    cluster = LocalCluster(2, link=Link("1Gbit", "1ms"), **QUIET)
    with pytest.raises(WorkerDied, match="Worker 1"):
        cluster.run(jobs.fail_in, "worker 1", jobs.kill_myself)
    assert not serving()


def test_a_configuration_that_a_function_spoils_is_named_as_without_a_link():
    with pytest.raises(ConfigError, match="Process 1 says it is worker 0"):
        LocalCluster(2, link=Link(), **QUIET).run(jobs.all_say_worker_0)


def test_an_outage_in_the_middle_delays_a_job_and_changes_nothing_else(tmp_path):
    link, passed = Link(), []

    def pull_the_cable():
        wait_for(tmp_path / "ready to be cut")
        link.cut("worker 1")
        (tmp_path / "cut").touch()
        time.sleep(0.2)  # what left before has arrived
        for _ in range(2):
            passed.append(link.carried.total())
            time.sleep(0.3)
        link.restore("worker 1")

    puller = threading.Thread(target=pull_the_cable)
    puller.start()
    try:
        sums = LocalCluster(2, link=link, **QUIET).run(add_up_before_and_after, tmp_path)
    finally:
        puller.join()
    assert sums == [[3.0, 3.0], [3.0, 3.0]]
    assert passed[0] == passed[1] < link.carried.total()


def add_up_before_and_after(folder):
    strategy = jobs.join()
    before = jobs.add_up(strategy)
    (folder / "ready to be cut").touch()
    wait_for(folder / "cut")
    return [before, jobs.add_up(strategy)]


def wait_for(path):
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < end, f"nobody has made {path.name}"
        time.sleep(0.01)
