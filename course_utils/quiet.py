"""TensorFlow without the red lines that it writes on every import.

Its C++ part reports each GPU library that it does not find before its own logging is set up, past every log
level: the reader of a notebook sees a red block and wonders what is broken. What is written while TensorFlow
is imported is held back, and shown only when the import fails.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import tempfile

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # 0 everything, 1 no notes, 2 no warnings, 3 no errors


def tensorflow() -> None:
    """Make the next import of TensorFlow quiet, unless it is imported or a log level asks for more."""
    level = os.environ.setdefault(_LEVEL, "3")  # "no GPU" is logged as an error
    if level == "3" and "tensorflow" not in sys.modules:  # a child process inherits our 3
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, real):
        self._real = real

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._real  # as if we had never been here
        with _stderr_held_back():
            self._real.exec_module(module)


@contextlib.contextmanager
def _stderr_held_back():
    """Catches what C++ code writes to file descriptor 2; gives it out when the block raises."""
    with tempfile.TemporaryFile() as held, contextlib.ExitStack() as stack:
        shown = os.dup(2)
        stack.callback(os.close, shown)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(shown, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(shown, 2)
