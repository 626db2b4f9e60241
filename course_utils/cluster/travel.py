"""What travels between caller and worker: functions out, results back, by cloudpickle.

A notebook's functions do not pickle by name, so they go by value. What cannot travel is named.
"""

import inspect
import io
import pickle
import types

import cloudpickle

from course_utils.cluster.words import a_type
from course_utils.errors import ClusterError


def pack_call(function, args: tuple, kwargs: dict) -> bytes:
    """The call as bytes; ClusterError that names the culprit when a part of it cannot leave this process."""
    try:
        return _pack(_CallPickler, (function, args, kwargs))
    except Exception as error:
        raise _cannot_leave(function, args, kwargs, error) from error


def pack_variable(name: str, value) -> bytes:
    """A variable that `%%workers` pushes as bytes; ClusterError when it cannot leave this process."""
    try:
        return _pack(_CallPickler, value)
    except Exception as error:
        raise ClusterError(
            f"--push {name}: {a_type(value)} cannot be sent to the workers: {_first_line(error)}.",
            cure="Make it in the cell, or push NumPy arrays and plain values.",
        ) from None


def pack_result(result, who: str) -> bytes:
    """A worker's result as bytes, tensors as NumPy arrays: the caller needs no device to read it.

    `who` begins the sentence when it cannot travel: "Worker 0 returned".
    """
    try:
        return _pack(_ResultPickler, result)
    except Exception as error:
        raise ClusterError(
            f"{who} {a_type(result)}, which cannot travel between processes: {_first_line(error)}.",
            cure=_PLAIN_VALUES,
        ) from None


def unpack_result(data: bytes, task: str):
    """What a worker returned."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise ClusterError(
            f"What {task} returned cannot be put together again in this process: {_first_line(error)}.",
            cure=_PLAIN_VALUES,
        ) from error


_PLAIN_VALUES = "Bring back numbers, texts, NumPy arrays, or lists and dictionaries of them."


def _pack(pickler: type, value) -> bytes:
    buffer = io.BytesIO()
    pickler(buffer).dump(value)
    return buffer.getvalue()


def _code_with_its_file(code: types.CodeType):
    """cloudpickle 3.1.3 forgets the file of a function; tracebacks and AutoGraph need it for the source."""
    make, parts = cloudpickle.CloudPickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if part == "<dynamic-code>" else part for part in parts)


class _CallPickler(cloudpickle.CloudPickler):
    dispatch_table = {  # noqa: RUF012 (a class attribute by the protocol of pickle)
        **cloudpickle.CloudPickler.dispatch_table,
        types.CodeType: _code_with_its_file,
    }


class _ResultPickler(_CallPickler):
    def reducer_override(self, obj):
        values = _plain(obj)
        return super().reducer_override(obj) if values is None else values


def _plain(obj):
    """How to rebuild a tensor-like object from NumPy arrays; None if it is something else."""
    if type(obj).__module__.split(".")[0] not in ("tensorflow", "keras"):
        return None
    import tensorflow as tf

    if isinstance(obj, tf.distribute.DistributedValues) and not isinstance(obj, tf.Variable):
        return tuple, ([_array(value) for value in obj.values],)
    if isinstance(obj, (tf.Tensor, tf.Variable)) or type(obj).__name__ == "Variable":
        return _same, (_array(obj),)
    return None


def _array(value):
    return value.numpy() if hasattr(value, "numpy") else value


def _same(value):
    return value


def _cannot_leave(function, args: tuple, kwargs: dict, error: Exception) -> ClusterError:
    name = getattr(function, "__name__", repr(function))
    return ClusterError(
        f"{_culprit(function, args, kwargs) or name} cannot be sent to the workers: {_first_line(error)}.",
        cure=f"Make it inside {name}, or pass NumPy arrays and plain values.",
    )


def _culprit(function, args: tuple, kwargs: dict) -> str:
    parts = {f"argument {number + 1}": value for number, value in enumerate(args)}
    parts |= {f"argument {name!r}": value for name, value in kwargs.items()}
    if inspect.isfunction(inspect.unwrap(function)):
        used = inspect.getclosurevars(inspect.unwrap(function))
        parts |= {f"the variable {name!r}": value for name, value in (used.globals | used.nonlocals).items()}
    for name, value in parts.items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            label = f"{name} of {getattr(function, '__name__', 'the function')} ({a_type(value)})"
            return label[0].upper() + label[1:]
    return ""


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
