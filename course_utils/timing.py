"""Where the time of a step goes on each worker: waiting for data, computing, all-reduce.

A worker can time what it does itself. That its all-reduce took long does not say why: it may have moved many
bytes, or waited for a worker that was not there yet. `phases` tells these apart by laying the records of all
workers side by side, which needs clocks that agree. Workers on one machine share one; between machines, check
how far their clocks are apart before you believe a difference of milliseconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

PHASES = ("wait for data", "compute", "wait for others", "all-reduce")


@dataclass(frozen=True)
class Step:
    """One step of one worker. Moments are in seconds since the epoch, as `time.time()` gives them."""

    number: int
    begin: float
    ready: float  # the batch is there
    computed: float | None  # the local gradients are there; None where nothing tells, as in `fit`
    end: float  # the weights are updated
    examples: int  # of this worker
    loss: float  # mean over this worker's examples
    traced: bool = False  # TensorFlow traced a function in it: its time says nothing about the others

    @property
    def seconds(self) -> float:
        """From the beginning to the end."""
        return self.end - self.begin

    @property
    def waiting(self) -> float:
        """Seconds until the batch was there."""
        return self.ready - self.begin

    @property
    def compute(self) -> float | None:
        """Seconds from the batch to the local gradients."""
        return None if self.computed is None else self.computed - self.ready

    @property
    def exchange(self) -> float | None:
        """Seconds from the local gradients to the updated weights: waiting for others, and the all-reduce."""
        return None if self.computed is None else self.end - self.computed

    @property
    def rate(self) -> float:
        """Examples a second, of this worker alone."""
        return self.examples / self.seconds


def median(values: Sequence[float]) -> float:
    """The middle one of the values, NaN of none: one slow step does not move it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return float("nan")
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def phases(workers: Sequence[Sequence[Step]]) -> list[list[tuple[str, float, float]]]:
    """For each worker its spans (phase, start, end) in order, in seconds since the first step began.

    A worker whose gradients are ready waits until those of the last worker are; only then can the all-reduce
    be done. Steps that are not on record for every worker, or that know no moment `computed`, count as one
    span "compute" after the wait for data.
    """
    computed = _last_computed(workers)
    zero = min((step.begin for steps in workers for step in steps), default=0.0)
    spans = [[span for step in steps for span in _spans(step, computed)] for steps in workers]
    return [[(name, start - zero, end - zero) for name, start, end in found] for found in spans]


def _last_computed(workers) -> dict[int, float]:
    """For each step that all workers have on record, when the last of them had its gradients."""
    moments: dict[int, list[float]] = {}
    for steps in workers:
        for step in steps:
            if step.computed is not None:
                moments.setdefault(step.number, []).append(step.computed)
    return {number: max(times) for number, times in moments.items() if len(times) == len(workers)}


def _spans(step: Step, computed: dict[int, float]):
    yield "wait for data", step.begin, step.ready
    if step.number not in computed:
        yield "compute", step.ready, step.end
        return
    together = min(computed[step.number], step.end)  # clocks may disagree a little
    yield "compute", step.ready, step.computed
    yield "wait for others", step.computed, together
    yield "all-reduce", together, step.end


class Recorder:
    """Times the steps of a custom loop on one worker; `steps` holds them.

        record = cu.timing.Recorder(local_gradients, apply, report=cu.cluster.report)
        for _ in range(steps):
            with record.step(examples=32) as now:
                batch = next(batches)
                now.ready()
                loss, gradients = local_gradients(batch)  # a tf.function that ends before any all-reduce
                now.computed(loss)
                apply(gradients)  # a tf.function that begins with the all-reduce

    functions: the tf.functions of the step; one in which any of them was traced is marked so. report: called
    with each step as a dictionary.

    It is right where a call returns when its work is done, as on CPU devices. A GPU works on after the call:
    there these moments say when work was queued, and only a profile shows when it ran.
    """

    def __init__(self, *functions, report: Callable[[dict], None] | None = None):
        self.steps: list[Step] = []
        self._functions, self._report = functions, report

    @contextlib.contextmanager
    def step(self, examples: int) -> Iterator[Moments]:
        """A context that is one step; a step that raises is not recorded."""
        traced, now = self._traces(), Moments()
        yield now
        end = time.time()
        step = Step(
            number=len(self.steps),
            begin=now.begun,
            ready=now.begun if now.had_batch is None else now.had_batch,
            computed=now.had_gradients,
            end=end,
            examples=examples,
            loss=float(now.loss),
            traced=self._traces() != traced,
        )
        self.steps.append(step)
        if self._report:
            self._report(asdict(step))

    def _traces(self) -> int:
        return sum(function.experimental_get_tracing_count() for function in self._functions)


class Moments:
    """The moments of the step that is going on."""

    def __init__(self):
        self.begun, self.loss = time.time(), float("nan")
        self.had_batch = self.had_gradients = None

    def ready(self) -> None:
        """None; notes that the batch is there."""
        self.had_batch = time.time()

    def computed(self, loss=float("nan")) -> None:
        """None; notes that the local gradients are there, and this worker's own loss."""
        self.had_gradients, self.loss = time.time(), loss
