"""What a step, a job and a mistake cost on a cluster that is not there.

A step of synchronous data parallelism takes as long as the slowest worker's work, and then as long as the
all-reduce. Both are written down here twice: as closed forms, which show *why*, and as a seeded simulation,
which needs no assumption about the distribution. Where there is a closed form the two agree; tests say so.

Units: seconds, bytes, bytes a second. Nothing here imports TensorFlow.

Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
IJHPCA 19(1), 2005 (the alpha-beta model, ring and tree); Young, "A first order approximation to the optimum
checkpoint interval", CACM 17(9), 1974; Daly, "A higher order estimate of the optimum checkpoint interval for
restart dumps", FGCS 22(3), 2006.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from course_utils.errors import ConfigError
from course_utils.units import bits_per_second, seconds

FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Network:
    """What a message costs: `latency` seconds to begin (alpha), and 1/`bandwidth` for each byte (beta)."""

    latency: float
    bandwidth: float

    def __post_init__(self):
        _positive("Network", latency=self.latency, bandwidth=self.bandwidth)

    @classmethod
    def of(cls, bandwidth: str, latency: str = "20us") -> "Network":
        """The network with this bandwidth in bits a second ("25Gbit") and this latency ("20us")."""
        return cls(seconds(latency), bits_per_second(bandwidth) / 8)

    def message(self, size: float) -> float:
        """Seconds until one message of `size` bytes has arrived."""
        return self.latency + size / self.bandwidth


def ring(workers: int, size: float, network: Network) -> float:
    """Seconds for a ring all-reduce of `size` bytes: 2(n-1) rounds, each with 1/n of the array."""
    _check_array("ring", workers, size)
    return 2 * (workers - 1) * network.message(size / workers) if workers > 1 else 0.0


def tree(workers: int, size: float, network: Network) -> float:
    """Seconds for a sum up a binary tree and a broadcast down it: 2 log2(n) rounds with the whole array."""
    _check_array("tree", workers, size)
    return 2 * math.ceil(math.log2(workers)) * network.message(size) if workers > 1 else 0.0


def hierarchical(workers: int, size: float, network: Network, *, group: int, inner: Network) -> float:
    """Seconds when `group` workers share a machine: to one of them, a ring of those, and back.

    `inner` is the network in a machine, `network` the one between machines. Within a machine the reduction
    and the broadcast are rings too, cut in two: n-1 rounds each.
    """
    _whole("hierarchical", workers=workers, group=group)
    if workers % group:
        raise ConfigError(
            f"{workers} workers cannot be dealt out in groups of {group}.",
            expected="a group size that divides the number of workers.",
        )
    return ring(group, size, inner) + ring(workers // group, size, network)


ALL_REDUCES = {"ring": ring, "tree": tree}


@dataclass(frozen=True)
class Job:
    """One training job, as the model sees it.

    per_example: seconds of forward and backward pass an example, on one worker. fixed: seconds a step that do
    not depend on the batch. gradient_bytes: what is summed each step. input_per_example: seconds an example
    for reading and decoding; it overlaps with computing, so only what is longer counts. overlap: which part
    of the all-reduce hides behind the backward pass, 0 (none, as here on a laptop) to 1.
    spread: the coefficient of variation of a worker's compute time from step to step (0: all alike);
    computing times are log-normal, so that none is negative and slow ones are very slow now and then.
    """

    per_example: float
    fixed: float
    gradient_bytes: float
    input_per_example: float = 0.0
    overlap: float = 0.0
    spread: float = 0.0

    def __post_init__(self):
        _positive("Job", per_example=self.per_example)
        _not_negative("Job", fixed=self.fixed, gradient_bytes=self.gradient_bytes, spread=self.spread)
        _not_negative("Job", input_per_example=self.input_per_example, overlap=self.overlap)
        if self.overlap > 1:
            raise ConfigError(f"Job(overlap={self.overlap}) cannot be.", expected="a part, from 0 to 1.")

    def varying(self, spread: float) -> "Job":
        """The same job on workers whose times vary by `spread` from step to step."""
        return replace(self, spread=spread)

    def work(self, batch: float) -> float:
        """Seconds one worker needs for a step of its own `batch` examples, by itself."""
        return max(self.fixed + self.per_example * batch, self.input_per_example * batch)


@dataclass(frozen=True)
class Step:
    """Where the seconds of one step go, on average. `wait` is for the slowest worker."""

    work: float
    wait: float
    communication: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.work + self.wait + self.communication


def step(
    job: Job,
    workers: int,
    batch: float,
    network: Network,
    *,
    cores: int | None = None,
    all_reduce: str = "ring",
) -> Step:
    """The step of `workers` workers with `batch` examples each.

    cores: how many workers really compute at one time, where they share a machine (a laptop); None: each has
    its own. On shared cores more workers do not compute more, which is why a laptop's times may not be
    extrapolated as they are.
    """
    _whole("step", workers=workers, **({} if cores is None else {"cores": cores}))
    _not_negative("step", batch=batch)
    shared = 1.0 if cores is None else max(1.0, workers / cores)
    work = job.work(batch) * shared
    talk = _by_name(all_reduce)(workers, job.gradient_bytes, network)
    hidden = min(talk * job.overlap, work)
    return Step(work, work * (slowest_of(workers, job.spread) - 1), talk - hidden)


def slowest_of(workers: int, spread: float) -> float:
    """The mean of the longest of `workers` log-normal times of mean 1 and coefficient of variation `spread`.

    The closed form is the integral of 1 - F(t)^n, done in the normal's own coordinate.
    """
    if workers == 1 or spread == 0:
        return 1.0
    sigma = math.sqrt(math.log1p(spread**2))
    z = np.linspace(-8, 8 + sigma, 20_001)  # the largest of 10,000 normals lies near 3.9
    cumulated = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z]) ** workers
    times = np.exp(sigma * z - sigma**2 / 2)
    return float(times[0] + np.trapezoid(1 - cumulated, times))


def weak_efficiency(job: Job, workers: int, batch: float, network: Network, **options) -> float:
    """Throughput of `workers` workers over `workers` times that of one; each keeps its `batch`, 0 to 1."""
    alone = step(job, 1, batch, network, **options).seconds
    return alone / step(job, workers, batch, network, **options).seconds


def strong_efficiency(job: Job, workers: int, global_batch: float, network: Network, **options) -> float:
    """Speed-up over one worker, divided by `workers`; the `global_batch` stays and is shared out, 0 to 1."""
    alone = step(job, 1, global_batch, network, **options).seconds
    return alone / workers / step(job, workers, global_batch / workers, network, **options).seconds


@dataclass(frozen=True)
class Failures:
    """How often a worker dies, and what that costs a job that starts all again from its last checkpoint.

    between: mean seconds between failures of *one* worker. checkpoint: seconds to write one.
    restart: seconds from a death until training goes on.
    """

    between: float
    checkpoint: float
    restart: float

    def __post_init__(self):
        _positive("Failures", between=self.between, checkpoint=self.checkpoint)
        _not_negative("Failures", restart=self.restart)

    def of_job(self, workers: int) -> float:
        """Mean seconds between failures of the job: any worker's death is the job's."""
        _whole("Failures", workers=workers)
        return self.between / workers

    def young(self, workers: int) -> float:
        """Seconds of work between checkpoints, Young 1974: sqrt(2 · checkpoint · time between failures)."""
        return math.sqrt(2 * self.checkpoint * self.of_job(workers))

    def daly(self, workers: int) -> float:
        """The same to a higher order, Daly 2006 eq. 37; for failures rarer than half a checkpoint's time."""
        failure, write = self.of_job(workers), self.checkpoint
        if write >= 2 * failure:
            return failure
        ratio = write / (2 * failure)
        return math.sqrt(2 * write * failure) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write

    def overhead(self, workers: int, interval: float) -> float:
        """Wall-clock seconds for each second of work, with a checkpoint every `interval` seconds of work.

        Daly 2006 eq. 20, exact for exponentially distributed failures that may strike at any time, in a
        checkpoint and in a restart too.
        """
        _positive("overhead", interval=interval)
        failure = self.of_job(workers)
        if max(interval + self.checkpoint, self.restart) > 700 * failure:
            return math.inf  # longer than a float can say
        grown = math.expm1((interval + self.checkpoint) / failure)
        return failure * math.exp(self.restart / failure) * grown / interval


