"""TF_CONFIG: what is built is right, and each known fault is named, with the process and the cure."""

import json

import numpy as np
import pytest

from course_utils.cluster import ClusterConfig, check_tf_configs
from course_utils.errors import ConfigError

HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"]


def text(index=0, kind="worker", cluster=None, **changes):
    config = {"cluster": cluster or {"worker": HOSTS}, "task": {"type": kind, "index": index}}
    return json.dumps(config | changes)


def three(change=None, process=1):
    """Three right configurations, with one process's text replaced."""
    texts = [text(index) for index in range(3)]
    if change is not None:
        texts[process] = change
    return texts


def test_three_workers_that_agree_are_accepted():
    assert check_tf_configs(three()) is None


def test_every_kind_of_task_is_accepted_together():
    config = ClusterConfig(chief=["a:1"], worker=["b:1", "c:1"], ps=["d:1"], evaluator=["e:1"])
    assert [str(t) for t in config.tasks] == ["chief", "worker 0", "worker 1", "ps 0", "evaluator"]
    assert check_tf_configs(config.tf_configs()) is None


def test_the_order_in_which_processes_are_listed_does_not_matter():
    assert check_tf_configs(three()[::-1]) is None


def test_an_evaluator_may_be_missing_in_the_cluster_as_tensorflow_allows():
    assert check_tf_configs([*three(), text(0, "evaluator")]) is None


def test_several_tasks_on_one_machine_need_only_different_ports():
    local = {"worker": ["localhost:1001", "127.0.0.1:1002"]}
    assert check_tf_configs([text(i, cluster=local) for i in (0, 1)]) is None


def changed_cluster(**kinds):
    return text(1, cluster={"worker": HOSTS} | kinds)


SHORT, SWAPPED, PORT = HOSTS[:2], [HOSTS[1], HOSTS[0], HOSTS[2]], [*HOSTS[:2], "10.0.0.3:9999"]

