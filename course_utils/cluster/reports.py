"""What a worker tells the notebook while it runs: plain values, over the channel that there is anyway."""

import json

from course_utils.errors import ClusterError

# The other end of this process' channel, if it is a worker; set by `worker`.
caller = None


def report(values: dict) -> None:
    """None; sends plain values to the process that started this worker, whose display shows them.

    Numbers (NumPy's too), texts, and lists and dictionaries of them. Raises ClusterError for anything else.
    Outside a worker it does nothing, so that the same function runs anywhere.
    """
    if caller is not None:
        caller.send("report", _text(values))


def _text(values) -> str:
    # JSON, not a pickle: the notebook must be able to read it, whatever the worker has imported.
    try:
        return json.dumps(values, default=float)
    except (TypeError, ValueError) as error:
        raise ClusterError(
            f"This cannot be reported: {error}.",
            expected="a dictionary of numbers and texts.",
            cure="Turn tensors into numbers first, such as float(loss).",
        ) from None