@dataclass(frozen=True)
class Simulated:
    """What happened in one simulated run: seconds in all, and where they went."""

    seconds: float
    work: float
    wait: float
    communication: float
    checkpoints: float
    lost: float  # work that had to be done again, and restarts
    failures: int


def simulate(
    job: Job,
    workers: int,
    batch: float,
    network: Network,
    *,
    steps: int,
    seed: int = 0,
    failures: Failures | None = None,
    interval: float | None = None,
    all_reduce: str = "ring",
) -> Simulated:
    """One run of `steps` steps, step by step and worker by worker, with chance drawn from `seed`.

    Every worker's computing time is drawn for every step, and the step takes the longest. With `failures`,
    deaths come at exponentially distributed times and cost what was done since the last checkpoint;
    `interval` seconds of work lie between checkpoints (None: Daly's).
    """
    _whole("simulate", workers=workers, steps=steps)
    _not_negative("simulate", batch=batch)
    if interval is not None:
        _positive("simulate", interval=interval)
    random = np.random.default_rng(seed)
    work, talk = job.work(batch), _by_name(all_reduce)(workers, job.gradient_bytes, network)
    exposed = talk - min(talk * job.overlap, work)
    longest = work * _longest(random, workers, steps, job.spread)
    run = Simulated(
        seconds=float(longest.sum() + steps * exposed),
        work=work * steps,
        wait=float(longest.sum() - work * steps),
        communication=exposed * steps,
        checkpoints=0.0,
        lost=0.0,
        failures=0,
    )
    if failures is None:
        return run
    return _with_failures(run, longest + exposed, failures, workers, interval, random)


