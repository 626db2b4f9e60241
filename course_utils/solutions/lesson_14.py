"""Reference answers of lesson 14."""

import statistics
import time

import keras


def worker_report(examples, worker):
    class Report(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.rates, self.values, self.traced = [], [], False

        def on_epoch_begin(self, epoch, logs=None):
            self.seconds, self.steps = 0.0, 0

        def on_train_batch_begin(self, batch, logs=None):
            self.begin = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            if self.traced:  # the very first step is over, in which the function was traced
                self.seconds += time.perf_counter() - self.begin
                self.steps += 1
            self.traced = True

        def on_epoch_end(self, epoch, logs=None):
            self.rates.append(self.steps * examples / self.seconds)
            value = self.model.metrics[0].result()  # a meeting: every worker must come
            if worker == 0:
                self.values.append(float(value))

    return Report()


def train_until(run_epoch, mean_of_all, patience):
    best, since, epochs = float("inf"), 0, 0
    while since < patience:
        mean = mean_of_all(run_epoch())
        epochs += 1
        since = 0 if mean < best else since + 1
        best = min(best, mean)
    return epochs


def straggler(trace):
    def usual(steps, part):
        return statistics.median(step[part] for step in steps[1:])  # not step 0: it was traced

    worker = min(range(len(trace)), key=lambda w: usual(trace[w], "all-reduce"))
    others = [steps for w, steps in enumerate(trace) if w != worker]
    late = {p: usual(trace[worker], p) - max(usual(o, p) for o in others) for p in ("data", "compute")}
    return worker, max(late, key=late.get)
