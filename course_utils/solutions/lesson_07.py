"""The references of lesson 07."""

import json


def make_tf_config(hosts, type, index):
    return json.dumps({"cluster": hosts, "task": {"type": type, "index": index}})


def is_chief(tf_config):
    if not tf_config:
        return True
    config = json.loads(tf_config)
    task = config["task"]
    if "chief" in config["cluster"]:
        return task["type"] == "chief"
    return task["type"] == "worker" and task["index"] == 0


diagnosis = {
    "A": "another order of addresses",
    "B": "TF_CONFIG set after the strategy",
    "C": "a worker was never started",
    "D": "same index twice",
    "E": "str(config) instead of JSON",
    "F": "chief counted twice",
}
