"""The exercises of lesson 14: what each worker measures, stopping together, finding the straggler."""

import contextlib
import time
from unittest import mock

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

keras = lazy("keras")


# --- 14.worker_report: a report of each worker --------------------------------------------------------

RATES = "rates of worker {} (examples/s)"
KEPT = "values that worker {} kept"
READ = "readings of the metric, worker by worker"
CLOCKS = ("perf_counter", "time", "monotonic")


def trainings(random):
    """Seconds of each step, of the pause after it, and of the end of each epoch: for two workers."""
    return [training(random, epochs, steps, examples) for epochs, steps, examples in ((2, 4, 32), (3, 3, 48))]


def training(random, epochs, steps, examples):
    seconds = random.uniform(0.1, 0.3, (2, epochs, steps)).round(2)
    seconds[:, 0, 0] = random.uniform(2, 4, 2).round(2)  # the step in which the function is traced
    return {
        "about": f"{epochs} epochs of {steps} steps, {examples} examples a step on each worker",
        "examples": examples,
        "seconds": seconds,
        "pauses": random.uniform(0.05, 0.1, (2, epochs, steps)).round(2),
        "accuracies": random.uniform(0.3, 0.9, epochs).round(3),
    }


class Model:
    """The model as the callback sees it: one metric, whose reading is a meeting of all workers."""

    def __init__(self, accuracies):
        self.metrics, self.read = [self], 0
        self.accuracies, self.now = accuracies, 0

    def result(self):
        self.read += 1
        return float(self.accuracies[self.now])


