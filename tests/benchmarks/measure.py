"""What every benchmark shares: sides measured in turn, medians, ratios, one way to print them."""

import statistics
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def in_turn(sides: dict[str, Callable[[int], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each side, `repeats` times, the order turned by one each round.

    Taking turns spreads whatever else the machine is doing over all sides alike.
    """
    seconds = {name: [] for name in sides}
    names = list(sides)
    for round_ in range(repeats):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            seconds[name].append(sides[name](round_))
            console.print(f"  round {round_ + 1}/{repeats}  {name}: {seconds[name][-1]:.2f} s")
    return seconds


def print_ratios(
    title: str, seconds: dict[str, Sequence[float]], reference: str, bars: dict[str, float]
) -> None:
    """Print medians and how many times faster than `reference` each side is; `bars` names what is wanted."""
    base = statistics.median(seconds[reference])
    table = Table(title=title, title_justify="left")
    for heading in ("side", "median", "lowest - highest", f"times faster than {reference}", "bar", "met"):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for name, values in seconds.items():
        ratio, bar = base / statistics.median(values), bars.get(name)
        table.add_row(
            name,
            f"{statistics.median(values):.2f} s",
            f"{min(values):.2f} - {max(values):.2f}",
            f"{ratio:.2f}",
            f"at least {bar:g}" if bar else "",
            ("yes" if ratio >= bar else "NO") if bar else "",
        )
    console.print(table)
