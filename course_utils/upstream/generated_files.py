"""AutoGraph's generated files: in a worker's own folder, so that a killed worker leaves none behind.

`tf.function` writes the code that it makes of a Python function to a temporary file, and removes that when
the program exits. A worker of a cluster never exits, it is ended; thousands of such files gathered. Not
reported, as far as we know. Seen in TensorFlow 2.21.0. Cure: its loader gets a `tempfile` that writes to the
folder of the run, which goes with it. Where a version has none, nothing is changed; nothing depends on it.
"""

import functools
import importlib
import os
import tempfile
import types


def keep_in(folder: str | os.PathLike) -> bool:
    """Whether this process from now on writes its generated code to `folder`. TensorFlow is imported."""
    loader = importlib.import_module("tensorflow.python.autograph.pyct.loader")
    if not hasattr(loader, "tempfile"):
        return False
    write = functools.partial(tempfile.NamedTemporaryFile, dir=os.fspath(folder))
    loader.tempfile = types.SimpleNamespace(NamedTemporaryFile=write)
    return True