class Clock:
    """Stands for the clocks of `time`; it goes on only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def observe_worker_report(answer, case):
    """The callback on two workers, called as `fit` calls it, by a clock that is ours."""
    workers = [one_training(answer, case, worker) for worker in (0, 1)]
    seen = {RATES.format(i): listed(report.rates, "self.rates") for i, (report, _) in enumerate(workers)}
    seen |= {KEPT.format(i): listed(report.values, "self.values") for i, (report, _) in enumerate(workers)}
    return seen | {READ: [model.read for _, model in workers]}


def one_training(answer, case, worker):
    clock, model = Clock(), Model(case["accuracies"])
    with own_clock(answer, clock):
        report = answer(case["examples"], worker)
        check_kind(report)
        report.set_model(model)
        report.on_train_begin()
        for epoch, (seconds, pauses) in enumerate(
            zip(case["seconds"][worker], case["pauses"][worker], strict=True)
        ):
            model.now = epoch
            one_epoch(report, epoch, seconds, pauses, clock)
        report.on_train_end()
    return report, model


def one_epoch(report, epoch, seconds, pauses, clock):
    report.on_epoch_begin(epoch, {})
    clock.now += 0.5
    for step, (takes, pause) in enumerate(zip(seconds, pauses, strict=True)):
        report.on_train_batch_begin(step, {})
        clock.now += takes
        report.on_train_batch_end(step, {"loss": 1.0, "accuracy": 0.0})
        clock.now += pause
    report.on_epoch_end(epoch, {"loss": 1.0, "accuracy": 0.0})


@contextlib.contextmanager
def own_clock(answer, clock):
    """A context in which the clocks of `time` are ours, also where they were imported by name."""
    named = getattr(answer, "__globals__", {})
    clocks = [getattr(time, name) for name in CLOCKS]
    imported = {name: clock for name, value in named.items() if any(value is one for one in clocks)}
    with mock.patch.multiple(time, **dict.fromkeys(CLOCKS, clock)), mock.patch.dict(named, imported):
        yield


def check_kind(report):
    if not isinstance(report, keras.callbacks.Callback):
        raise returned.Unusable(
            f"worker_report should give a Keras callback, but gave {returned.describe(report)}."
        )
    for name in ("rates", "values"):
        if not hasattr(report, name):
            raise returned.Unusable(f"The callback has no self.{name}: begin with an empty list.")


def listed(values, name):
    return [returned.number(value, f"an entry of {name}") for value in returned.items(values, name)]


def rates_of(case, worker, sum_up):
    """Examples per second in each epoch, where `sum_up` says how many steps took how long together."""
    epochs = zip(case["seconds"][worker], case["pauses"][worker], strict=True)
    found = (sum_up(epoch, seconds, pauses) for epoch, (seconds, pauses) in enumerate(epochs))
    return [steps * case["examples"] / seconds for steps, seconds in found]


def without_the_traced(epoch, seconds, pauses):
    counted = seconds[1:] if epoch == 0 else seconds
    return len(counted), counted.sum()


def expected_worker_report(case):
    rates = {RATES.format(w): rates_of(case, w, without_the_traced) for w in (0, 1)}
    kept = {KEPT.format(0): case["accuracies"].tolist(), KEPT.format(1): []}
    return rates | kept | {READ: [len(case["accuracies"])] * 2}


def report_class(**changes):
    """An answer written in another way than the reference, and what changes make of it.

    traced: it counts the traced step; each: it leaves out the first step of every epoch; gaps: it times from
    one step's end to the next; all: it counts all workers' examples; reset: it begins anew in each epoch;
    mean: of the steps' rates; read: "all" (right), "chief", "steps" or "none"; keep: who keeps the value.
    """
    how = {"traced": False, "each": False, "gaps": False, "all": 1, "reset": True, "mean": False}
    how = {**how, "read": "all", "keep": lambda worker: worker == 0, "logs": False} | changes

    def worker_report(examples, worker):
        class Report(keras.callbacks.Callback):
            def __init__(self):
                super().__init__()
                self.rates, self.values, self.spans, self.seen, self.last = [], [], [], 0, time.time()

            def on_epoch_begin(self, epoch, logs=None):
                self.spans, self.last = [] if how["reset"] else self.spans, time.time()

            def on_train_batch_begin(self, batch, logs=None):
                self.last = self.last if how["gaps"] else time.time()

            def on_train_batch_end(self, batch, logs=None):
                skipped = batch == 0 if how["each"] else self.seen == 0
                if how["traced"] or not skipped:
                    self.spans.append(time.time() - self.last)
                self.seen, self.last = self.seen + 1, time.time()
                if how["read"] == "steps":
                    self.model.metrics[0].result()

            def on_epoch_end(self, epoch, logs=None):
                rate = len(self.spans) / sum(self.spans)
                if how["mean"]:
                    rate = float(np.mean([1 / span for span in self.spans]))
                self.rates.append(rate * examples * how["all"])
                if how["read"] == "all" or how["keep"](worker):
                    value = logs["accuracy"] if how["logs"] else self.model.metrics[0].result()
                    if how["keep"](worker):
                        self.values.append(value)

        return Report()

    return worker_report


def readings_differ(cases, seen, expected):
    """One worker reads the metric more often than the other."""
    return all(len(set(one[READ])) > 1 for one in seen)


def by_the_clock_of_another(cases, seen, expected):
    """Rates that no step of ours can have: timed by a clock that the check does not set."""
    rates = [rate for one in seen for worker in (0, 1) for rate in one[RATES.format(worker)]]
    return bool(rates) and min(rates) > 1e4


def by_datetime(examples, worker):
    import datetime

    class Report(keras.callbacks.Callback):
        rates, values = (), ()

        def on_train_batch_begin(self, batch, logs=None):
            self.begin = datetime.datetime.now()

        def on_epoch_end(self, epoch, logs=None):
            seconds = max((datetime.datetime.now() - self.begin).total_seconds(), 1e-6)
            self.rates = [*self.rates, min(examples / seconds, 1e9) + 1e5]

    return Report()


WORKER_REPORT = Exercise(
    id="14.worker_report",
    title="A report of each worker",
    points=3,
    length="about 22 lines",
    signature="worker_report(examples, worker)",
    hints=[
        "A class inside the function: `class Report(keras.callbacks.Callback)`, and at the end "
        "`return Report()`. `rates` and `values` are made in its `__init__`.",
        "Add up the seconds between `on_train_batch_begin` and `on_train_batch_end`, and count the steps; "
        "begin anew in `on_epoch_begin`. A flag tells whether the very first step is over.",
        "Which of these is a meeting of all workers: reading a clock, appending to a list, `result()`?",
    ],
    cases=trainings,
    observe=observe_worker_report,
    expected=expected_worker_report,
    mistakes=[
        Mistake(
            "a distributed metric read on one worker",
            report_class(read="chief"),
            went_wrong=lambda case, seen, expected: (
                f"The workers read the metric {seen[READ][0]} and {seen[READ][1]} times. Reading is an "
                "all-reduce: who comes alone waits for ever."
            ),
            try_this="Call `result()` on every worker, and put only the appending inside the `if`.",
            variants=[report_class(read="chief", traced=True)],
            recognises=readings_differ,
        ),
        Mistake(
            "timed by another clock",
            by_datetime,
            went_wrong="The check sets the clocks of `time`, and your rates are not by them.",
            try_this="Use `time.perf_counter()`. (It is also the one that never jumps.)",
            recognises=by_the_clock_of_another,
        ),
        Mistake(
            "the traced step counts",
            report_class(traced=True),
            went_wrong=lambda case, seen, expected: (
                f"In the first epoch worker 0 has {seen[RATES.format(0)][0]:.0f} examples/s, and "
                f"{expected[RATES.format(0)][0]:.0f} without its very first step, in which TensorFlow traced "
                f"the function for {case['seconds'][0, 0, 0]:g} s. That is no training."
            ),
            try_this="Leave the first step of the training out, of its seconds and of its examples.",
        ),
        Mistake(
            "the first step of every epoch left out",
            report_class(each=True),
            went_wrong="The function is traced once, in the very first step of the training. The first step "
            "of a later epoch is a step like all others, and you leave it out.",
            try_this="Remember in the object whether the first step is over; `batch == 0` comes every epoch.",
        ),
        Mistake(
            "what is between the steps counts",
            report_class(gaps=True),
            went_wrong="Your time goes on from one step's end to the next one's, with all that other "
            "callbacks do in between.",
            try_this="Start the clock in `on_train_batch_begin`.",
        ),
        Mistake(
            "all epochs in one",
            report_class(reset=False),
            went_wrong="The first rate is right, and the later ones are means over all epochs so far: a "
            "worker that becomes slow is seen late.",
            try_this="Begin anew in `on_epoch_begin`.",
        ),
        Mistake(
            "the mean of the rates",
            report_class(mean=True),
            went_wrong="You took the mean of the steps' rates. Slow steps count too little in it: 10 and 30 "
            "examples a second, for 30 examples each, are 60 examples in 4 s, so 15, not 20.",
            try_this="Divide all examples of the epoch by all its seconds.",
        ),
        Mistake(
            "the examples of all workers",
            report_class(all=2),
            went_wrong="The rate is that of both workers together. `examples` is what this worker has in a "
            "step, and its own rate was asked for.",
            try_this="Do not multiply by the number of workers.",
        ),
        Mistake(
            "everyone keeps the value",
            report_class(keep=lambda worker: True),
            went_wrong="All read the metric, as they must, but only worker 0 was to keep it.",
            try_this="Append `if self.worker == 0`, after the reading.",
        ),
        Mistake(
            "a meeting in every step",
            report_class(read="steps", keep=lambda worker: False),
            went_wrong="You read the metric after every step: one more all-reduce each time, and the loop "
            "becomes slow by being watched.",
            try_this="Read it once, in `on_epoch_end`.",
        ),
        Mistake(
            "nobody reads the metric",
            report_class(read="none", logs=True, keep=lambda worker: worker == 0),
            went_wrong="No worker calls `result()`, so what worker 0 keeps is not the metric's value.",
            try_this="`self.model.metrics[0].result()`, on every worker.",
            variants=[report_class(read="none", keep=lambda worker: False)],
            recognises=lambda cases, seen, expected: all(one[READ] == [0, 0] for one in seen),
        ),
    ],
    also_right=[report_class()],
)


# --- 14.train_until: stop together --------------------------------------------------------------------

EPOCHS = "epochs, worker by worker"
MEETINGS = "the workers"
GIVEN = "reduced"
WORKERS = 3
ALIKE, OWN = "meet in the same order", "this worker's own loss of the epoch"
TOO_LONG = "goes on for ever"


class Endless(Exception):
    """The answer trains on when it should have stopped long ago."""


# After the best epoch: up and down, never below it; at last worse than the first epoch.
TAIL = 1.0 + np.array([0.3, 0.1, 0.4, 0.2, 0.5, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.3, 1.4, 1.5])


def losses(random):
    """Own losses by worker and epoch: their mean stops at another epoch than any of them."""
    cases = []
    for patience, bumps in ((2, (1, 4)), (3, (2, 3))):
        best = int(random.integers(6, 9))
        mean = np.concatenate([np.linspace(2.0, 1.0, best + 1), TAIL])
        mean[list(bumps)] += 0.3  # a bad epoch, after which it goes on to fall
        apart = random.uniform(0.2, 0.5, len(mean))
        apart[0] = 0.0
        rise = 0.25 * np.arange(len(mean))
        own = np.stack([mean + rise, mean - rise + apart, mean - apart])
        if patience == 3:
            own[:, best + 1] = own[:, best]  # as good as the best is not below it
        cases.append(
            {
                "about": f"three workers, patience {patience}",
                "patience": patience,
                "losses": own.round(3),
            }
        )
    return cases


class Cluster:
    """One worker's view of a training: its own losses, and what the mean of all is."""

    def __init__(self, case, worker):
        self.own, self.means = case["losses"][worker], case["losses"].mean(axis=0)
        self.events, self.given, self.epochs, self.reduced = [], [], 0, 0

    def run_epoch(self):
        if self.epochs == len(self.means):
            raise Endless
        self.events.append("epoch")
        self.epochs += 1
        return float(self.own[self.epochs - 1])

    def mean_of_all(self, number):
        self.events.append("mean")
        self.given.append(is_close(number, self.own[self.epochs - 1]) if self.epochs else False)
        return float(self.means[max(self.epochs - 1, 0)])


