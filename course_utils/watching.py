"""A table and a timeline of all workers that change in place while the job runs.

    live = cu.watching.Live()
    cu.LocalCluster(workers=2, output=live).run(train)

where `train` reports its steps: give `report=cu.cluster.report` to `callbacks.WorkerMetrics` in `fit`, or to
`timing.Recorder` in a loop of your own. The last state stays in the saved notebook, and `live.steps` has
every worker's steps afterwards.
"""

import base64
import dataclasses
import html
import math
import time

from course_utils.cluster.output import Quiet, _in_notebook
from course_utils.timing import PHASES, Step, median, phases

RECENT = 5  # steps of which the table shows medians
MEDIANS = f"medians of the last {RECENT} steps"
SHOWN = 12  # steps in the timeline
PAUSE = 0.25  # seconds between two drawings

_FIELDS = {field.name for field in dataclasses.fields(Step)}
_COLUMNS = ("worker", "step", "examples/s", "step", "wait for data", "compute", "exchange", "own loss")


class Live(Quiet):
    """What `LocalCluster(output=…)` shows of the steps that its workers report: a table and a timeline.

    Figures of the table are medians over the last RECENT steps in which nothing was traced: few, since the
    first steps of a job may have found their data read ahead. Times are in milliseconds. "exchange" is
    waiting for other workers and the all-reduce together. Where no notebook listens, the table is printed
    once, at the end. What workers print is not shown; `LocalCluster.logs` has it.
    """

    def __init__(self):
        self.start([])

    def start(self, names: list[str]) -> None:
        self.names, self.steps = names, [[] for _ in names]
        self._handle, self._next = None, 0.0

    def report(self, number: int, values: dict) -> None:
        """None; takes a step, as WorkerMetrics and Recorder report it, and lets other reports pass."""
        if set(values) >= _FIELDS:
            self.steps[number].append(Step(**{name: values[name] for name in _FIELDS}))
            if time.monotonic() >= self._next:
                self._draw()

    def close(self) -> None:
        if any(self.steps):
            self._draw()
            if self._handle is None:
                print(self)

    def _draw(self) -> None:
        self._next = time.monotonic() + PAUSE
        if not _in_notebook():
            return
        from IPython.display import display

        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def rows(self) -> list[list[str]]:
        """The table's rows as they are shown, one a worker."""
        return [_row(name, steps) for name, steps in zip(self.names, self.steps, strict=True)]

    def __repr__(self) -> str:
        rows = ("".join(f"{cell:>15}" for cell in row) for row in (_COLUMNS, *self.rows()))
        return "\n".join((*rows, f"({MEDIANS})"))

    def _repr_html_(self) -> str:
        picture = base64.b64encode(self.svg().encode()).decode()
        # An image, not SVG in the page: a notebook that is not trusted would lose that.
        return (
            f"{self._table()}"
            f'<img alt="{html.escape(self._in_words())}" style="width:100%;max-width:900px" '
            f'src="data:image/svg+xml;base64,{picture}">'
        )

    def _table(self) -> str:
        from course_utils.plots import worker_colour

        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = ""
        for number, row in enumerate(self.rows()):
            mark = f"border-left:6px solid {worker_colour(number)};padding-left:8px"
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
            body += f'<tr><td style="{mark}">{html.escape(row[0])}</td>{cells}</tr>'
        told = f"<caption>{MEDIANS}</caption>"
        return f"<table>{told}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _in_words(self) -> str:
        told = (f"{name}: {len(steps)} steps" for name, steps in zip(self.names, self.steps, strict=True))
        return f"Timeline of the last steps. {', '.join(told)}."

    def svg(self) -> str:
        """The timeline of the last steps of all workers as an SVG picture."""
        recent = [_latest(steps, SHOWN) for steps in self.steps]
        return _svg(self.names, phases(recent))


