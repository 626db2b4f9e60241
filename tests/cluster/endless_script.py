"""A script as learners write it, without a `__main__` guard: runs a cluster that never ends by itself.

Arguments: the folder in which each worker says that it is up, and how workers are started.
"""

import json
import os
import sys
import threading
from pathlib import Path

import course_utils as cu

folder = Path(sys.argv[1])
with open(folder / "script.runs", "a") as file:
    file.write("once\n")


def train(wait=True):
    import tensorflow as tf

    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    tf.distribute.MultiWorkerMirroredStrategy()
    (folder / f"{task}.part").write_text(json.dumps({"pid": os.getpid(), "config": os.environ["TF_CONFIG"]}))
    (folder / f"{task}.part").rename(folder / f"{task}.up")
    if wait:
        threading.Event().wait()
    return task


cu.LocalCluster(2, output="quiet", start_method=sys.argv[2]).run(train)