def is_close(number, wanted):
    return isinstance(number, int | float | np.number) and abs(float(number) - float(wanted)) < 1e-6


def observe_train_until(answer, case):
    """The answer on each worker in turn, with what a real cluster would notice."""
    views = [Cluster(case, worker) for worker in range(WORKERS)]
    epochs = [epochs_of(answer, view, case["patience"]) for view in views]
    alike = len({tuple(view.events) for view in views}) == 1
    given = all(view.given and all(view.given) for view in views)
    return {
        EPOCHS: epochs,
        MEETINGS: ALIKE
        if alike
        else [f"{v.events.count('epoch')} epochs, {len(v.given)} means" for v in views],
        GIVEN: OWN if given else "nothing" if not any(view.given for view in views) else "something else",
    }


def epochs_of(answer, view, patience):
    try:
        return returned.number(answer(view.run_epoch, view.mean_of_all, patience), "train_until")
    except Endless:
        return TOO_LONG


def stops_after(values, patience):
    """By the definition: the first epoch at whose end the last `patience` values are not below the best."""
    for epochs in range(patience + 1, len(values) + 1):
        before = min(values[: epochs - patience])
        if min(values[epochs - patience : epochs]) >= before:
            return epochs
    return TOO_LONG


def expected_train_until(case):
    epochs = stops_after(case["losses"].mean(axis=0).tolist(), case["patience"])
    return {EPOCHS: [epochs] * WORKERS, MEETINGS: ALIKE, GIVEN: OWN}