def _longest(random, workers: int, steps: int, spread: float) -> np.ndarray:
    """For each step the longest of the workers' times, relative to their mean; drawn in pieces of 8 MB."""
    if spread == 0:
        return np.ones(steps)
    sigma = math.sqrt(math.log1p(spread**2))
    rows = max(1, (1 << 20) // workers)
    tops = [
        random.standard_normal((min(rows, steps - done), workers)).max(axis=1)
        for done in range(0, steps, rows)
    ]
    return np.exp(sigma * np.concatenate(tops) - sigma**2 / 2)  # exp grows, so the largest stays the largest


def _with_failures(run, durations, failures, workers, interval, random) -> Simulated:
    """The same run with deaths: walk from checkpoint to checkpoint, and do again what was lost."""
    mean = failures.of_job(workers)
    clock = lost = 0.0
    deaths, next_death = 0, random.exponential(mean)
    segments = _segments(durations, failures.daly(workers) if interval is None else interval)
    for segment in segments:
        restart, needed = 0.0, segment + failures.checkpoint
        _refuse_no_progress(failures.restart + needed, mean)
        while clock + restart + needed > next_death:
            deaths += 1
            lost += next_death - clock
            clock, restart = next_death, failures.restart
            next_death += random.exponential(mean)
        clock, lost = clock + restart + needed, lost + restart
    written = len(segments) * failures.checkpoint
    return replace(run, seconds=clock, checkpoints=written, lost=lost, failures=deaths)


def _segments(durations: np.ndarray, interval: float) -> list[float]:
    """The work between checkpoints: whole steps, the last of which crosses a multiple of `interval`."""
    number = np.floor(np.cumsum(durations) / interval - 1e-9)
    first = np.flatnonzero(np.diff(number, prepend=-1.0))
    return np.add.reduceat(durations, first).tolist()


def _refuse_no_progress(needed: float, mean: float) -> None:
    # exp(needed/mean) deaths are to be expected before so long a time without one
    if needed > mean * math.log(1e6):
        raise ConfigError(
            f"This job never ends: it needs {needed:.0f} s without a death, with one every {mean:.2g} s.",
            cure="Write checkpoints more often, or use fewer workers.",
        )


@dataclass(frozen=True)
class Published:
    """A run that others have published, to hold the model against: is its efficiency of the right size?

    The network joins machines, so a machine with its GPUs is one worker here. `efficiency` is what they
    report. How far their all-reduce hid behind the backward pass they do not say.
    """

    name: str
    source: str
    job: Job  # of one machine: an "example" is one for each of its GPUs
    machines: int
    batch: int  # for each GPU
    network: Network
    efficiency: float

    def predicted(self) -> tuple[float, float]:
        """The model's efficiency when nothing of the all-reduce is hidden, and when as much as can be."""
        least, most = (
            weak_efficiency(replace(self.job, overlap=overlap), self.machines, self.batch, self.network)
            for overlap in (0.0, 1.0)
        )
        return least, most


def published() -> list[Published]:
    """Runs on up to 512 GPUs, with what their authors state about machine, network and speed."""
    # Goyal et al.: 29 hours on 8 GPUs for 90 epochs of 1.28 million images
    goyal = 29 * 3600 * 8 / (90 * 1.281e6)
    return [
        Published(
            name="ResNet-50, 256 GPUs",
            source="Goyal et al., Accurate, Large Minibatch SGD, arXiv:1706.02677, 2017",
            job=Job(per_example=goyal, fixed=0.0, gradient_bytes=FLOAT32 * 25.6e6),
            machines=32,
            batch=32,
            network=Network.of("50Gbit"),
            efficiency=0.90,
        ),
        Published(
            name="ResNet-101, 512 GPUs",
            source="Horovod, Benchmarks (docs/benchmarks.rst): 1656.82 images/s on 16 GPUs",
            job=Job(per_example=16 / 1656.82, fixed=0.0, gradient_bytes=FLOAT32 * 44.5e6),
            machines=128,
            batch=64,
            network=Network.of("25Gbit"),
            efficiency=0.90,
        ),
        Published(
            name="VGG-16, 512 GPUs",
            source="Horovod, Benchmarks; 154 images/s on one P100: TensorFlow, Benchmarks (DGX-1), 2017",
            job=Job(per_example=1 / 154, fixed=0.0, gradient_bytes=FLOAT32 * 138.4e6),
            machines=128,
            batch=64,
            network=Network.of("25Gbit"),
            efficiency=0.68,
        ),
    ]


def _by_name(name: str):
    if name not in ALL_REDUCES:
        raise ConfigError(f"There is no all-reduce {name!r}.", expected=f"one of {', '.join(ALL_REDUCES)}.")
    return ALL_REDUCES[name]


def _check_array(what: str, workers: int, size: float) -> None:
    _whole(what, workers=workers)
    _not_negative(what, size=size)


def _positive(what: str, **values) -> None:
    _check(what, values, lambda value: value > 0, "a number greater than 0")


def _not_negative(what: str, **values) -> None:
    _check(what, values, lambda value: value >= 0, "0 or a number greater than 0")


def _whole(what: str, **values) -> None:
    _check(what, values, lambda value: value >= 1 and value == int(value), "a whole number from 1")


def _check(what: str, values: dict, allowed, expected: str) -> None:
    for name, value in values.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not allowed(value):
            raise ConfigError(f"{what}({name}={value!r}) cannot be.", expected=f"{expected}.")
