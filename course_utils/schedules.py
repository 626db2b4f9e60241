"""Learning rates: how large for which batch, and how they change while a model is trained.

`linear_scaling` says how large the rate may be for a global batch; `WarmupCosine` gets there and back again.
Both are what large batches are trained with: a rate that grows with the batch is too much for a model that
has not learned anything yet, so it is reached in small steps.

Sources: Goyal et al., Accurate, large minibatch SGD: training ImageNet in 1 hour, arXiv:1706.02677 (linear
scaling and gradual warm-up, sections 2.1 and 2.2); Loshchilov and Hutter, SGDR: stochastic gradient descent
with warm restarts, arXiv:1608.03983 (the cosine, equation 5).
"""

from __future__ import annotations

import math
import numbers
import operator

import keras
from keras import ops

from course_utils.errors import ScheduleError


def linear_scaling(base_rate: float, global_batch: int, base_batch: int = 256) -> float:
    """The learning rate for a *global* batch, when `base_rate` is right for `base_batch`.

    The rate per example stays: k times the batch makes k times fewer updates an epoch, and k times the rate
    lets each go k times as far. A rule of thumb for SGD, which ends to hold at some batch (for ResNet-50 on
    ImageNet at about 8,192).

    Raises ScheduleError when one of the three is not a number above 0. Source: Goyal et al., section 2.1.
    """
    for name, value in (("rate", base_rate), ("global batch", global_batch), ("base batch", base_batch)):
        if not _is_number(value) or value <= 0:
            raise ScheduleError(f"The {name} is {value!r}.", expected="a number above 0.")
    return float(base_rate * global_batch / base_batch)


@keras.saving.register_keras_serializable("course_utils")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule: from `start` to `peak` in `warmup_steps` equal increments, then to `end` by half a cosine.

    The rate of the first update, step 0, is `start`; that of step `warmup_steps` is exactly `peak`; from
    `total_steps` on it is exactly `end`. `total_steps` counts the warm-up too, unlike `decay_steps` of
    `keras.optimizers.schedules.CosineDecay`, which otherwise has the same curve.

    Give it to an optimizer, and it is asked for the rate of each update, inside the graph: a tensor comes
    back. Give it to `keras.callbacks.LearningRateScheduler` with numbers of *epochs* in place of steps, and
    it gives a Python float, which is what that callback wants. Saves and loads with a model.

    Raises ScheduleError unless 0 <= `warmup_steps` < `total_steps`, both whole, and all rates are at least 0.
    Sources: Goyal et al., section 2.2; Loshchilov and Hutter, equation 5.
    """

    def __init__(
        self, peak: float, warmup_steps: int, total_steps: int, start: float = 0.0, end: float = 0.0
    ):
        super().__init__()
        self.peak, self.start, self.end = (
            _rate(name, value) for name, value in (("peak", peak), ("start", start), ("end", end))
        )
        self.warmup_steps = _whole("warmup_steps", warmup_steps)
        self.total_steps = _whole("total_steps", total_steps)
        if not 0 <= self.warmup_steps < self.total_steps:
            raise ScheduleError(
                f"The warm-up takes {self.warmup_steps} of {self.total_steps} steps.",
                expected="at least 0, and fewer than all.",
                cause="total_steps counts the warm-up too; or one is in epochs and the other in steps.",
                cure="Give both in updates: epochs × updates an epoch.",
            )

    def __call__(self, step):
        """The rate of the update number `step`, from 0: a Python float for a Python number, else a tensor."""
        if isinstance(step, numbers.Real):
            return self._rate_at(step)
        step = ops.cast(step, "float32")
        share = ops.clip(step / max(self.warmup_steps, 1), 0.0, 1.0)
        turned = ops.clip((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 0.0, 1.0)
        left = 0.5 * (1.0 + ops.cos(math.pi * turned))
        return ops.where(
            step < self.warmup_steps,
            _between(self.start, self.peak, share),
            _between(self.end, self.peak, left),
        )

    def get_config(self) -> dict:
        """The arguments that make the same schedule again."""
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "start": self.start,
            "end": self.end,
        }

    def __repr__(self):
        return f"WarmupCosine({', '.join(f'{name}={value!r}' for name, value in self.get_config().items())})"

    def _rate_at(self, step) -> float:
        if step < self.warmup_steps:
            return float(_between(self.start, self.peak, max(step, 0) / self.warmup_steps))
        turned = min((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 1.0)
        return float(_between(self.end, self.peak, 0.5 * (1.0 + math.cos(math.pi * turned))))


def _between(low, high, share):
    # Not low + share * (high - low), which misses `high` by a rounding error at share 1.
    return low * (1.0 - share) + high * share


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _rate(name, value) -> float:
    if not _is_number(value) or value < 0:
        raise ScheduleError(f"{name} is {value!r}.", expected="a learning rate: a number, at least 0.")
    return float(value)


def _whole(name, value) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError as error:
        raise ScheduleError(
            f"{name} is {value!r}.",
            expected="a whole number of updates.",
            cause="a division: examples / batch is a fraction." if isinstance(value, float) else "",
            cure="Round up, as training.steps_for does: -(-examples // batch).",
        ) from error