def by_a_list(run_epoch, mean_of_all, patience):
    means = []
    while not means or len(means) - 1 - int(np.argmin(means)) < patience:
        means.append(mean_of_all(run_epoch()))
    return len(means)


def with_break(run_epoch, mean_of_all, patience):
    best, waited, epochs = None, 0, 0
    while True:
        epochs += 1
        own = run_epoch()
        mean = mean_of_all(own)
        if best is None or mean < best:
            best, waited = mean, 0
        else:
            waited += 1
        if waited == patience:
            return epochs


def stopper(own=False, last=False, total=False, off=0, reduce=True, when=lambda own, best: True, first=False):
    """A loop that goes wrong in one way."""

    def train_until(run_epoch, mean_of_all, patience):
        best, since, epochs = float("inf"), 0, 0
        while since < patience + off:
            mine = run_epoch()
            value = mean_of_all(mine) if reduce and when(mine, best) else mine
            value = mine if own else value
            epochs += 1
            since = (since if total else 0) if value < best else since + 1
            best = value if last else best if first and epochs > 1 else min(best, value)
        return epochs

    return train_until


def takes_the_highest(run_epoch, mean_of_all, patience):
    """As for an accuracy."""
    best, since, epochs = -float("inf"), 0, 0
    while since < patience:
        mean = mean_of_all(run_epoch())
        epochs += 1
        since = 0 if mean > best else since + 1
        best = max(best, mean)
    return epochs


