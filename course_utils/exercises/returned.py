"""Take what a learner's answer returned and say in plain words when it is not what the exercise needs.

For `observe` functions: `returned.number(answer(x), "compute_loss")`. Each helper returns plain data or
raises `Unusable`, which the check shows as a failed answer with that sentence.
"""

import json
from typing import Any

import numpy as np


class Unusable(Exception):
    """The answer returned something that cannot be looked at further; the text is for the learner."""


def number(value: Any, who: str) -> float | int:
    """A single number, from a number, a scalar array or a scalar tensor."""
    found = array(value, who, wanted="one number")
    if found.shape != ():
        raise Unusable(
            f"{who} should give one number, but gave {describe(value)}. Is a sum or a mean over the "
            "examples missing?"
        )
    return found.item()


def array(value: Any, who: str, shape: tuple | None = None, wanted: str = "") -> np.ndarray:
    """An array of numbers, of the given shape if one is given (None in it: any length)."""
    wanted = wanted or ("an array" if shape is None else f"an array of shape {shape_text(shape)}")
    try:
        found = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except Exception:  # ragged lists, symbolic tensors: whatever NumPy says, the learner needs the kind
        raise Unusable(f"{who} should give {wanted}, but gave {describe(value)}.") from None
    if found.dtype.name == "bfloat16":
        found = found.astype(np.float32)
    if found.dtype.kind not in "iuf":
        raise Unusable(f"{who} should give {wanted}, but gave {describe(value)}.")
    if shape is not None and not _fits(found.shape, shape):
        raise Unusable(f"{who} should give {wanted}, but gave one of shape {shape_text(found.shape)}.")
    return found


def items(value: Any, who: str, length: int | None = None, like: str | None = None) -> list:
    """A list of plain things, from a list, a tuple, an array or a tensor; `like` is an example of it."""
    if isinstance(value, np.ndarray) or hasattr(value, "numpy"):
        value = array(value, who).tolist()
    like = like or str([1, 2, 3] if length is None else [*range(1, length + 1)])
    wanted = (
        "a list" if length is None else "a pair" if like[0] == "(" and length == 2 else f"a list of {length}"
    )
    if not isinstance(value, list | tuple):
        raise Unusable(f"{who} should be {wanted}, such as {like}, but is {describe(value)}.")
    if length is not None and len(value) != length:
        raise Unusable(f"{who} should be {wanted}, but has {len(value)} entries.")
    if any(item is None or item is ... for item in value):
        raise Unusable(f"{who} still has an empty place: every entry needs a value.")
    return list(value)


def text(value: Any, who: str) -> str:
    """A piece of text."""
    if not isinstance(value, str):
        raise Unusable(f"{who} should be text in quotes, but is {describe(value)}.")
    return value


def truth(value: Any, who: str) -> bool:
    """True or False, from a bool or a scalar boolean tensor."""
    found = value.numpy() if hasattr(value, "numpy") else value
    if not isinstance(found, bool | np.bool_):
        raise Unusable(f"{who} should be True or False, but is {describe(value)}.")
    return bool(found)


def mapping(value: Any, who: str) -> dict:
    """A dict."""
    if not isinstance(value, dict):
        raise Unusable(f"{who} should be a dict, but is {describe(value)}.")
    return value


def json_text(value: Any, who: str) -> Any:
    """What a JSON text says, parsed. A dict or `str(dict)` in its place is told apart from damaged JSON."""
    if isinstance(value, dict):
        raise Unusable(f"{who} gave a dict. An environment variable holds text: `json.dumps` makes it.")
    try:
        return json.loads(text(value, who))
    except json.JSONDecodeError as error:
        why = "JSON wants double quotes; `str(dict)` writes single ones" if "'" in value else str(error)
        raise Unusable(f"{who} gave text that is not JSON: {why}.") from None


def describe(value: Any) -> str:
    """What kind of thing it is, for a sentence: "None (is a `return` missing?)", "a tensor of shape (4,)"."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} with {len(value)} entries"
    if type(value).__name__ == "PerReplica":
        return "a PerReplica value: one for each replica, not yet reduced"
    shape = getattr(value, "shape", None)
    if shape is not None:
        kind = "an array" if isinstance(value, np.ndarray | np.generic) else "a tensor"
        return f"{kind} of shape {shape_text(shape)} and type {_type_name(value)}"
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)} itself: it was not called"
    return f"something of type {type(value).__name__}"


def shape_text(shape) -> str:
    """A shape as Python writes it; an unknown length is `any`."""
    lengths = ["any" if n is None else str(n) for n in tuple(shape)]
    return f"({', '.join(lengths)}{',' * (len(lengths) == 1)})"


def _type_name(value):
    return getattr(value.dtype, "name", str(value.dtype))


def _fits(shape, wanted):
    return len(shape) == len(wanted) and all(w in (None, s) for s, w in zip(shape, wanted, strict=True))
