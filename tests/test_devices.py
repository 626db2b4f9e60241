"""Devices: what `simulate` and `mirrored` give, and what they refuse."""

import json
import subprocess
import sys

import pytest

from course_utils import devices
from course_utils.errors import DeviceError

GROWS_THEN_REFUSES = """
first = devices.simulate(2)
more = devices.simulate(4)          # TensorFlow has not started: still possible
devices.mirrored(4)                 # this starts it
again, fewer = devices.simulate(4), devices.simulate(3)
say(first=first, more=more, again=again, fewer=fewer, refused=refusal(8))
"""

COMPARES_REPLICA_COUNTS = """
import tensorflow as tf
devices.simulate(4)
sums = {}
for n in (1, 2, 4, 2):
    strategy = devices.mirrored(n)
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def step():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", weight * 1.0))

    sums[n] = [float(value) for value in strategy.experimental_local_results(step())]
say(sums=sums)
"""

NAMES_PLACES = """
import keras, tensorflow as tf
devices.simulate(2)
central = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
found = {}
for name, strategy in (("mirrored", devices.mirrored(2)), ("central", central)):
    with strategy.scope():
        of_keras, of_tensorflow = keras.Variable([1.0]), tf.Variable(1.0)
    found[name] = [devices.places(strategy, variable) for variable in (of_keras, of_tensorflow)]
say(**found)
"""

STARTS_TOO_EARLY = """
import tensorflow as tf
tf.constant(1.0) + 1.0
say(one=devices.simulate(1), refused=refusal(2))
"""


def in_new_process(code):
    """What `code` says in a process of its own, since TensorFlow's devices are fixed once it has started."""
    prelude = """
import json
from course_utils import devices
from course_utils.errors import DeviceError
def say(**facts):
    print("SAID", json.dumps(facts))
def refusal(n):
    try:
        devices.simulate(n)
    except DeviceError as error:
        return vars(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("SAID ")[2])


def test_simulate_gives_names_for_a_strategy_and_may_be_called_again():
    said = in_new_process(GROWS_THEN_REFUSES)
    assert said["first"] == ["CPU:0", "CPU:1"]
    assert said["more"] == said["again"] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert said["fewer"] == ["CPU:0", "CPU:1", "CPU:2"]
    assert "has 4 devices" in said["refused"]["seen"] and "8 were asked for" in said["refused"]["seen"]


def test_places_tell_who_holds_a_variable_and_who_computes():
    said = in_new_process(NAMES_PLACES)
    assert said["mirrored"] == [{"CPU:0": [True, True], "CPU:1": [True, True]}] * 2
    assert said["central"] == [{"CPU:0": [True, True], "CPU:1": [False, True]}] * 2


def test_one_two_and_four_replicas_compare_in_one_process():
    said = in_new_process(COMPARES_REPLICA_COUNTS)
    assert said["sums"] == {"1": [1], "2": [2, 2], "4": [4, 4, 4, 4]}


def test_too_late_is_an_error_with_the_cure():
    said = in_new_process(STARTS_TOO_EARLY)
    assert said["one"] == ["CPU:0"]
    assert "Restart the kernel" in said["refused"]["cure"] and "simulate(2)" in said["refused"]["cure"]


@pytest.mark.parametrize("n", [0, -1, 65, 10**9, "2", 2.0, True, None, [4]])
def test_a_number_that_makes_no_sense_is_refused(n):
    for ask in (devices.simulate, devices.mirrored):
        with pytest.raises(DeviceError, match="devices were asked for") as caught:
            ask(n)
        assert "1 to 64" in caught.value.expected


def test_gpus_are_used_where_there_are_enough(monkeypatch):
    monkeypatch.setattr(devices.tf.config, "list_physical_devices", lambda kind: [object()] * 2)
    assert devices.simulate(2) == ["GPU:0", "GPU:1"]


def test_virtual_cpus_are_used_where_gpus_are_too_few(monkeypatch):
    real = devices.tf.config.list_physical_devices
    monkeypatch.setattr(
        devices.tf.config,
        "list_physical_devices",
        lambda kind=None: [object()] if kind == "GPU" else real(kind),
    )
    assert devices.simulate(2) == ["CPU:0", "CPU:1"]