def highest_by_a_list(run_epoch, mean_of_all, patience):
    means = []
    while not means or len(means) - 1 - int(np.argmax(means)) < patience:
        means.append(mean_of_all(run_epoch()))
    return len(means)


def the_best_epoch(run_epoch, mean_of_all, patience):
    return by_a_list(run_epoch, mean_of_all, patience) - patience


def the_best_epoch_from_0(run_epoch, mean_of_all, patience):
    return the_best_epoch(run_epoch, mean_of_all, patience) - 1


def never_stops(run_epoch, mean_of_all, patience):
    while True:
        mean_of_all(run_epoch())


def asks_once_at_the_end(run_epoch, mean_of_all, patience):
    """Stops by its own loss, and then takes the mean of the workers' epochs."""
    best, since, epochs = float("inf"), 0, 0
    while since < patience:
        mine = run_epoch()
        epochs += 1
        since = 0 if mine < best else since + 1
        best = min(best, mine)
    mean_of_all(epochs)
    return epochs


def as_good_is_better(run_epoch, mean_of_all, patience):
    best, since, epochs = float("inf"), 0, 0
    while since < patience:
        mean = mean_of_all(run_epoch())
        epochs += 1
        since = 0 if mean <= best else since + 1
        best = min(best, mean)
    return epochs


def reduces_the_best(run_epoch, mean_of_all, patience):
    best, since, epochs = float("inf"), 0, 0
    while since < patience:
        mine = run_epoch()
        epochs += 1
        since = 0 if mine < best else since + 1
        best = mean_of_all(min(best, mine))
    return epochs


def reduces_the_decision(run_epoch, mean_of_all, patience):
    """Everybody votes by its own loss: all stop together, but not by the mean loss."""
    best, since, epochs = float("inf"), 0, 0
    while True:
        mine = run_epoch()
        epochs += 1
        since = 0 if mine < best else since + 1
        best = min(best, mine)
        if mean_of_all(float(since >= patience)) > 0.5:
            return epochs


