"""Some twenty seconds of measuring, from which the cost model predicts the steps of this machine's workers.

Two things are measured, and nothing of what is predicted: how long a worker computes for two batch sizes,
alone and beside another, and how long two workers need to add up two sizes of gradients. The rest is the
model's.
"""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from course_utils import costmodel
from course_utils.costmodel import FLOAT32, Job, Network
from course_utils.errors import ConfigError

INPUTS, CLASSES, HIDDEN = 784, 10, 256
BATCHES, SIZES = (64, 512), (32, 512)  # the two that a straight line is drawn through
SLOW = "100Mbit"
FILE = Path(".course/calibration.json")


@dataclass(frozen=True)
class Calibration:
    """What was measured on this machine: computing alone and beside another worker, and the loopback.

    `alone` and `beside` are (seconds a step, seconds an example); `cores` is how many workers really compute
    at one time; `loopback` is what a round of an all-reduce costs between two workers, and `slow` what it
    costs between the same two over the link of SLOW: more than the bytes alone, for the requests and answers
    of gRPC queue behind them.
    """

    cores: int
    alone: tuple[float, float]
    beside: tuple[float, float]
    loopback: Network
    slow: Network

    def job(self, workers: int = 1, **options) -> Job:
        """The measured network as a Job, on the first of `workers` workers of this machine."""
        fixed, per_example = self.alone if workers == 1 else self.beside
        return Job(per_example, fixed, gradient_bytes(HIDDEN), **options)

    def step(self, workers: int, batch: int, link=None) -> costmodel.Step:
        """The predicted step of `workers` workers here, with `batch` examples each, over this link."""
        shared = min(workers, max(2, self.cores))  # two were measured side by side; more share the cores
        return costmodel.step(self.job(workers), workers, batch, self.network(link, workers), cores=shared)

    def network(self, link=None, workers: int = 2) -> Network:
        """What a round of `workers` costs over `link`: the work of sending, the cable, the queue before it.

        On the loopback there is no cable: to move the bytes is work, at which more workers than cores take
        turns as they do at computing. The latency is mostly waiting to be woken, which many can do at a time.
        """
        turns = max(1.0, workers / max(2, self.cores))
        work = Network(self.loopback.latency, self.loopback.bandwidth / turns)
        if link is None:
            return work
        cable = 8 * self.slow.bandwidth / costmodel.bits_per_second(SLOW)  # what part of it gets used
        bandwidth = min(work.bandwidth, cable * link.bytes_per_second)
        return Network(self.slow.latency + link.delay_seconds, bandwidth)

    def save(self, path: Path = FILE) -> Path:
        """Where it was written, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path = FILE) -> "Calibration":
        """The saved one. Raises ConfigError where there is none, or none that can be read."""
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            networks = [Network(**read[name]) for name in ("loopback", "slow")]
            return cls(read["cores"], tuple(read["alone"]), tuple(read["beside"]), *networks)
        except FileNotFoundError:
            raise ConfigError(
                f"There is no {path}.", cure="Run `course calibrate` first: 20 seconds."
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is no calibration: {error}.", cure="Run `course calibrate` again."
            ) from None


def calibrate(repeats: int = 15) -> Calibration:
    """What this machine's workers need for computing and for adding up; about 20 seconds."""
    from course_utils.cluster import Link, LocalCluster, local

    def slowest(workers, what, count, link=None):
        found = LocalCluster(workers=workers, link=link, output="quiet").run(what, count)
        return {key: max(one[key] for one in found) for key in found[0]}

    alone, beside = slowest(1, _computing, repeats), slowest(2, _computing, repeats)
    exchanged = slowest(2, _adding_up, repeats)
    slowly = slowest(2, _adding_up, max(3, repeats // 3), Link(SLOW))
    return Calibration(
        cores=local._cores(),
        alone=_line(BATCHES, list(alone.values())),
        beside=_line(BATCHES, list(beside.values())),
        loopback=_round_of_two(exchanged),
        slow=_round_of_two(slowly),
    )


def _round_of_two(seconds_by_bytes: dict[int, float]) -> Network:
    """The network in which two workers need these times: two rounds, in each half of the array."""
    fixed, a_byte = _line(list(seconds_by_bytes), list(seconds_by_bytes.values()))
    return Network(max(fixed / 2, 1e-7), 1 / a_byte)


def measure_steps(workers: int, batch: int, link=None, repeats: int = 15) -> float:
    """Seconds of one whole training step of the calibrated network, median over steps, on real workers.

    What `Calibration.step` predicts. Nothing of it enters the calibration.
    """
    from course_utils.cluster import LocalCluster

    return statistics.median(
        LocalCluster(workers=workers, link=link, output="quiet").run(_train, batch, repeats)
    )


def gradient_bytes(hidden: int) -> int:
    """Bytes of the float32 gradients of the network with `hidden` units in each of two layers."""
    return FLOAT32 * ((INPUTS + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * CLASSES)


def _line(x, y) -> tuple[float, float]:
    """Height at 0 (not below it) and slope of the line through two points."""
    slope = max((y[1] - y[0]) / (x[1] - x[0]), 1e-13)
    return max(y[0] - slope * x[0], 0.0), slope


def _computing(repeats: int) -> dict[int, float]:
    """Runs on a worker: seconds for the gradients of a batch, by its size, while all compute."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    _, gradients, meet = _network(strategy, HIDDEN)
    found = {}
    for batch in BATCHES:
        images, labels = _data(batch)
        gradients(images, labels)
        meet()
        found[batch] = _median(lambda images=images, labels=labels: gradients(images, labels)[0], repeats)
    meet()  # nobody goes before the others have measured
    return found


def _adding_up(repeats: int) -> dict[int, float]:
    """Runs on a worker: seconds for one all-reduce of all gradients, by their bytes."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return {gradient_bytes(size): _median(_network(strategy, size)[2], repeats) for size in SIZES}


def _train(batch: int, repeats: int) -> float:
    """Runs on a worker: seconds a training step, as learners write it."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    model, gradients, _ = _network(strategy, HIDDEN)
    with strategy.scope():
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    data = _data(batch)

    @tf.function
    def step():
        def on_replica():
            optimizer.apply(gradients(*data), model.trainable_variables)

        strategy.run(on_replica)

    return _median(step, repeats)


def _network(strategy, hidden: int):
    """The model, the function for its gradients, and the one that adds up gradients of that size."""
    import tensorflow as tf

    with strategy.scope():
        layers = [tf.keras.layers.Dense(hidden, "relu") for _ in range(2)]
        model = tf.keras.Sequential([tf.keras.Input([INPUTS]), *layers, tf.keras.layers.Dense(CLASSES)])

    @tf.function
    def gradients(images, labels):
        with tf.GradientTape() as tape:
            errors = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_mean(errors)
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def exchange():
        def on_replica():
            ours = [tf.identity(weight) for weight in model.trainable_variables]
            return tf.distribute.get_replica_context().all_reduce("SUM", ours)[0]

        return strategy.run(on_replica)

    return model, gradients, exchange


def _data(batch: int):
    import tensorflow as tf

    random = tf.random.Generator.from_seed(1)
    return random.normal([batch, INPUTS]), random.uniform([batch], maxval=CLASSES, dtype=tf.int32)


def _median(call, repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):  # the first ones trace, and warm caches
        begin = time.perf_counter()
        result = call()
        _wait(result)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def _wait(result) -> None:
    if hasattr(result, "numpy"):
        result.numpy()
