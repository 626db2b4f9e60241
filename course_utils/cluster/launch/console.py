"""What `course launch` writes: the workers' lines with their names, and its own sentences beside them."""

import sys
from collections.abc import Sequence

import click

# The colours that the workers have in every picture of the course (`plots.WORKERS`, which needs matplotlib).
COLOURS = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
    (150, 150, 150),
)


class Console:
    """Workers' lines to standard output, the launcher's own to standard error; in colour on a terminal."""

    def __init__(self, names: Sequence[str]):
        width = max(map(len, names))
        self.prefixes = [
            click.style(f"[{name}]".ljust(width + 2), fg=COLOURS[number % len(COLOURS)])
            for number, name in enumerate(names)
        ]

    def show(self, number: int, lines: Sequence[str]) -> None:
        """Write lines of worker `number`; click leaves the colours out where nobody sees them."""
        if lines:
            click.echo("\n".join(f"{self.prefixes[number]} {line}" for line in lines))

    def say(self, sentence: str) -> None:
        """Write a sentence of the launcher's own."""
        sys.stdout.flush()
        click.echo(f"{click.style('[launch]', bold=True)} {sentence}", err=True)