TRAIN_UNTIL = Exercise(
    id="14.train_until",
    title="Stop together",
    points=2,
    length="about 10 lines",
    signature="train_until(run_epoch, mean_of_all, patience)",
    hints=[
        "What must the decision be made from, so that it is the same on all workers?",
        "In each epoch: train, reduce, compare with the best mean so far. The reducing comes in every epoch, "
        "on every worker, whatever its own loss is.",
        "Count the epochs since the last improvement; set the count back to 0 with each new best.",
    ],
    cases=losses,
    observe=observe_train_until,
    expected=expected_train_until,
    mistakes=[
        Mistake(
            "stopping on one worker's own loss",
            stopper(own=True, reduce=False),
            went_wrong=lambda case, seen, expected: (
                f"The workers stop after {', '.join(map(str, seen[EPOCHS]))} epochs, each when its own loss "
                "gets no better. Who stays waits in the next all-reduce for those who left."
            ),
            try_this="Decide from `mean_of_all(own loss)`: it is the same number on all workers.",
            variants=[stopper(own=True), asks_once_at_the_end],
            recognises=lambda cases, seen, expected: (
                all(len(set(map(str, one[EPOCHS]))) > 1 for one in seen)
                and all(one[GIVEN] in (OWN, "nothing") or one_mean_each(one) for one in seen)
                and not any(uneven_means(one) for one in seen)
            ),
        ),
        Mistake(
            "reducing only now and then",
            stopper(when=lambda own, best: own >= best),
            went_wrong="Whether you call `mean_of_all` depends on the worker's own loss. It is an "
            "all-reduce: in some epoch one worker comes and another does not, and the one that came waits.",
            try_this="Call it in every epoch, outside of any `if`.",
            variants=[stopper(when=lambda own, best: own < best)],
            recognises=lambda cases, seen, expected: any(uneven_means(one) for one in seen),
        ),
        Mistake(
            "something else is reduced",
            reduces_the_decision,
            went_wrong="What you give to `mean_of_all` is not the worker's loss of the epoch, so what comes "
            "back is not the mean loss.",
            try_this="`mean = mean_of_all(run_epoch())`",
            variants=[reduces_the_best],
            recognises=lambda cases, seen, expected: any(one[GIVEN] == "something else" for one in seen),
        ),
        Mistake(
            "never stops",
            never_stops,
            recognises=lambda cases, seen, expected: all(
                one[EPOCHS] == [TOO_LONG] * WORKERS and one[GIVEN] == OWN for one in seen
            ),
            went_wrong="The training goes on after many epochs in which the mean got worse and worse.",
            try_this="Count the epochs without a new best, and leave the loop when there are `patience`.",
        ),
        Mistake(
            "the highest mean taken for the best",
            takes_the_highest,
            went_wrong=lambda case, seen, expected: (
                f"You stop after {seen[EPOCHS][0]} epochs, because the mean was not *above* its highest. "
                "That is right for an accuracy; a loss is better the lower it is."
            ),
            try_this="A new best is below the old one; begin with `float('inf')`.",
            variants=[highest_by_a_list],
        ),
        Mistake(
            "the best epoch, not all that were trained",
            the_best_epoch,
            went_wrong=lambda case, seen, expected: (
                f"You train the right number of epochs, {expected[EPOCHS][0]}, but return "
                f"{seen[EPOCHS][0]}: the number of the epoch with the lowest mean."
            ),
            try_this="Return how many epochs were trained, the last ones without a new best too.",
            variants=[the_best_epoch_from_0],
        ),
        Mistake(
            "as good counts as better",
            as_good_is_better,
            went_wrong="Where the mean loss is the same as the best so far, you take that for progress.",
            try_this="A new best is *below* the old one: `<`, not `<=`.",
        ),
        Mistake(
            "compared with the last epoch",
            stopper(last=True),
            went_wrong="A loss that is lower than in the epoch before need not be better than the best.",
            try_this="Keep the lowest mean that there was, and compare with that.",
        ),
        Mistake(
            "patience counts all bad epochs",
            stopper(total=True),
            went_wrong="You count every epoch without a new best, also those before the loss fell again. "
            "Patience is for epochs *in a row*.",
            try_this="Set the count back to 0 when there is a new best.",
        ),
        Mistake(
            "compared with the first epoch",
            stopper(first=True),
            went_wrong="The best is never brought up to date: everything is better than the first epoch, so "
            "the training goes on for too long.",
            try_this="`best = min(best, mean)`",
        ),
        Mistake(
            "one epoch too many",
            stopper(off=1),
            went_wrong=lambda case, seen, expected: (
                f"You train {seen[EPOCHS][0]} epochs, not {expected[EPOCHS][0]}: one more than the patience "
                "allows."
            ),
            try_this="Stop when `patience` epochs were without a new best, not when one more was.",
        ),
        Mistake(
            "one epoch too few",
            stopper(off=-1),
            went_wrong=lambda case, seen, expected: (
                f"You train {seen[EPOCHS][0]} epochs, not {expected[EPOCHS][0]}: the patience ends too early."
            ),
            try_this="The epoch with the best loss does not count; the first one after it is number 1.",
        ),
    ],
    also_right=[by_a_list, with_break],
)


def uneven_means(one):
    """Whether workers have trained, or reduced, another number of times, and not once in each epoch."""
    return any(epochs != means and means for epochs, means in meetings(one)) and not one_mean_each(one)


def one_mean_each(one):
    """Whether the workers have trained for different times, and then reduced once, if they came to an end."""
    return bool(pairs := meetings(one)) and all(means <= 1 < epochs for epochs, means in pairs)


def meetings(one):
    """(epochs, means) of each worker, where they do not meet in the same order."""
    if one[MEETINGS] == ALIKE:
        return []
    return [tuple(int(word) for word in text.split() if word.isdigit()) for text in one[MEETINGS]]


# --- 14.straggler: find the straggler in a trace ------------------------------------------------------

WHO, WHAT = "the worker that the others wait for", "what it is slow at"


def traces(random):
    """Three jobs: a slow processor, a slow input, and a hidden one beside a worker with a bad step."""
    return [
        trace(random, "compute", "a job with a slow processor in it"),
        trace(random, "data", "a job with a slow input in it"),
        trace(random, "compute", "a job in which another worker has one bad step", slowness=12, bad=400),
        trace(random, "data", "another one", slowness=8.4, bad=400),
    ]


