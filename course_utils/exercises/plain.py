"""Plain data: all that may pass from an observed answer to its judge.

Numbers, strings, booleans, None, lists, dicts with string keys, NumPy arrays of numbers; of limited depth and
size. It travels as JSON (`encode`, `decode`), so that a judge in another process never unpickles anything.
"""

import json
from typing import Any

import numpy as np
from numpy import asarray, float32, generic, ndarray  # bound here: an answer may change NumPy's

MAX_DEPTH = 8
MAX_ITEMS = 20_000
MAX_TEXT = 20_000
ARRAY = "__array__"


class NotPlain(Exception):
    """Something came back that is not plain data, or too much of it; `str(error)` says which, as a "
    "sentence."""


def plain(value: Any) -> Any:
    """`value` as plain data: tensors and NumPy scalars converted, tuples as lists. Raises NotPlain."""
    budget = [MAX_ITEMS]
    return _plain(value, MAX_DEPTH, budget)


def encode(value: Any) -> str:
    """Plain data as JSON text."""
    return json.dumps(plain(value), default=array_as_json)


def array_as_json(array: np.ndarray) -> dict:
    """An array as JSON data, for an encoder."""
    return {ARRAY: array.dtype.name, "shape": list(array.shape), "data": array.ravel().tolist()}


def decode(text: str) -> Any:
    """What `encode` wrote, validated anew: the text may come from a hostile process. Raises NotPlain."""
    if len(text) > 60 * MAX_ITEMS:
        raise NotPlain("Too much came back.")
    try:
        return plain(json.loads(text, object_hook=_array_from_json))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NotPlain(f"What came back is damaged ({type(error).__name__}).") from None


def same(left: Any, right: Any, tolerance: float = 1e-5) -> bool:
    """Whether two plain values are equal: numbers within `tolerance` of the largest in `right`, NaN like "
    "NaN."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k], tolerance) for k in left)
    if is_numeric(left) and is_numeric(right):
        return _same_numbers(np.asarray(left), np.asarray(right), tolerance)
    if isinstance(left, list | np.ndarray) and isinstance(right, list | np.ndarray):
        return len(left) == len(right) and all(
            same(a, b, tolerance) for a, b in zip(left, right, strict=True)
        )
    return type(left) is type(right) and left == right


def is_numeric(value: Any) -> bool:
    """Whether it is a number, an array of numbers, or a regular nest of lists of numbers (no booleans)."""
    if isinstance(value, bool | str | dict | None):
        return False
    if isinstance(value, list) and not all(is_numeric(item) for item in value):
        return False
    try:
        return np.asarray(value).dtype.kind in "iuf"
    except ValueError:  # lists of unequal length
        return False


def _same_numbers(left, right, tolerance):
    if left.shape != right.shape:
        return False
    finite = np.abs(right[np.isfinite(right)])
    scale = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    return bool(np.allclose(left, right, rtol=0, atol=tolerance * scale, equal_nan=True))


def _plain(value, depth, budget):
    budget[0] -= 1
    if depth < 0 or budget[0] < 0:
        raise NotPlain("More came back than an answer to this exercise can need.")
    if value is None or isinstance(value, bool | int | float):
        return _small(value)
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, dict):
        return {_short(_key(key)): _plain(item, depth - 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1, budget) for item in value]
    return _from_array(value, budget)


def _from_array(value, budget):
    if not isinstance(value, ndarray | generic) and not callable(getattr(value, "numpy", None)):
        raise NotPlain(
            f"Something of type {type(value).__name__} came back; the exercise needs numbers, text or "
            "lists of them."
        )
    array = asarray(value if isinstance(value, ndarray | generic) else value.numpy())
    if array.dtype.kind not in "biufSU" and array.dtype.name not in ("bfloat16", "object"):
        raise NotPlain(f"An array of {array.dtype.name} came back; the exercise needs one of numbers.")
    budget[0] -= array.size
    if budget[0] < 0:
        raise NotPlain(f"An array of {array.size:,} numbers came back, more than this exercise can need.")
    if array.dtype.name == "bfloat16":
        array = array.astype(float32)
    if array.ndim == 0 or array.dtype.kind in "SUO":
        return _plain(_text(array.tolist()), MAX_DEPTH, budget)
    return array


def _text(value):
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _key(key):
    if not isinstance(key, str | int):
        raise NotPlain(f"A dict came back with a {type(key).__name__} as a key; the exercise needs text.")
    return str(key)


def _short(text):
    if len(text) > MAX_TEXT:
        raise NotPlain(f"A text of {len(text):,} characters came back, more than this exercise can need.")
    return str(text)


def _small(value):
    """Integers and floats of Python's own kind; no subclass travels, and no integer that fills the memory."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > 128:
            raise NotPlain("An integer of more than 128 bits came back.")
        return int(value)
    return float(value)


def _array_from_json(parsed):
    if ARRAY not in parsed:
        return parsed
    if not isinstance(parsed[ARRAY], str) or np.dtype(parsed[ARRAY]).kind not in "biuf":
        raise ValueError("no array of numbers")
    return np.array(parsed["data"], parsed[ARRAY]).reshape(parsed["shape"])
