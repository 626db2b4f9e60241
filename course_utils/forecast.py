"""What `course calibrate` and `course predict` print."""

import math
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from course_utils import costmodel
from course_utils.calibration import HIDDEN, Calibration, gradient_bytes
from course_utils.costmodel import Failures, Job, Network

MOST_DRAWS = 100_000_000  # of the simulation: some seconds
CHECKPOINT, RESTART = 30.0, 180.0  # seconds; of one checkpoint, and from a death to the next step


def print_calibration(calibration: Calibration, file: Path, console: Console | None = None) -> None:
    """None; prints what was measured and saves it in `file`."""
    console = console or Console()
    grid = Table(show_header=False, box=None)
    fixed, each = calibration.alone
    grid.add_row("one worker alone", f"{fixed * 1e3:.2f} ms a step and {each * 1e6:.1f} µs an example")
    fixed, each = calibration.beside
    grid.add_row("beside a second one", f"{fixed * 1e3:.2f} ms a step and {each * 1e6:.1f} µs an example")
    for name, network in (("loopback", calibration.loopback), ("100 Mbit/s", calibration.slow)):
        speed = f"{network.bandwidth / 1e6:.0f} MB/s"
        grid.add_row(f"a round over {name}", f"{network.latency * 1e3:.2f} ms and its bytes at {speed}")
    grid.add_row("cores", str(calibration.cores))
    console.print(grid)
    console.print(f"Saved in {calibration.save(file)}: `course predict` uses it.", soft_wrap=True)


def print_forecast(
    file: Path,
    *,
    workers: int,
    network: str,
    latency: str,
    batch: int,
    gradients: float | None,
    per_example: str | None,
    spread: float,
    between_failures: str,
    hours: float,
    console: Console | None = None,
) -> None:
    """None; prints the step, the efficiency and the cost of failures from 1 worker to `workers`."""
    console = console or Console()
    job, source = _job(file, gradients, per_example, spread)
    net = Network.of(network, latency)
    failures = Failures(costmodel.seconds(between_failures), CHECKPOINT, RESTART)
    wanted = max(1, round(hours * 3600 / costmodel.step(job, workers, batch, net).seconds))
    steps = min(wanted, max(1, MOST_DRAWS // workers))
    run = costmodel.simulate(job, workers, batch, net, steps=steps, failures=failures)
    console.print(
        f"Each worker a machine of its own, {source}; {batch} examples each, "
        f"{job.gradient_bytes / 1e6:.1f} MB of gradients, ring all-reduce over {network}."
    )
    console.print(_steps(job, _counts(workers), batch, net, failures))
    worked = (run.work + run.wait + run.communication) / 3600
    if steps < wanted:
        console.print(f"Of the {hours:g} hours the first {worked:.3g} were simulated: that is enough work.")
    console.print(
        f"Simulated, {worked:.3g} hours of steps on {workers} workers: {run.seconds / 3600:.3g} hours, "
        f"{run.failures} failures, {run.lost / 3600:.1f} hours lost to them, "
        f"{run.checkpoints / 3600:.1f} hours of writing checkpoints."
    )


def _job(file: Path, gradients: float | None, per_example: str | None, spread: float) -> tuple[Job, str]:
    if per_example is not None:
        bytes_ = gradients * 1e6 if gradients is not None else float(gradient_bytes(HIDDEN))
        return Job(costmodel.seconds(per_example), 0.0, bytes_, spread=spread), f"{per_example} an example"
    job = replace(Calibration.load(file).job(), spread=spread)
    if gradients is not None:
        job = replace(job, gradient_bytes=gradients * 1e6)
    return job, "as quick as this one"


def _counts(workers: int) -> list[int]:
    """1, 10, 100 … and `workers` itself."""
    return sorted({10**power for power in range(int(math.log10(workers)) + 1)} | {workers})


def _steps(job: Job, counts: list[int], batch: int, net: Network, failures: Failures) -> Table:
    grid = Table("workers")
    for title in ("step", "work", "wait", "all-reduce", "weak", "strong", "save every"):
        grid.add_column(title, justify="right")
    for count in counts:
        step = costmodel.step(job, count, batch, net)
        strong = costmodel.strong_efficiency(job, count, batch, net)
        grid.add_row(
            str(count),
            *(_time(part) for part in (step.seconds, step.work, step.wait, step.communication)),
            f"{costmodel.weak_efficiency(job, count, batch, net):.0%}",
            f"{strong:.1%}" if strong < 0.1 else f"{strong:.0%}",
            _time(failures.daly(count)),
        )
    grid.caption = (
        "wait: for the slowest. weak: every worker keeps its batch. strong: one worker's, shared out. "
        f"A checkpoint takes {CHECKPOINT:.0f} s, a restart {RESTART:.0f} s."
    )
    return grid


def _time(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= 2 * length or unit == "ms":
            return f"{seconds / length:.3g} {unit}"
    raise AssertionError(seconds)