# What is wrong with process 1 of 3 -> words that the sentence must have.
FAULTS = {
    "no TF_CONFIG": (None, ["Process 1", "no TF_CONFIG", "alone"]),
    "empty text": ("  ", ["Process 1", "no TF_CONFIG"]),
    "a dictionary": ({"cluster": {}}, ["process 1", "dict", "json.dumps"]),
    "str(dict)": (str(json.loads(text(1))), ["process 1", "double quotes", "json.dumps", "str("]),
    "broken JSON": (text(1)[:-3], ["process 1", "not JSON", "json.dumps"]),
    "a list": ("[1]", ["process 1", "list", '"cluster"']),
    "no cluster": (json.dumps({"task": {"type": "worker", "index": 1}}), ["process 1", '"cluster"']),
    "empty cluster": (json.dumps({"cluster": {}, "task": {"type": "worker", "index": 1}}), ["{}"]),
    "unknown job": (changed_cluster(workers=HOSTS), ["'workers'", 'Write "worker"']),
    "addresses not a list": (text(1, cluster={"worker": "a:1"}), ["worker addresses", "list"]),
    "address not a text": (text(1, cluster={"worker": [1, 2]}), ["worker 0", "text"]),
    "no port": (
        text(1, cluster={"worker": ["10.0.0.1", "b:1"]}),
        ["process 1 (worker 1)", "worker 0", "'10.0.0.1'", "no port"],
    ),
    "port no number": (
        text(1, cluster={"worker": ["a:http", "b:1"]}),
        ["worker 0", "'http'", "not a number"],
    ),
    "port too large": (text(1, cluster={"worker": ["a:70000", "b:1"]}), ["70000", "65535"]),
    "no host": (text(1, cluster={"worker": [":1", "b:1"]}), ["host"]),
    "protocol": (text(1, cluster={"worker": ["grpc://a:1", "b:1"]}), ["protocol"]),
    "same address twice": (text(1, cluster={"worker": ["a:1", "a:1"]}), ["worker 0 and worker 1", "a:1"]),
    "two chiefs": (changed_cluster(chief=["x:1", "y:1"]), ["2 chiefs", "only one"]),
    "chief counted twice": (changed_cluster(chief=[HOSTS[0]]), ["chief is counted twice", "worker 0"]),
    "localhost among machines": (text(1, cluster={"worker": ["localhost:1", *HOSTS[1:]]}), ["localhost"]),
    "no worker": (text(0, "ps", cluster={"ps": ["a:1"]}), ["no worker"]),
    "no task": (json.dumps({"cluster": {"worker": HOSTS}}), ["process 1", '"task"']),
    "task without type": (text(task={"index": 1}), ["process 1", "type is missing"]),
    "unknown type": (text(1, "master"), ["Process 1", "'master'", 'Write "chief"']),
    "type not in cluster": (text(0, "chief"), ["Process 1", "chief", "lists no chief"]),
    "task without index": (text(task={"type": "worker"}), ["Process 1", "index is missing"]),
    "index as a text": (text("1"), ["Process 1", "'1'", 'Write "index": 1']),
    "index a fraction": (text(1.0), ["Process 1", "whole number"]),
    "index true": (text(True), ["Process 1", "true"]),
    "index out of range": (text(3), ["Process 1", "worker 3", "3 workers", "count from 0"]),
    "index negative": (text(-1), ["Process 1", "worker -1"]),
    "another cluster size": (text(1, cluster={"worker": SHORT}), ["Process 1", "2 workers", "3 workers"]),
    "another order": (text(1, cluster={"worker": SWAPPED}), ["Process 1", "order", "process 0"]),
    "another port": (text(1, cluster={"worker": PORT}), ["worker 2", "10.0.0.3:9999", "10.0.0.3:2222"]),
    "a chief the others do not know": (changed_cluster(chief=["z:1"]), ["1 chief", "no chief"]),
    "comma at the end": (text(1)[:-1] + ",}", ["process 1", "not JSON", "comma before the closing '}'"]),
    "index in words": (text("zero"), ["Process 1", "'zero'", 'such as "index": 0']),
    "index of many digits": (text(1).replace("1}}", "1" * 4000 + "}}"), ["very many digits"]),
    "index of too many digits": (text(1).replace("1}}", "1" * 5000 + "}}"), ["process 1", "too long"]),
    "nested too deep": ("[" * 100_000, ["process 1", "nested too deep"]),
    "a key twice": ('{"cluster": {}, "cluster": {}}', ["process 1", '"cluster" twice']),
    "two colons": (text(1, cluster={"worker": ["127.0.0.1:1:2222"]}), ["worker 0", "more than one colon"]),
    "IPv6 without port": (
        text(1, cluster={"worker": ["::1"]}),
        ["'::1'", "more than one colon", "[::1]:2222"],
    ),
    "brackets around no IPv6": (text(1, cluster={"worker": ["[a]:1"]}), ["[a]", "not an IP address"]),
    "no IP": (text(1, cluster={"worker": ["256.1.1.1:1"]}), ["256.1.1.1", "not an IP address"]),
    "two addresses in one text": (text(1, cluster={"worker": ["a:1,b:1"]}), ["more than one colon"]),
    "comma in the host": (text(1, cluster={"worker": ["a,b:1"]}), ["no proper host"]),
    "user in the host": (text(1, cluster={"worker": ["me@a:1"]}), ["no proper host"]),
    "space in the host": (text(1, cluster={"worker": ["a b:1"]}), ["no proper host"]),
    "zero before the port": (text(1, cluster={"worker": ["a:01"]}), ["port 01", "Write 1."]),
    "port of many digits": (text(1, cluster={"worker": ["a:" + "1" * 5000]}), ["65535"]),
    "one address in two cases": (
        text(1, cluster={"worker": ["Host:1", "host:1"]}),
        ["worker 0 and worker 1 have one address under two names, Host:1 and host:1"],
    ),
    "one address by two names": (
        text(1, cluster={"worker": ["localhost:1", "127.0.0.1:1"]}),
        ["worker 0 and worker 1 have one address under two names, localhost:1 and 127.0.0.1:1"],
    ),
    "chief counted twice in capitals": (
        changed_cluster(worker=["host-a:1", "b:1"], chief=["Host-A:1"]),
        ["chief is counted twice", "worker 0"],
    ),
    "same index twice": (text(0), ["Process 1", "worker 0", "process 0", "worker 1"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_refused_in_words_that_name_it(fault):
    wrong, words = FAULTS[fault]
    texts = three()
    texts[1] = wrong
    with pytest.raises(ConfigError) as caught:
        check_tf_configs(texts)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.expected or caught.value.cure


def test_a_task_that_no_process_is_would_be_waited_for_for_ever():
    with pytest.raises(ConfigError, match=r"Worker 2 is listed at 10\.0\.0\.3:2222, but no process is it"):
        check_tf_configs(three()[:2])


def test_letters_may_be_small_or_capital_and_ipv6_is_known():
    small, capital = {"worker": ["host-a:1", "[fe80::1]:2"]}, {"worker": ["Host-A:1", "[FE80::1]:2"]}
    assert check_tf_configs([text(0, cluster=small), text(1, cluster=capital)]) is None


def test_only_a_python_dictionary_is_called_one():
    with pytest.raises(ConfigError) as caught:
        check_tf_configs([text(0, cluster={"worker": ["a:1"]})[:-1] + ",}"])
    assert "Python dictionary" not in str(caught.value)


@pytest.mark.parametrize(("wrong", "words"), [(5, "an int"), (None, "None"), ({"a": 1}, "a dict")])
def test_something_else_than_a_list_is_refused(wrong, words):
    with pytest.raises(ConfigError, match=f"check_tf_configs got {words}"):
        check_tf_configs(wrong)


def test_texts_may_come_one_by_one():
    with pytest.raises(ConfigError, match="process 1 is not JSON"):
        check_tf_configs(iter([text(0), "x"]))


def test_one_text_instead_of_a_list_is_refused():
    with pytest.raises(ConfigError, match="a list with one text"):
        check_tf_configs(text())


def test_no_process_at_all_is_refused():
    with pytest.raises(ConfigError, match="no process at all"):
        check_tf_configs([])


def test_an_error_survives_the_way_between_processes():
    import pickle

    with pytest.raises(ConfigError) as caught:
        check_tf_configs([None])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.cure == caught.value.cure


def test_tf_config_is_what_tensorflow_documents():
    config = json.loads(ClusterConfig(worker=HOSTS).tf_config("worker", 1))
    assert config == {"cluster": {"worker": HOSTS}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        *[("worker", wrong) for wrong in (3, -1, "0", 1.0, None, True, np.ones(2, int))],
        *[(wrong, 0) for wrong in ("chief", ["worker"], None, "items")],
    ],
)
def test_a_task_that_the_cluster_does_not_have_has_no_tf_config(kind, index):
    with pytest.raises(ConfigError):
        ClusterConfig(worker=HOSTS).tf_config(kind, index)


def test_an_index_too_long_for_python_to_write_is_refused_in_words():
    with pytest.raises(ConfigError, match="a number of very many digits"):
        ClusterConfig(worker=HOSTS).tf_config("worker", 10**5000)


def test_an_index_may_be_an_integer_of_numpy():
    config = ClusterConfig(worker=HOSTS)
    assert config.tf_config("worker", np.int64(1)) == config.tf_config("worker", 1)


def test_a_cluster_without_tasks_has_no_tf_config():
    with pytest.raises(ConfigError, match="no task at all"):
        ClusterConfig().tf_config("worker", 0)


@pytest.mark.parametrize("wrong", [None, 5, b"a:1", {"a:1"}, {"a:1": 1}, [1], [b"a:1"], ["a:1", None]])
def test_addresses_that_are_no_list_of_texts_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"ClusterConfig\(worker=…\) got"):
        ClusterConfig(worker=wrong)


def test_the_chief_leads_and_without_one_worker_0():
    assert str(ClusterConfig(worker=HOSTS).leader) == "worker 0"
    assert str(ClusterConfig(worker=HOSTS[1:], chief=HOSTS[:1]).leader) == "chief"


def test_explain_says_of_each_task_where_it_listens_and_what_it_does():
    lines = ClusterConfig(worker=HOSTS[1:], chief=HOSTS[:1]).explain().splitlines()
    assert [line.split()[0] for line in lines] == ["task", "chief", "worker", "worker"]
    assert "10.0.0.1:2222" in lines[1] and "leads" in lines[1] and "leads" not in lines[2]


def test_a_cluster_without_tasks_does_not_pass_its_check():
    with pytest.raises(ConfigError, match="no task"):
        ClusterConfig().check()


def test_addresses_given_as_one_text_are_refused_with_the_list_to_write():
    with pytest.raises(ConfigError, match=r'worker=\["a:1"\]'):
        ClusterConfig(worker="a:1")


def test_a_text_can_be_read_back():
    config = ClusterConfig(worker=HOSTS[1:], chief=HOSTS[:1])
    assert ClusterConfig.from_tf_config(config.tf_config("worker", 0)) == config


def test_configurations_are_checked_without_tensorflow():
    import subprocess
    import sys

    code = (
        "import sys, course_utils as cu; cu.cluster.check_tf_configs;"
        "cu.LocalCluster(2); print('tensorflow' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "False"
