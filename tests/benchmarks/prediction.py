"""Does the cost model predict this machine's steps? `python -m tests.benchmarks prediction`: two minutes.

Calibrates (alone, two workers), then trains on 1 to 4 workers over the loopback and over 100 Mbit/s, five
times each in turn, and prints predicted over measured. Nothing of what is predicted enters the calibration.
"""

import statistics

from rich.table import Table

from course_utils import calibration
from course_utils.cluster import Link
from tests.benchmarks.measure import console

BATCH = 256  # examples a worker
RUNS = 5
BAR = 0.20
LINKS = {"loopback": None, "100 Mbit/s": "100Mbit"}
CASES = [(name, workers) for name in LINKS for workers in (1, 2, 3, 4) if workers > 1 or name == "loopback"]


def main() -> bool:
    """Whether every prediction lies within the bar; prints the table."""
    measured = calibration.calibrate()
    seconds = {case: [] for case in CASES}
    for run in range(RUNS):
        for name, workers in CASES[run:] + CASES[:run]:
            seconds[name, workers].append(calibration.measure_steps(workers, BATCH, _link(name)))
    table = Table(title="one training step, predicted and measured", title_justify="left")
    for heading in ("network", "workers", "predicted", "measured", "lowest - highest", "ratio", "bar", "met"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    ratios = []
    for (name, workers), values in seconds.items():
        predicted, median = measured.step(workers, BATCH, _link(name)).seconds, statistics.median(values)
        ratios.append(predicted / median)
        table.add_row(
            name,
            str(workers),
            f"{predicted * 1e3:.1f} ms",
            f"{median * 1e3:.1f} ms",
            f"{min(values) * 1e3:.1f} - {max(values) * 1e3:.1f}",
            f"{ratios[-1]:.2f}",
            f"within {BAR:.0%}",
            "yes" if _near(ratios[-1]) else "NO",
        )
    console.print(table)
    return all(map(_near, ratios))


def _near(ratio: float) -> bool:
    return 1 - BAR <= ratio <= 1 + BAR


def _link(name: str) -> Link | None:
    return Link(LINKS[name]) if LINKS[name] else None
