"""Functions that the tests run on workers, small enough for many clusters on two cores."""

import json
import os
import signal
import sys
import time


def me() -> str:
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return f"{task['type']} {task['index']}"


def join():
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


def add_up(strategy, steps=1):
    """The sum over all replicas of their numbers counted from 1."""
    import tensorflow as tf

    @tf.function
    def step():
        def on_each_replica():
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
            return context.all_reduce("sum", number)

        return strategy.run(on_each_replica)

    for _ in range(steps):
        total = step()
    return float(strategy.experimental_local_results(total)[0])


def join_and_add_up():
    return me(), add_up(join())


def say(text):
    print(text)
    print("to stderr", file=sys.stderr)
    os.write(1, b"from below Python\n")
    os.write(1, b"without an end")


def fail_in(name, how):
    """Join, take a step, then fail in one worker while the others go on."""
    strategy = join()
    add_up(strategy)
    if me() == name:
        how()
    add_up(strategy, steps=1_000_000)


def raise_mine():
    raise ValueError("my own mistake")


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


def stop_myself():
    os.kill(os.getpid(), signal.SIGSTOP)


def exit_from_below():
    os._exit(3)


def exit_properly():
    sys.exit(4)


def return_early(name):
    strategy = join()
    add_up(strategy)
    if me() != name:
        add_up(strategy)
    return me()


def read_metric_alone(name):
    import keras

    strategy = join()
    with strategy.scope():
        mean = keras.metrics.Mean()
    strategy.run(lambda: mean.update_state(1.0))
    if me() == name:
        return float(mean.result())


def join_unless(name):
    if me() != name:
        join()


def sleep_in(name):
    strategy = join()
    add_up(strategy)
    if me() == name:
        time.sleep(600)
    add_up(strategy)


def sleep_before_joining(name):
    if me() == name:
        time.sleep(600)
    join()


def compute_first():
    import tensorflow as tf

    tf.ones(3)
    join()


def remove_tf_config():
    del os.environ["TF_CONFIG"]
    join()


def set_tf_config_afterwards():
    text = os.environ.pop("TF_CONFIG")
    join()
    os.environ["TF_CONFIG"] = text


def all_say_worker_0():
    config = json.loads(os.environ["TF_CONFIG"])
    config["task"]["index"] = 0
    os.environ["TF_CONFIG"] = json.dumps(config)
    join()


def start_grandchildren(file):
    """One child in our group, one in a session of its own that we leave behind."""
    import subprocess

    ordinary = subprocess.Popen(["sleep", "600"])
    script = (
        "import subprocess; null = subprocess.DEVNULL;"
        "print(subprocess.Popen(['sleep', '600'], stdout=null, stderr=null, start_new_session=True).pid)"
    )
    stray = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    with open(f"{file}-{me()}", "w") as out:
        out.write(f"{ordinary.pid} {stray.stdout.strip()}")
