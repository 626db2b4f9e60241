"""The helper module of the course: clusters on one machine, exercises, proofs.

`import course_utils as cu` is quick and does not import TensorFlow: a name is loaded when it is used.
"""

import importlib

from course_utils import quiet

# Public name -> the module that defines it. A name of None means the module itself.
_HOME = {
    "LocalCluster": "cluster",
    "ClusterConfig": "cluster",
    "check": "exercises",
    "hint": "exercises",
    "solution": "exercises",
    "progress": "exercises",
    "keras_multiworker": "upstream.keras_multiworker",
    "devices_per_worker": "upstream.devices_per_worker",
    "epoch_end_stall": "upstream.epoch_end_stall",
    "sync_batch_norm_trace": "upstream.sync_batch_norm_trace",
}
_MODULES = {
    "balance",
    "calibration",
    "callbacks",
    "checkpoints",
    "cluster",
    "communication",
    "costmodel",
    "compression",
    "data_service",
    "datasets",
    "devices",
    "errors",
    "exercises",
    "imagenet",
    "models",
    "plots",
    "recipe",
    "schedules",
    "shards",
    "tensorboard",
    "timing",
    "training",
    "upstream",
    "watching",
    "wire",
}

quiet.tensorflow()  # takes no time: it waits for the import

__all__ = sorted(_MODULES | set(_HOME))


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME:
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
        return module if _HOME[name].endswith(f".{name}") else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__


def load_ipython_extension(ipython):
    """`%load_ext course_utils` brings the `%%workers` cell magic."""
    from course_utils.cluster import magic

    magic.register(ipython)