def trace(random, part, about, slowness=40, bad=0):
    """What each worker measures: the all-reduce ends for all when the last has its gradients."""
    workers, steps = int(random.integers(3, 6)), 9
    slow, other, traced = (int(w) for w in random.permutation(workers)[:3])
    data = random.uniform(1, 3, (workers, steps))
    compute = random.uniform(10, 13, (workers, steps))
    compute[:, 0] += random.uniform(700, 900, workers)
    compute[traced, 0] += 600  # who traces longest is not the straggler
    # It is the best at what it is not slow at, and slow by less than a whole computation.
    data[slow], compute[slow, 1:] = data[slow] / 3, random.uniform(9.5, 9.9, steps - 1)
    {"data": data, "compute": compute}[part][slow] += slowness
    compute[other, int(random.integers(2, steps))] += bad
    arrived = data + compute
    reduce = arrived.max(axis=0) - arrived + random.uniform(2, 3, steps)
    names = {"data": data, "compute": compute, "all-reduce": reduce}
    measured = [
        [{name: round(float(values[w, s]), 1) for name, values in names.items()} for s in range(steps)]
        for w in range(workers)
    ]
    about = f"{workers} workers: {about}"
    return {"about": about, "trace": measured, "slow": slow, "part": part, "bad step": bad > 0}


def observe_straggler(answer, case):
    trace = [[dict(step) for step in worker] for worker in case["trace"]]
    found = returned.items(answer(trace), "straggler", length=2, like='(2, "data")')
    return {WHO: named(plain_worker(found[0])), WHAT: str(found[1])}


def named(worker):
    """A name, not a number: nobody is 1.5 times another worker."""
    return f"worker {worker}"


def plain_worker(value):
    if isinstance(value, str) and value.split()[-1:] and value.split()[-1].isdigit():
        return int(value.split()[-1])  # "worker 2"
    return int(returned.number(value, "the first entry of straggler"))


def expected_straggler(case):
    return {WHO: named(case["slow"]), WHAT: case["part"]}


def finder(score, choose=max, steps=slice(1, None), middle=np.median, part=None):
    """An answer that picks the worker by `score(data, compute, all-reduce)`, and then the part."""

    def straggler(trace):
        usual = [
            {name: middle([step[name] for step in worker[steps]]) for name in worker[0]} for worker in trace
        ]
        scores = [score(one["data"], one["compute"], one["all-reduce"]) for one in usual]
        slow = scores.index(choose(scores))
        parts = {p: usual[slow][p] - np.median([one[p] for one in usual]) for p in ("data", "compute")}
        return slow, part(usual[slow], parts) if part else max(parts, key=parts.get)

    return straggler


def own_part(data, compute, reduce):
    return data + compute


def the_longest_wait(data, compute, reduce):
    return reduce


def counted_from_1(trace):
    worker, part = finder(own_part)(trace)
    return worker + 1, part