def _row(name: str, steps: list[Step]) -> list[str]:
    recent = _latest(steps, RECENT)
    if not recent:
        return [name, str(len(steps)), *["…"] * 6]
    rate = median([step.rate for step in recent])
    loss = steps[-1].loss
    return [
        name,
        str(steps[-1].number + 1),
        f"{rate:,.0f}",
        *(_milliseconds(recent, part) for part in ("seconds", "waiting", "compute", "exchange")),
        "–" if math.isnan(loss) else f"{loss:.3f}",
    ]


def _latest(steps: list[Step], count: int) -> list[Step]:
    """The last steps in which nothing was traced."""
    return [step for step in steps[-count - 1 :] if not step.traced][-count:]


def _milliseconds(steps: list[Step], part: str) -> str:
    """The median of a part of the steps; a dash where nothing tells it."""
    values = [getattr(step, part) for step in steps]
    return "–" if None in values else f"{1000 * median(values):.1f} ms"


LEFT, RIGHT, HEIGHT, TOP = 90, 870, 30, 8
GREY = 7  # of the palette: no worker in particular, for the legend


def _svg(names: list[str], spans: list[list[tuple[str, float, float]]]) -> str:
    last = max((end for row in spans for *_, end in row), default=0.0) or 1.0
    shapes, bottom = [], TOP + HEIGHT * len(names)
    for number, (name, row) in enumerate(zip(names, spans, strict=True)):
        top = TOP + HEIGHT * number
        shapes.append(f'<text x="{LEFT - 8}" y="{top + 18}" text-anchor="end">{html.escape(name)}</text>')
        for phase, start, end in row:
            left, width = LEFT + (RIGHT - LEFT) * start / last, (RIGHT - LEFT) * (end - start) / last
            size = f'x="{left:.2f}" y="{top + 3}" width="{width:.2f}" height="{HEIGHT - 8}"'
            shapes.append(f'<rect {size} fill="{_fill(phase, number)}"/>')
    shapes += _axis(last, bottom) + _legend(bottom + 34)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {bottom + 52}" '
        f'font-family="sans-serif" font-size="13" fill="#222222">'
        f"<defs>{''.join(map(_hatch, [*range(len(names)), GREY]))}</defs>"
        f'<rect width="900" height="{bottom + 52}" fill="white"/>{"".join(shapes)}</svg>'
    )


def _fill(phase: str, number: int) -> str:
    """How a phase of a worker is filled: as in `plots.step_phases`, hatched while it waits for its data."""
    from course_utils.plots import phase_colour

    return f"url(#hatch{number})" if phase == "wait for data" else phase_colour(phase, number)


def _hatch(number: int) -> str:
    """The pattern of worker `number`: lines in its colour on a pale ground."""
    from course_utils.plots import phase_colour

    ground, line = phase_colour("wait for data", number), phase_colour("compute", number)
    return (
        f'<pattern id="hatch{number}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{ground}"/>'
        f'<rect width="1.5" height="6" fill="{line}"/></pattern>'
    )


def _axis(last: float, bottom: float) -> list[str]:
    """A line with five ticks, in milliseconds."""
    shapes = [f'<path d="M{LEFT} {bottom}H{RIGHT}" stroke="#222222"/>']
    for part in range(5):
        x = LEFT + (RIGHT - LEFT) * part / 4
        unit = " ms" if part == 4 else ""
        shapes.append(f'<path d="M{x} {bottom}v4" stroke="#222222"/>')
        shapes.append(
            f'<text x="{x}" y="{bottom + 17}" text-anchor="middle">{1000 * last * part / 4:.0f}{unit}</text>'
        )
    return shapes


def _legend(top: float) -> list[str]:
    shapes = []
    for place, phase in enumerate(PHASES):
        x, box = LEFT + 190 * place, f'width="14" height="12" fill="{_fill(phase, GREY)}" stroke="#8C8C8C"'
        shapes.append(f'<rect x="{x}" y="{top - 10}" {box}/>')
        shapes.append(f'<text x="{x + 20}" y="{top}">{phase}</text>')
    return shapes