STRAGGLER = Exercise(
    id="14.straggler",
    title="Find the straggler",
    points=2,
    length="about 8 lines",
    signature="straggler(trace)",
    hints=[
        "All steps are equally long on all workers. What is long on those who wait, and short on the one "
        "that they wait for?",
        "Leave out step 0, and take medians: one bad step must not decide.",
        "Whose all-reduce is the shortest? And in which of `data` and `compute` does that worker take longer "
        "than the others?",
    ],
    cases=traces,
    observe=observe_straggler,
    expected=expected_straggler,
    mistakes=[
        Mistake(
            "who waits is taken for who is slow",
            finder(the_longest_wait),
            went_wrong=lambda case, seen, expected: (
                f"{seen[WHO].capitalize()} has the longest all-reduce: it came first, and waited. The "
                f"network is the same for all. {expected[WHO].capitalize()} waits least, because it comes "
                "last."
            ),
            try_this="The straggler is the one who does not wait: the *shortest* all-reduce.",
            recognises=lambda cases, seen, expected: all(
                one[WHO] == named(usual_extreme(case, max)) for case, one in zip(cases, seen, strict=True)
            ),
        ),
        Mistake(
            "workers counted from 1",
            counted_from_1,
            went_wrong=lambda case, seen, expected: (
                f"You name {seen[WHO]} where it is {expected[WHO]}, the one before: the first worker is 0."
            ),
            try_this="The number of a worker is its place in `trace`.",
        ),
        Mistake(
            "the traced step counts",
            finder(own_part, steps=slice(0, 1)),
            went_wrong="You look at step 0, or let it weigh: there the functions were traced, and who traces "
            "longest is the last. It says nothing about the steps after it.",
            try_this="`steps[1:]`",
            variants=[
                finder(the_longest_wait, min, slice(0, 1)),
                finder(own_part, steps=slice(None), middle=np.mean),
                finder(own_part, steps=slice(None), middle=np.sum),
                finder(own_part, steps=slice(None), middle=np.max),
            ],
            recognises=lambda cases, seen, expected: (
                all(one[WHO] == named(by_step_0(case)) for case, one in zip(cases, seen, strict=True))
                or all(one[WHO] == named(by_all_steps(case)) for case, one in zip(cases, seen, strict=True))
            ),
        ),
        Mistake(
            "one bad step decides",
            finder(own_part, middle=np.mean),
            went_wrong=lambda case, seen, expected: (
                f"You name {seen[WHO]}, which was slow in one single step. {expected[WHO].capitalize()} is "
                "a little slow in every one, and that is what the others wait for."
                if seen[WHO] != expected[WHO]
                else "In the jobs with one bad step you name the worker that had it."
            ),
            try_this="Take the median over the steps, not the mean or the longest.",
            variants=[finder(own_part, middle=np.max), finder(the_longest_wait, min, middle=np.mean)],
            recognises=lambda cases, seen, expected: (
                wrong_in(cases, seen, expected) == [case for case in cases if case["bad step"]]
            ),
        ),
        Mistake(
            "the longest part is taken for the slow one",
            finder(own_part, part=lambda usual, parts: max(("data", "compute"), key=usual.get)),
            went_wrong="You name the right workers. But where computing takes 11 ms everywhere, and data "
            "2 ms on most workers and 9 ms on one, it is the data that this one is slow at.",
            try_this="Compare each part with what it takes on the *other* workers.",
            recognises=lambda cases, seen, expected: (
                all(one[WHO] == e[WHO] for one, e in zip(seen, expected, strict=True))
                and wrong_in(cases, seen, expected)
                == [case for case in cases if case["bad step"] and case["part"] == "data"]
            ),
        ),
        Mistake(
            "only computing counts",
            finder(lambda data, compute, reduce: compute, part=lambda usual, parts: "compute"),
            went_wrong="You find a slow processor, and miss a slow input: a worker can be last because its "
            "data is.",
            try_this="Look at who waits least in the all-reduce, and only then for the reason.",
            variants=[
                finder(lambda data, compute, reduce: compute),
                finder(own_part, part=lambda usual, parts: "compute"),
            ],
            recognises=lambda cases, seen, expected: goes_by("compute", cases, seen, expected),
        ),
        Mistake(
            "only the input counts",
            finder(lambda data, compute, reduce: data, part=lambda usual, parts: "data"),
            went_wrong="You find a slow input, and miss a slow processor.",
            try_this="Look at who waits least in the all-reduce, and only then for the reason.",
            variants=[finder(own_part, part=lambda usual, parts: "data")],
            recognises=lambda cases, seen, expected: goes_by("data", cases, seen, expected),
        ),
    ],
    also_right=[finder(own_part), finder(the_longest_wait, min)],
)


def wrong_in(cases, seen, expected):
    """The cases in which something else was seen than expected."""
    return [case for case, one, e in zip(cases, seen, expected, strict=True) if one != e]


def goes_by(part, cases, seen, expected):
    """Whether the answer looks at one part alone: for the worker, or for the reason only."""
    whom = [
        named(np.argmax([np.median([step[part] for step in worker[1:]]) for worker in case["trace"]]))
        for case in cases
    ]
    found = [one[WHO] for one in seen]
    right = found == [one[WHO] for one in expected] and all(one[WHAT] == part for one in seen)
    return found == whom or right


def usual_extreme(case, choose):
    waits = [np.median([step["all-reduce"] for step in worker[1:]]) for worker in case["trace"]]
    return waits.index(choose(waits))


def by_step_0(case):
    arrived = [worker[0]["data"] + worker[0]["compute"] for worker in case["trace"]]
    return arrived.index(max(arrived))


def by_all_steps(case):
    arrived = [sum(step["data"] + step["compute"] for step in worker) for worker in case["trace"]]
    return arrived.index(max(arrived))


EXERCISES = [WORKER_REPORT, TRAIN_UNTIL, STRAGGLER]
