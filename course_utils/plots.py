"""Every picture of the course, in one palette: the same colour is the same worker everywhere.

Each picture function returns a matplotlib Figure with labelled axes and units, made for a notebook's width
(9 inches). `show(figure, alt=...)` displays it with its alternative text.

Colours of workers: Okabe and Ito, Color Universal Design, 2008; told apart with any colour vision. What is
not a worker (a formula, a replica count, a model) is drawn in `SERIES`, which shares no colour with them.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import LogFormatterMathtext, MaxNLocator, NullLocator

WIDTH = 9.0  # inches: a notebook's text width
WORKERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#5F5F5F")
SERIES = ("#222222", "#882255", "#8C8C8C", "#44AA99")
FIFTH = "#999933"  # where four things are not enough
LINES = ("-", "--", ":", "-.")
INK = "#222222"
FAINT = "#D9D9D9"

_LOOK = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.prop_cycle": matplotlib.cycler(color=SERIES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 100,
    "figure.figsize": (WIDTH, 3.4),
    "font.size": 10,
    "legend.frameon": False,
    "savefig.dpi": 110,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def worker_colour(i: int) -> str:
    """The colour of worker (or rank, or replica) `i`, as a hex string; after eight they repeat."""
    return WORKERS[i % len(WORKERS)]


def series_colour(i: int) -> str:
    """The colour of the i-th thing that is not a worker, as a hex string; after four they repeat."""
    return SERIES[i % len(SERIES)]


def style() -> None:
    """None; from here on every matplotlib figure of this process has the look of the course."""
    matplotlib.rcParams.update(_LOOK)


def show(figure: Figure, alt: str) -> None:
    """None; displays `figure` in the notebook with `alt` as its alternative text.

    `alt` says what a reader who cannot see the picture would miss: the finding, not "a plot". Raises
    ValueError when it is empty. Outside a notebook nothing is shown.
    """
    if not alt.strip():
        raise ValueError("show() needs alt text: one sentence that says what the picture shows")
    if not _in_notebook():
        return
    from IPython.display import display

    display(_bundle(png(figure), " ".join(alt.split())), raw=True, metadata={"image/png": {"alt": alt}})


def png(figure: Figure) -> bytes:
    """`figure` as the bytes of a PNG file, drawn in the look of the course."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_LOOK):
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def device_map(workers: Sequence[Sequence[str]], machine: str = "this machine", title: str = "") -> Figure:
    """A map machine → workers → replicas → devices.

    `workers`: for each worker the names of its devices, such as `[["CPU:0", "CPU:1"], ["CPU:0", "CPU:1"]]`.
    Replicas are numbered over all workers, as TensorFlow numbers them.
    """
    most = max(map(len, workers))
    figure, axis = _figure(height=2.9)
    axis.set(xlim=(0, len(workers) * (most + 0.4) + 0.4), ylim=(0, 3.75))
    axis.axis("off")
    _box(axis, 0.05, 0.05, axis.get_xlim()[1] - 0.1, 3.6, "#F4F4F4", FAINT)
    axis.text(0.25, 3.28, machine, weight="bold")
    replica = 0
    for index, devices in enumerate(workers):
        left, colour = 0.4 + index * (most + 0.4), worker_colour(index)
        _box(axis, left, 0.3, most, 2.75, _lighter(colour), colour)
        axis.text(left + 0.15, 2.68, f"worker {index}", weight="bold")
        for place, device in enumerate(devices):
            _replica(axis, left + place * most / len(devices), most / len(devices), colour, replica, device)
            replica += 1
    axis.set_title(title or f"{_count(len(workers), 'worker')}, {_count(replica, 'replica')}")
    return figure


def strips(
    steps: Sequence[Sequence[Sequence[int]]],
    title: str = "",
    unit: str = "example id",
    names: Sequence[str] | None = None,
) -> Figure:
    """Coloured strips of example ids: one row a step, one colour a replica.

    `steps[s][r]` holds the ids that replica r saw in step s. A replica that saw none is an empty dashed box.
    `names` call the rows something else than "step 0", "step 1", …
    """
    figure, axis = _figure(height=0.9 + 0.55 * len(steps))
    right = 0.0
    for row, replicas in enumerate(steps):
        at = 0.0
        for replica, ids in enumerate(replicas):
            at = _run_of_cells(axis, at, row, ids, worker_colour(replica)) + 0.3
        right = max(right, at)
    axis.set(xlim=(-0.2, right), ylim=(len(steps) - 0.4, -0.6), xticks=[], title=title)
    axis.set_yticks(range(len(steps)), names or [f"step {s}" for s in range(len(steps))])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    replicas = max(map(len, steps))
    _legend_below(
        figure, [(f"replica {r}", worker_colour(r)) for r in range(replicas)], title=f"cell = {unit}"
    )
    return figure


def record_grid(
    panels: Mapping[str, Sequence | Mapping[str, Sequence[Sequence[int]]]],
    records: int,
    files: Sequence[int] | Mapping[str, Sequence[int]] = (),
    columns: int = 2,
) -> Figure:
    """Who received which record: a panel each, a row a worker, a column a record; holes and duplicates below.

    `panels[title]` has for each worker its steps, and for each step a list of record numbers; a dict of such
    names the rows otherwise than "worker 0", …. In a cell stands the step in which the record came first
    (where there is room), in the last row how often it came. `files`, the number of records in each, draws
    the borders between files; a dict draws them in the panels that it names. A name has one colour in all
    panels: the workers' in order.
    """
    panels = {title: _named_rows(rows) for title, rows in panels.items()}
    names = dict.fromkeys(name for rows in panels.values() for name in rows)
    colours = {name: worker_colour(i) for i, name in enumerate(names)}
    lines, most = -(-len(panels) // columns), max(map(len, panels.values()))
    style()
    figure = Figure(figsize=(WIDTH, 0.6 + lines * (0.99 + 0.24 * most)), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, rows) in zip(axes.flat, panels.items(), strict=False):
        for row, (name, steps) in enumerate(rows.items()):
            _received(axis, row, steps, records, colours[name], columns)
        _times_received(axis, len(rows), rows.values(), records, columns)
        _cells_only(axis, records, most + 1.25, title)
        axis.set_yticks([*np.arange(len(rows)) + 0.45, len(rows) + 0.7], [*rows, "together"])
        sizes = files.get(title, ()) if isinstance(files, Mapping) else files
        _borders(axis, sizes, records, len(rows) + 1.25)
    counted = {"once": FAINT, "never: a hole": INK, "twice or more": SERIES[1]}
    note = "A column is a record" + "; lines divide the files" * bool(len(files))
    note += "; a number is the step in which it came" * _roomy(records * columns) + ". Together, it came"
    _legend_below(figure, list(counted.items()), title=note)
    return figure


def copies_table(
    rows: Mapping[str, Sequence[np.ndarray]], title: str = "", column: str = "replica"
) -> Figure:
    """A table replica × variable: one grey bar where all copies are equal, boxes of their own where not.

    `rows[name][r]` is the copy of replica r, of any shape. Of a larger variable the entry is shown at which
    its copies are furthest apart, or the largest where they are equal; how far apart stands at the right.
    """
    figure, axis = _figure(height=0.8 + 0.46 * len(rows))
    columns = max(map(len, rows.values()))
    for row, copies in enumerate(rows.values()):
        flat = np.stack([np.ravel(copy) for copy in copies]).astype(float)
        apart = np.ptp(flat, axis=0)
        shown = flat[:, (apart if apart.any() else np.abs(flat[0])).argmax()]
        _row_of_copies(axis, row, shown, equal=not apart.any())
        verdict = "equal" if apart.max() == 0 else f"up to {apart.max():.2g} apart"
        axis.text(columns + 0.15, row + 0.45, verdict, va="center")
    _cells_only(axis, columns + 1.4, len(rows), "")
    axis.set_title(title, pad=12)
    axis.set_yticks(np.arange(len(rows)) + 0.45, list(rows))
    axis.set_xticks(np.arange(columns) + 0.45, [f"{column} {r}" for r in range(columns)])
    axis.tick_params(labelbottom=False, labeltop=True)
    return figure


def masks(panels: Mapping[str, Sequence[np.ndarray]], unit: str = "unit") -> Figure:
    """Which units each replica keeps (coloured) and which it drops (white), a panel for each kind of mask.

    `panels[title][r]` is the mask of replica r: one truth value a unit.
    """
    figure, axes = _figure(columns=len(panels), height=2.6)
    for axis, (title, kept) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for replica, place in np.ndindex(len(kept), len(kept[0])):
            colour = worker_colour(replica) if kept[replica][place] else "white"
            axis.add_patch(Rectangle((place, replica), 0.9, 0.9, facecolor=colour, edgecolor=FAINT, lw=0.8))
        _cells_only(axis, len(kept[0]), len(kept), title)
        _name_rows(axis, len(kept), "replica")
        axis.set_xlabel(f"{unit} (coloured: kept, white: dropped)")
    return figure


def timeline(
    timelines: Sequence[Sequence[tuple[str, float]]], names: Sequence[str] | None = None, title: str = ""
) -> Figure:
    """A row a worker: what it was doing when, in seconds since the run began.

    `timelines[w]` lists (stage, seconds) moments in order, such as ("server up", 0.21), as
    `LocalCluster.timeline` does. The bar between two moments leads *to* the second.
    """
    names = names or [f"worker {i}" for i in range(len(timelines))]
    figure, axis = _figure(height=1.5 + 0.5 * len(timelines))
    stages = list(dict.fromkeys(stage for moments in timelines for stage, _ in moments[1:]))
    shade = dict(zip(stages, np.linspace(0.25, 1.0, len(stages)), strict=True))
    for row, moments in enumerate(timelines):
        for (_, start), (stage, end) in itertools.pairwise(moments):
            colour = _lighter(worker_colour(row), shade[stage])
            axis.barh(row, end - start, left=start, height=0.6, color=colour, edgecolor="white", lw=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set(xlabel="seconds since the run began", title=title)
    axis.set_xlim(left=min(0.0, *(m[0][1] for m in timelines if m)))
    _legend_below(
        figure, [(f"→ {stage}", _lighter(INK, shade[stage])) for stage in stages], title="time up to"
    )
    return figure


def examples(images: np.ndarray, names: Sequence[str]) -> Figure:
    """A row of small grey pictures, each with its name. `images`: (n, height, width, 1), bright on dark."""
    figure, axes = _figure(columns=len(names), height=1.35)
    for axis, image, name in zip(np.atleast_1d(axes), images, names, strict=True):
        axis.imshow(np.squeeze(image), cmap="gray")
        axis.set_title(name, loc="center", size=9, weight="normal")
        axis.axis("off")
    return figure


def learning_curves(epochs: Sequence[Mapping[str, float]], title: str = "") -> Figure:
    """Loss and accuracy after each epoch, on training and on test data.

    `epochs[e]` has `train_loss`, `test_loss`, `train_accuracy`, `test_accuracy` (accuracies as fractions).
    """
    figure, axes = _figure(columns=2)
    number = range(1, len(epochs) + 1)
    for axis, quantity, scale in ((axes[0], "loss", 1), (axes[1], "accuracy", 100)):
        for part, colour, line in (("train", SERIES[2], "--"), ("test", SERIES[0], "-")):
            values = [scale * epoch[f"{part}_{quantity}"] for epoch in epochs]
            axis.plot(number, values, line, color=colour, marker="o", ms=4, label=part)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set(title=title or "Loss", xlabel="epoch", ylabel="mean cross-entropy (nats)")
    axes[1].set(title="Accuracy", xlabel="epoch", ylabel="right answers (%)")
    axes[1].legend()
    return figure


def curves_over_reference(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    reference: Sequence[float] | Mapping[str, Sequence[float]],
    ylabel: str,
    xlabel: str = "step",
    reference_name: str = "one device",
) -> Figure:
    """A panel each, every curve drawn over the broad grey line of the reference that it should hide.

    `panels[title][label]` and `reference` are values at step 1, 2, …; a reference a panel goes by title.
    """
    figure, axes = _figure(columns=len(panels), sharey=True)
    references = reference if isinstance(reference, Mapping) else dict.fromkeys(panels, reference)
    for axis, (title, curves) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        steps = range(1, len(references[title]) + 1)
        axis.plot(steps, references[title], color=FAINT, lw=8, label=reference_name)
        for i, (label, values) in enumerate(curves.items()):
            colour = SERIES[(0, 3, 1, 2)[i % 4]]  # grey last: the reference is grey
            axis.plot(range(1, len(values) + 1), values, LINES[i % 4], color=colour, lw=2.2, label=label)
        axis.set(title=title, xlabel=xlabel)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    np.atleast_1d(axes)[0].set(ylabel=ylabel)
    if len({tuple(curves) for curves in panels.values()}) > 1:  # other curves in each panel
        for axis in axes:
            axis.legend()
        return figure
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def differences(
    curves: Mapping[str, Sequence[float]],
    ylabel: str,
    tolerance: float | None = None,
    xlabel: str = "step",
    title: str = "",
    colours: Sequence[str] | None = None,
) -> Figure:
    """Absolute differences at step 1, 2, … on a log axis, with the tolerance as a line.

    A difference of exactly 0 has no place on a log axis: it is drawn on the bottom line.
    """
    figure, axis = _figure()
    arrays = {label: np.abs(np.asarray(values, dtype=float)) for label, values in curves.items()}
    floor = _floor(np.concatenate(list(arrays.values())), tolerance)
    for i, (label, values) in enumerate(arrays.items()):
        colour = colours[i] if colours else series_colour(i)
        steps = range(1, len(values) + 1)
        axis.plot(steps, np.maximum(values, floor), LINES[i % 4], color=colour, marker="o", ms=3, label=label)
    if tolerance:
        axis.axhline(tolerance, color=INK, lw=1)
        axis.annotate(
            f"tolerance {tolerance:.0e}".replace("e-0", "e-"),
            (1, tolerance),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
        )
    axis.set(yscale="log", xlabel=xlabel, ylabel=ylabel, title=title)
    if any((values <= floor).any() for values in arrays.values()):
        _label_floor_as_zero(axis, floor)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=len(curves))
    return figure


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    cell: str = "{:.1e}",
    log: bool = False,
    title: str = "",
    xlabel: str = "",
) -> Figure:
    """A table whose cells are coloured by value, the value written in each.

    `values`: shape (rows, columns). `label` names the quantity and its unit on the colour bar. With `log`,
    colours follow the exponent, and 0 counts as the smallest value.
    """
    values = np.asarray(values, dtype=float)
    figure, axis = _figure(height=1.5 + 0.5 * len(rows))
    norm = LogNorm(*_positive_range(values), clip=True) if log else None
    image = axis.imshow(
        np.where(values > 0, values, 1e-300) if log else values, "cividis", norm=norm, aspect="auto"
    )
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set(title=title, xlabel=xlabel)
    for (row, column), value in np.ndenumerate(values):
        shown = image.cmap(image.norm(value if value > 0 or not log else image.norm.vmin))
        axis.text(
            column, row, cell.format(value) if value else "0", ha="center", va="center", color=_ink_on(shown)
        )
    figure.colorbar(image, label=label)
    return figure


def bytes_against_workers(
    measured: Mapping[str, Mapping[int, float]],
    laws: Mapping[str, Callable[[float], float]] | None = None,
    ylabel: str = "sent by the busiest rank (MB)",
    title: str = "",
    unit: float = 1e6,
) -> Figure:
    """Bytes against the number of workers: points as measured, a line for each law.

    `measured[name][n]` is in bytes; `laws[name](n)` gives bytes as well and shares the colour of its `name`.
    `unit` is how many bytes are 1 on the axis: with `ylabel`, it makes arrays or messages of them.
    """
    figure, axis = _figure()
    for i, (name, points) in enumerate(measured.items()):
        n = sorted(points)
        has_law = name in (laws or {})
        look = {"ms": 6} if has_law else {"ms": 12, "mfc": "none", "mew": 2}  # a ring around what it confirms
        axis.plot(n, [points[k] / unit for k in n], "os^D"[i % 4], color=series_colour(i), label=name, **look)
        if has_law:
            fine = np.linspace(n[0], n[-1], 200)
            law = [laws[name](k) / unit for k in fine]
            axis.plot(fine, law, LINES[i % 4], color=series_colour(i), lw=1.2, label=f"law for {name}")
    axis.set(xlabel="workers", ylabel=ylabel, title=title)
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend()
    return figure


def collectives(held: Mapping[str, Sequence[np.ndarray]], rank_name: str = "replica") -> Figure:
    """What each rank holds before and after several collectives: a row a rank, a cell a number.

    `held["before"]` has one flat array a rank, the other entries are the results by name. A cell's colours
    are the ranks whose numbers are in it: all in a reduction, one in a gather (a longer array).
    """
    ranks, size = len(held["before"]), len(held["before"][0])
    widths = [len(arrays[0]) for arrays in held.values()]
    figure, axes = _figure(columns=len(held), height=0.9 + 0.45 * ranks, width_ratios=widths)
    for axis, (name, arrays) in zip(axes, held.items(), strict=True):
        for rank, place in np.ndindex(ranks, len(arrays[0])):
            owners = range(ranks) if len(arrays[0]) == size else [place // size]
            owners = [rank] if name == "before" else owners
            _cell(axis, place, rank, map(worker_colour, owners), f"{arrays[rank][place]:g}")
        _cells_only(axis, len(arrays[0]), ranks, f"{name}\nshape {arrays[0].shape}")
    _name_rows(axes[0], ranks, rank_name)
    return figure


def chunk_rounds(frames: Sequence[Sequence[Sequence[set[int]]]]) -> Figure:
    """The rounds of an all-reduce over a ring, one panel each: whose numbers each rank holds in each chunk.

    `frames[round][rank][chunk]` is a set of ranks, as `communication.holdings` returns it. What a round
    brought is framed, with an arrow from the neighbour that sent it (into the first row: from the last).
    """
    ranks, columns = len(frames[0]), -(-len(frames) // 2)
    style()
    figure = Figure(figsize=(WIDTH, 0.8 * ranks + 1.5), layout="constrained")
    axes = figure.subplots(2, columns)
    for axis in axes.flat[len(frames) :]:
        axis.set_axis_off()
        handles = [
            Patch(fc=_lighter(worker_colour(r), 0.55), label=f"numbers of rank {r}") for r in range(ranks)
        ]
        axis.legend(handles=handles, loc="center")
    for turn, (axis, frame) in enumerate(zip(axes.flat, frames, strict=False)):
        for rank, chunk in np.ndindex(ranks, ranks):
            _cell(axis, chunk, rank, [worker_colour(owner) for owner in sorted(frame[rank][chunk])], "")
            if turn and frame[rank][chunk] != frames[turn - 1][rank][chunk]:
                _arrived(axis, chunk, rank)
        _cells_only(axis, ranks, ranks, f"after round {turn}" if turn else "at the start", above=0.45)
        axis.set_xticks(np.arange(ranks) + 0.45, range(ranks))
        axis.set_xlabel("chunk")
    for row in axes:
        _name_rows(row[0], ranks, "rank")
    return figure


def sent_by_rank(ways: Mapping[str, Sequence[float]], ylabel: str = "sent (arrays)") -> Figure:
    """What each rank sends, a panel for each way, a bar in its colour for each rank, all on one scale."""
    figure, axes = _figure(columns=len(ways), height=2.9, sharey=True)
    for axis, (name, sent) in zip(axes, ways.items(), strict=True):
        axis.bar(range(len(sent)), sent, color=[worker_colour(rank) for rank in range(len(sent))])
        axis.set(title=name, xlabel="rank", xticks=range(len(sent)))
    axes[0].set_ylabel(ylabel)
    return figure


def epoch_times(runs: Mapping[str, Sequence[tuple[float, float]]], title: str = "") -> Figure:
    """A bar an epoch: seconds in its steps, and seconds from its last step until the loop goes on.

    `runs[name]` lists (seconds of steps, seconds at the end) for each epoch.
    """
    figure, axis = _figure(height=1.4 + 0.28 * sum(map(len, runs.values())))
    labels, row = [], 0
    for name, epochs in runs.items():
        for number, (steps, end) in enumerate(epochs, 1):
            axis.barh(row, steps, color=SERIES[2], label="steps" if row == 0 else None)
            axis.barh(row, end, left=steps, color=SERIES[1], label="waiting at the end" if row == 0 else None)
            labels.append(f"{name}, epoch {number}")
            row += 1
        row += 0.4
        labels.append(None)
    places = np.cumsum([0.0] + [1.0 if label else 0.4 for label in labels])[:-1]
    axis.set_yticks([p for p, label in zip(places, labels, strict=True) if label], [x for x in labels if x])
    axis.invert_yaxis()
    axis.set(xlabel="seconds", title=title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def one_step(gradients: Sequence[float], summed: Sequence[float], weights: Sequence[float]) -> Figure:
    """One step of data parallelism in three panels, a bar for each replica.

    Its own gradient; the sum that it holds after the all-reduce, in the colours of those who contributed; its
    copy of the weight after the update.
    """
    figure, axes = _figure(columns=3, height=3.0)
    replicas = range(len(gradients))
    colours = [worker_colour(i) for i in replicas]
    own = axes[0].bar(replicas, gradients, color=colours)
    for i in replicas:
        part = axes[1].bar(replicas, gradients[i], bottom=sum(gradients[:i]), color=colours[i])
    new = axes[2].bar(replicas, weights, color=colours)
    for axis, bars, values in zip(axes, (own, part, new), (gradients, summed, weights), strict=True):
        axis.bar_label(bars, [f"{value:.4g}" for value in values], padding=2, size=9)
        axis.axhline(0, color=INK, lw=0.8)
        axis.set(xlabel="replica", xticks=replicas)
        axis.margins(y=0.14)
    axes[0].sharey(axes[1])
    axes[0].set(title="its own gradient", ylabel="gradient (loss per unit of weight)")
    axes[1].set(title="after the all-reduce")
    axes[2].set(title="its weight after the step", ylabel="weight")
    return figure


def bytes_per_replica(held: Mapping[int, Mapping[str, float]], title: str = "") -> Figure:
    """What one replica's device holds, a stacked bar for each number of replicas.

    `held[replicas][part]` is in bytes; every bar has the same parts, the first one at the bottom.
    """
    figure, axis = _figure(height=3.2)
    bars, under = range(len(held)), np.zeros(len(held))
    for i, part in enumerate(next(iter(held.values()))):
        sizes = np.array([parts[part] / 1e6 for parts in held.values()])
        drawn = axis.bar(bars, sizes, 0.6, bottom=under, color=SERIES[i % 4], edgecolor="white", label=part)
        colour = _ink_on(SERIES[i % 4])
        axis.bar_label(drawn, [f"{size:.1f}" for size in sizes], label_type="center", color=colour, size=9)
        under += sizes
    axis.set_xticks(bars, [_count(n, "replica") for n in held])
    axis.set(ylabel="on the first replica (MB)", title=title)
    # In the order of the stack, the top of it first.
    axis.legend(
        *(part[::-1] for part in axis.get_legend_handles_labels()), loc="center left", bbox_to_anchor=(1, 0.5)
    )
    return figure


def what_each_does(jobs: Mapping[str, Sequence[str]], title: str = "") -> Figure:
    """A row a job, a cell a process: what it does, in words, and equal words in the same shade.

    `jobs[name]` lists such as `["waits", "raises ValueError: why"]`, shown up to the colon; a process that is
    not there is an empty box.
    """
    most = max(map(len, jobs.values()))
    figure, axis = _figure(height=0.9 + 0.38 * len(jobs))
    shades = {"waits": FAINT, "trains": _lighter(SERIES[3], 0.6), "raises": _lighter(SERIES[1], 0.75)}
    for (row, states), place in itertools.product(enumerate(jobs.values()), range(most)):
        said = states[place] if place < len(states) else ""
        colour = shades.get(said.partition(" ")[0], "white")
        style = {} if said else {"ls": "--", "ec": FAINT}
        axis.add_patch(Rectangle((place + 0.02, row + 0.06), 0.96, 0.88, fc=colour, lw=1, **style))
        shown = said.partition(":")[0] or "not there"
        axis.text(place + 0.5, row + 0.5, shown, ha="center", va="center", color=_ink_on(colour), size=9)
    axis.set(xlim=(0, most), ylim=(len(jobs), 0), title=title)
    axis.set_xticks(np.arange(most) + 0.5, [f"process {i}" for i in range(most)])
    axis.set_yticks(np.arange(len(jobs)) + 0.5, list(jobs))
    axis.xaxis.tick_bottom()
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return figure


def files_over_time(moments: Mapping[str, Mapping[str, int]], title: str = "") -> Figure:
    """A directory tree down the side, time to the right: which file was there when, in its writer's colour.

    `moments[when]` maps the path of each file that was there, such as "job/ckpt-4", to the worker that wrote
    it. Folders of the tree are rows without cells.
    """
    paths = sorted({path for files in moments.values() for path in files}, key=_by_number)
    rows = _tree(paths)
    figure, axis = _figure(height=1.2 + 0.27 * len(rows))
    for (column, files), (row, (path, _)) in itertools.product(enumerate(moments.values()), enumerate(rows)):
        if path in files:
            colour = worker_colour(files[path])
            axis.add_patch(Rectangle((column, row), 0.92, 0.86, color=colour, lw=0))
        elif path in paths:
            axis.add_patch(Rectangle((column, row), 0.92, 0.86, fc="white", ec=FAINT, lw=0.6))
    _cells_only(axis, len(moments), len(rows), title)
    axis.set_yticks(np.arange(len(rows)) + 0.45, [label for _, label in rows], ha="left")
    axis.tick_params(axis="y", pad=8 + 6.2 * max(len(label) for _, label in rows))
    axis.set_xticks(np.arange(len(moments)) + 0.46, list(moments))
    axis.set_xlabel("after step")
    writers = sorted({writer for files in moments.values() for writer in files.values()})
    _legend_below(figure, [(f"worker {w}", worker_colour(w)) for w in writers], title="written by")
    return figure


def _tree(paths) -> list[tuple[str, str]]:
    """(path, indented name) of every file and of the folders around them, in the order of `paths`."""
    rows: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        for depth, name in enumerate(parts):
            folder = "/" if depth + 1 < len(parts) else ""
            rows.setdefault("/".join(parts[: depth + 1]), "   " * depth + name + folder)
    return list(rows.items())


def _by_number(path) -> list:
    """A key that sorts ckpt-4 before ckpt-12."""
    return [
        [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
        for name in path.split("/")
    ]


def phase_colour(phase: str, worker: int) -> str:
    """The colour of a part of a step (one of `timing.PHASES`) on a worker, as a hex string.

    What a worker does for itself has its colour, pale while it waits for its own data; grey is waiting for
    others, black the all-reduce.
    """
    own = worker_colour(worker)
    return {"wait for data": to_hex(_lighter(own, 0.35)), "compute": own, "wait for others": FAINT}.get(
        phase, INK
    )


def step_phases(
    workers: Sequence[Sequence[tuple[str, float, float]]], names: Sequence[str] | None = None, title: str = ""
) -> Figure:
    """A row a worker: its steps, each cut into waiting for data, computing, waiting for others, all-reduce.

    `workers[w]` lists (phase, start, end) in seconds, as `timing.phases` gives them.
    """
    names = names or [f"worker {i}" for i in range(len(workers))]
    figure, axis = _figure(height=1.5 + 0.45 * len(workers))
    for row, spans in enumerate(workers):
        for phase, start, end in spans:
            hatch = "////" if phase == "wait for data" else None
            colour, edge = phase_colour(phase, row), worker_colour(row) if hatch else "none"
            width = 1000 * (end - start)
            axis.barh(row, width, left=1000 * start, height=0.62, color=colour, hatch=hatch, ec=edge, lw=0)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set(xlabel="time (ms)", title=title)
    axis.margins(x=0)
    phases = ("wait for data", "compute", "wait for others", "all-reduce")
    grey = [Patch(facecolor=phase_colour(phase, 7), label=phase) for phase in phases]
    grey[0].set(hatch="////", edgecolor=worker_colour(7), linewidth=0)
    figure.legend(
        handles=grey, loc="outside lower center", ncols=4, title="first two: in the worker's colour"
    )
    return figure


def bars_side_by_side(panels: Mapping[str, Mapping[str, float]], form: str = "{:.3g}") -> Figure:
    """A panel for each quantity, a bar with its number for each way of doing something.

    `panels[quantity][way]`; the title of a panel says quantity and unit, and each has a scale of its own.
    """
    ways = list(next(iter(panels.values())))
    figure, axes = _figure(columns=len(panels), height=1.1 + 0.36 * len(ways), sharey=True)
    for axis, (quantity, values) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        heights = [values[way] for way in ways]
        bars = axis.barh(range(len(ways)), heights, height=0.66, color=SERIES[2])
        axis.bar_label(bars, [form.format(height) for height in heights], padding=3)
        axis.set_yticks(range(len(ways)), ways)
        axis.tick_params(axis="y", length=0)
        axis.set(title=quantity, xlim=(0, 1.25 * max(heights)), xlabel="")
        axis.xaxis.set_major_locator(MaxNLocator(4))
    np.atleast_1d(axes)[0].invert_yaxis()
    return figure


def losses_by_step_and_cost(
    losses: Mapping[str, Sequence[float]], costs: Mapping[str, float], unit: str
) -> Figure:
    """The same loss curves twice: against steps, and against what the steps have cost.

    `losses[way][s]` is the loss before step s; `costs[way]` what one step of that way costs, in `unit`.
    """
    figure, axes = _figure(columns=2, height=3.6, sharey=True)
    for number, (way, values) in enumerate(losses.items()):
        colour = (*SERIES, FIFTH)[number % 5]
        look = {"color": colour, "ls": LINES[number % len(LINES)], "lw": 1.8, "label": way}
        axes[0].plot(range(len(values)), values, **look)
        axes[1].plot(np.arange(1, len(values)) * costs[way], values[1:], **look)
    axes[0].set(xlabel="step", ylabel="loss", title="The same steps")
    axes[1].set(xlabel=unit, title="The same cost", xscale="log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(losses), 5))
    return figure


def waiting(panels: Mapping[str, Sequence[tuple[float, float]]], unit: str = "ms a step") -> Figure:
    """A panel for each way to share a batch out: a bar a worker, computing in its colour, then waiting.

    `panels[title][worker]` is (computing, waiting and all-reduce).
    """
    workers = len(next(iter(panels.values())))
    figure, axes = _figure(columns=len(panels), height=1.5 + 0.42 * workers, sharey=True)
    right = 1.05 * max(sum(worker) for panel in panels.values() for worker in panel)
    for axis, (title, panel) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for row, (computing, idle) in enumerate(panel):
            axis.barh(row, computing, height=0.62, color=worker_colour(row))
            axis.barh(row, idle, left=computing, height=0.62, color=FAINT, hatch="////", ec="white", lw=0)
        axis.set_yticks(range(workers), [f"worker {i}" for i in range(workers)])
        axis.set(title=title, xlim=(0, right), xlabel=unit)
    np.atleast_1d(axes)[0].invert_yaxis()
    handles = [
        Patch(fc=worker_colour(7), label="computing (in the worker's colour)"),
        Patch(fc=FAINT, hatch="////", ec="white", lw=0, label="waiting for the other, and all-reduce"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def attempts(tried: Sequence, title: str = "") -> Figure:
    """A Gantt chart of a supervised job: a row a worker, a bar an attempt, against seconds.

    `tried`: the `Attempt`s of a `cluster.Supervisor`. Pale: the worker starts; full: it takes steps, whose
    numbers stand before; hatched: steps that the next attempt had to take again. A cross marks the
    worker with which the attempt ended.
    """
    names = [outcome.task for outcome in tried[0].ending.outcomes]
    figure, axis = _figure(height=1.7 + 0.5 * len(names))
    for attempt, following in zip(tried, [*tried[1:], None], strict=True):
        for row, outcome in enumerate(attempt.ending.outcomes):
            kept = following.ending.outcomes[row].first_step if following else None
            _attempt_of_worker(axis, row, attempt, outcome, dict(attempt.timeline[row]), kept)
        middle = (attempt.start + attempt.end) / 2
        text = f"attempt {attempt.number}\n{attempt.ending.how}"
        axis.text(middle, -0.5, text, ha="center", va="bottom", size=9)
    axis.set_yticks(range(len(names)), names)
    axis.set(
        ylim=(len(names) - 0.5, -1.25), xlim=(0, None), xlabel="seconds since the job began", title=title
    )
    entries = [("starting", _lighter(INK)), ("taking steps (their numbers on its left)", _lighter(INK, 0.7))]
    handles = [Patch(facecolor=colour, label=label) for label, colour in entries]
    handles.append(Patch(facecolor=_lighter(INK, 0.7), hatch="////", edgecolor="white", label="steps lost"))
    handles.append(Line2D([], [], marker="X", ls="", color=INK, ms=9, label="where it ended"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _attempt_of_worker(axis, row, attempt, outcome, moments, kept) -> None:
    """One bar: starting, steps that count, and those from step `kept` on, which the next attempt repeats."""
    first, end = (attempt.start + moments.get("first step", outcome.seconds), attempt.start + outcome.seconds)
    colour, look = worker_colour(row), {"height": 0.62, "edgecolor": "white", "lw": 0.8}
    axis.barh(row, first - attempt.start, left=attempt.start, color=_lighter(colour, 0.25), **look)
    axis.barh(row, end - first, left=first, color=colour, **look)
    if outcome.step is not None:
        steps = outcome.step - outcome.first_step + 1
        lost = 0 if kept is None else min(steps, max(0, outcome.step - kept + 1))
        width = (end - first) * lost / steps
        axis.barh(row, width, left=end - width, color=colour, hatch="////", **look)
        text = f"{outcome.first_step}–{outcome.step} "
        axis.text(first, row, text, ha="right", va="center", size=9)
    if outcome.task == attempt.ending.culprit:
        axis.plot(end, row, "X", color=INK, ms=9, mec="white", clip_on=False, zorder=5)


def time_lost(
    law: Callable[[np.ndarray], np.ndarray],
    measured: Mapping[float, float],
    marks: Mapping[str, float],
    title: str = "",
) -> Figure:
    """Share of a job's time that is lost, against the seconds between two checkpoints (log axis).

    `law` gives the expected share for an array of intervals, `measured` single ones; `marks` are intervals
    with a name, such as an optimum.
    """
    figure, axis = _figure()
    intervals = np.geomspace(min(measured), max(measured), 200)
    axis.plot(intervals, 100 * law(intervals), color=SERIES[0], label="expected")
    shares = [100 * share for share in measured.values()]
    axis.plot(list(measured), shares, "o", color=SERIES[1], ms=5, label="simulated")
    top = 1.1 * max(shares)
    for i, (name, interval) in enumerate(marks.items()):
        axis.axvline(interval, color=SERIES[2], ls=LINES[i % 4])
        axis.annotate(
            name, (interval, top * (0.99 - 0.1 * i)), xytext=(5, 0), textcoords="offset points", va="top"
        )
    axis.set(xscale="log", ylim=(0, top), title=title)
    axis.set(xlabel="time between two checkpoints (s)", ylabel="time lost (%)")
    axis.legend(loc="lower left")
    return figure


def accuracy_by_examples_and_updates(
    curves: Mapping[str, Mapping[int, Sequence[float]]], examples: int, title: str = ""
) -> Figure:
    """Test accuracy twice: against the examples seen, and against the updates made (log axis).

    `curves[schedule][batch]` has the accuracy (a fraction) after each epoch of `examples` examples. The same
    colour is the same batch, the same line the same schedule.
    """
    figure, axes = _figure(columns=2, sharey=True, height=3.8)
    batches = sorted({batch for runs in curves.values() for batch in runs})
    colours = {batch: SERIES[(0, 1, 3, 2)[i % 4]] for i, batch in enumerate(batches)}  # grey last
    for line, (schedule, runs) in zip(LINES, curves.items(), strict=False):
        for batch, values in runs.items():
            seen = examples * np.arange(1, len(values) + 1)
            look = {"color": colours[batch], "ls": line, "marker": "o", "ms": 4}
            axes[0].plot(seen, 100 * np.asarray(values), label=f"batch {batch}, {schedule}", **look)
            axes[1].plot(seen / batch, 100 * np.asarray(values), **look)
    axes[0].set(title=title or "What an example buys", xlabel="examples seen", ylabel="right answers (%)")
    axes[1].set(title="What an update buys", xlabel="updates made", xscale="log")
    axes[0].xaxis.set_major_locator(MaxNLocator(4))
    figure.legend(loc="outside lower center", ncols=min(len(axes[0].lines), 3))
    return figure


def schedules(rates: Mapping[str, Sequence[float]], xlabel: str = "update", title: str = "") -> Figure:
    """The learning rate of each update, a line a schedule; `rates[name]` begins with that of update 0."""
    figure, axis = _figure(height=2.9)
    for i, (name, values) in enumerate(rates.items()):
        axis.plot(values, LINES[i % 4], color=SERIES[(0, 1, 3, 2)[i % 4]], lw=2, label=name)
    axis.set(title=title, xlabel=xlabel, ylabel="learning rate", ylim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=len(rates))
    return figure


def magnitudes(panels: Mapping[str, np.ndarray], number: str, quantity: str = "gradient") -> Figure:
    """How large the numbers of each panel are, on a log axis, over the range of a type of numbers.

    `number` is NumPy's name of the type, such as "float16". What is below its range becomes 0, what is above
    becomes infinite: both are drawn in another colour. Numbers that are 0 already are not drawn.
    """
    smallest, largest = (float(getattr(np.finfo(number), end)) for end in ("smallest_subnormal", "max"))
    figure, axes = _figure(columns=len(panels), sharey=True, height=3.2)
    sizes = {title: np.abs(np.ravel(values)) for title, values in panels.items()}
    exponents = {title: np.log2(values[values > 0]) for title, values in sizes.items()}
    low = min(np.log2(smallest) - 6, *(values.min() for values in exponents.values()))
    high = max(np.log2(largest), *(values.max() for values in exponents.values()))
    bins = np.arange(np.floor(low), high + 3)
    for axis, (title, values) in zip(np.atleast_1d(axes), exponents.items(), strict=True):
        counts, _ = np.histogram(values, bins)
        fits = (bins[:-1] >= np.log2(smallest)) & (bins[1:] <= np.log2(largest))
        colours = [SERIES[3] if fit else SERIES[1] for fit in fits]
        axis.bar(
            2.0 ** bins[:-1], 100 * counts / values.size, np.diff(2.0**bins), align="edge", color=colours
        )
        axis.axvspan(smallest, largest, color=FAINT, alpha=0.4, zorder=0)
        axis.set(xscale="log", title=title, xlabel=f"size of a {quantity}")
    np.atleast_1d(axes)[0].set(ylabel="share (%)")
    entries = [(f"fits {number}", SERIES[3]), ("does not", SERIES[1]), (f"range of {number}", FAINT)]
    _legend_below(figure, entries, None)
    return figure


def accuracy_curves(
    runs: Mapping[str, Sequence[float]], floor: float | None = None, title: str = ""
) -> Figure:
    """Test accuracy after each epoch, a line a run, with a floor that it must reach as a thin line.

    `runs[name]` and `floor` are fractions.
    """
    figure, axis = _figure()
    for i, (name, values) in enumerate(runs.items()):
        look = {"color": series_colour(i), "ls": LINES[i % 4], "lw": 2.2, "marker": "o", "ms": 4}
        axis.plot(range(1, len(values) + 1), 100 * np.asarray(values), label=name, **look)
    if floor is not None:
        axis.axhline(100 * floor, color=INK, lw=1)
        place = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "bottom"}
        axis.annotate(f"floor {floor:.0%}", (0.005, 100 * floor), **place)
    axis.set(title=title, xlabel="epoch", ylabel="right answers on test images (%)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=min(len(runs), 4))
    return figure


def replica_bars(
    panels: Mapping[str, np.ndarray], xlabel: str = "channel", ylabel: str = "", title: str = ""
) -> Figure:
    """A panel each, in it a group of bars a channel, a bar a replica: `panels[name][replica, channel]`."""
    figure, axes = _figure(columns=len(panels), sharey=True)
    for axis, (name, values) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        replicas, channels = values.shape
        for replica, bars in enumerate(values):
            at = np.arange(channels) + (replica - (replicas - 1) / 2) * 0.8 / replicas
            axis.bar(at, bars, 0.8 / replicas, color=worker_colour(replica))
        axis.set(title=name, xlabel=xlabel, xticks=range(channels))
    np.atleast_1d(axes)[0].set(ylabel=ylabel)
    _legend_below(figure, [(f"replica {r}", worker_colour(r)) for r in range(replicas)], title)
    return figure


def grouped_bars(
    groups: Mapping[str, Mapping[str, float]], ylabel: str, title: str = "", form: str = "{:.0f}"
) -> Figure:
    """Groups of bars with their values above them: `groups[under the bars][in the legend]`."""
    figure, axis = _figure()
    names = list(next(iter(groups.values())))
    for i, name in enumerate(names):
        at = np.arange(len(groups)) + (i - (len(names) - 1) / 2) * 0.8 / len(names)
        bars = axis.bar(
            at,
            [group[name] for group in groups.values()],
            0.76 / len(names),
            color=series_colour(i),
            label=name,
        )
        axis.bar_label(bars, fmt=form.format, padding=2)
    axis.set(title=title, ylabel=ylabel)
    axis.set_xticks(range(len(groups)), list(groups))
    axis.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=len(names))
    return figure


def against_workers(
    counts: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    ylabel: str,
    *,
    ideal: Sequence[float] | None = None,
    log: bool = False,
    title: str = "",
) -> Figure:
    """A line for each way against the number of workers (log axis with `log`); `ideal` is a grey line."""
    figure, axis = _figure()
    if ideal is not None:
        axis.plot(counts, ideal, color=FAINT, lw=6, solid_capstyle="round", label="ideal")
    for i, (name, values) in enumerate(lines.items()):
        axis.plot(counts, values, LINES[i % 4], marker="o", ms=4, color=series_colour(i), label=name)
    axis.set(xlabel="workers", ylabel=ylabel, title=title)
    axis.set_ylim(bottom=0)
    _workers_axis(axis, counts, log)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def two_against_workers(counts: Sequence[int], panels: Mapping[str, Sequence[float]]) -> Figure:
    """A panel for each quantity against the number of workers (log axis), from 0 up."""
    figure, axes = _figure(columns=len(panels))
    for axis, (quantity, values) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        axis.plot(counts, values, marker="o", ms=4, color=SERIES[0])
        axis.set(xlabel="workers", title=quantity)
        axis.set_ylim(bottom=0)
        _workers_axis(axis, counts, log=True)
    return figure


def ranges(entries: Mapping[str, tuple[float, float, float]], xlabel: str, title: str = "") -> Figure:
    """A bar for what was predicted, a point for what was reported: `entries[name] = point, low, high`."""
    figure, axis = _figure(height=1.5 + 0.45 * len(entries))
    for row, (point, low, high) in enumerate(entries.values()):
        axis.barh(row, high - low, left=low, height=0.5, color=FAINT, label="predicted" if not row else None)
        axis.plot(point, row, "D", ms=8, color=SERIES[1], ls="none", label="reported" if not row else None)
    axis.set_yticks(range(len(entries)), list(entries))
    axis.tick_params(axis="y", length=0)
    axis.set(xlabel=xlabel, xlim=(0, 1.02 * max(high for _, _, high in entries.values())), title=title)
    axis.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _workers_axis(axis, counts, log: bool) -> None:
    if log:
        axis.set_xscale("log", base=2)
        shown = counts if len(counts) <= 8 else counts[::2]
        axis.set_xticks(list(shown), [f"{n:,}" for n in shown])
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def who_holds(
    strategies: Mapping[str, Mapping[str, tuple[bool, bool]]], title: str = "Who holds the variables?"
) -> Figure:
    """A row a strategy, a box a device, coloured by whether it holds variables and whether it computes.

    `strategies[name][device] = (holds variables, computes)`.
    """
    most = max(map(len, strategies.values()))
    figure, axis = _figure(height=1.2 + 0.5 * len(strategies))
    for (row, devices), column in itertools.product(enumerate(strategies.values()), range(most)):
        if column < len(devices):
            device, (holds, computes) = list(devices.items())[column]
            _held(axis, column, row, device, holds, computes)
    axis.set(xlim=(0, most), ylim=(len(strategies), 0), title=title, xticks=[])
    axis.set_yticks(np.arange(len(strategies)) + 0.5, list(strategies))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    _legend_below(figure, [(label, colour) for label, colour in HOLDS.values()], None)
    return figure


HOLDS = {
    (True, True): ("holds variables and computes", SERIES[3]),
    (True, False): ("holds variables only", SERIES[1]),
    (False, True): ("computes only", FAINT),
}


def _held(axis, column, row, device, holds, computes):
    colour = HOLDS[holds, computes][1]
    axis.add_patch(Rectangle((column + 0.03, row + 0.08), 0.94, 0.84, fc=colour, ec=INK, lw=1))
    axis.text(column + 0.5, row + 0.5, device, ha="center", va="center", color=_ink_on(colour), size=9)


def updates(workers: Sequence[int], staleness: Sequence[int], title: str = "") -> Figure:
    """A bar an update, in the colour of the worker that made it: how many updates old its weights were.

    `workers[u]` and `staleness[u]` are those of update u; a staleness of 0 is a dot on the axis.
    """
    figure, axis = _figure()
    for update, (worker, old) in enumerate(zip(workers, staleness, strict=True)):
        axis.bar(update, old, width=0.8, color=worker_colour(worker))
        axis.plot(update, 0, "o", ms=5, color=worker_colour(worker), clip_on=False, zorder=3)
    axis.set(xlabel="update", ylabel="staleness (updates)", title=title)
    axis.set_ylim(0, max(1, *staleness) * 1.08)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_below(figure, [(f"worker {i}", worker_colour(i)) for i in sorted(set(workers))], None)
    return figure


def predictions(
    images: np.ndarray, chances: np.ndarray, labels: Sequence[int], names: Sequence[str], top: int = 3
) -> Figure:
    """Pictures, and under each the classes that a model finds likeliest; the right one is dark.

    images: (n, height, width, 1); chances: (n, classes), adding up to 1 for each picture.
    """
    style()
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    axes = figure.subplots(2, len(images), gridspec_kw={"height_ratios": (1.1, 1)})
    for (above, below), image, shares, label in zip(axes.T, images, chances, labels, strict=True):
        above.imshow(np.squeeze(image), cmap="gray")
        above.set_title(names[label], loc="center", size=9)
        above.axis("off")
        best = np.argsort(shares)[::-1][:top]
        colours = [SERIES[0] if one == label else SERIES[2] for one in best]
        below.barh(range(top), 100 * shares[best], color=[_lighter(c, 0.45) for c in colours])
        for row, one in enumerate(best):
            below.text(2, row, names[one], va="center", size=8, weight="bold" if one == label else "normal")
        below.set(xlim=(0, 100), yticks=[], xticks=(0, 100))
        below.invert_yaxis()
    axes[1][0].set_xlabel("how sure (%)")
    return figure


def _figure(columns=1, height=3.4, width_ratios=None, sharey=False):
    """A new figure outside pyplot (nothing is shown twice, nothing is left open) and its axis or axes."""
    style()
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = {"width_ratios": width_ratios} if width_ratios else None
    axes = figure.subplots(1, columns, sharey=sharey, gridspec_kw=grid, squeeze=False)[0]
    return figure, axes if columns > 1 else axes[0]


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None


def _bundle(picture, alt):
    encoded = base64.b64encode(picture).decode()
    return {
        # JupyterLab shows alt text only in HTML; nbconvert and other viewers take the PNG and its metadata.
        "text/html": f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{encoded}">',
        "image/png": encoded,
        "text/plain": alt,
    }


def _legend_below(figure, entries, title):
    handles = [Patch(facecolor=colour, label=label) for label, colour in entries]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), title=title)


def _box(axis, left, bottom, width, height, face, edge):
    pad = 0.06
    axis.add_patch(
        FancyBboxPatch(
            (left + pad, bottom + pad),
            width - 2 * pad,
            height - 2 * pad,
            boxstyle=f"round,pad={pad}",
            facecolor=face,
            edgecolor=edge,
            lw=1.5,
        )
    )


def _replica(axis, left, width, colour, replica, device):
    _box(axis, left + 0.08, 0.45, width - 0.16, 1.95, "white", colour)
    axis.text(left + width / 2, 1.95, f"replica {replica}", ha="center", va="center")
    _box(axis, left + 0.2, 0.65, width - 0.4, 0.85, colour, colour)
    axis.text(left + width / 2, 1.07, device, ha="center", va="center", color=_ink_on(colour))


def _run_of_cells(axis, at, row, ids, colour) -> float:
    """Draw the cells of one replica from `at` on; returns where they end."""
    if not len(ids):
        axis.add_patch(Rectangle((at, row - 0.4), 0.9, 0.8, fill=False, ls="--", ec=colour, lw=1.5))
        axis.text(at + 0.45, row, "none", ha="center", va="center", size=8)
        return at + 0.9
    for number in ids:
        axis.add_patch(Rectangle((at, row - 0.4), 0.9, 0.8, color=colour, lw=0))
        axis.text(at + 0.45, row, str(number), ha="center", va="center", color=_ink_on(colour), size=9)
        at += 0.95
    return at


def _cell(axis, column, row, colours, text):
    colours = list(colours)
    for i, colour in enumerate(colours):
        share = 0.9 / len(colours)
        axis.add_patch(Rectangle((column + i * share, row), share, 0.9, color=_lighter(colour, 0.55), lw=0))
    axis.text(column + 0.45, row + 0.45, text, ha="center", va="center")


def _named_rows(rows):
    return rows if isinstance(rows, Mapping) else {f"worker {i}": steps for i, steps in enumerate(rows)}


def _received(axis, row, steps, records, colour, columns):
    """The cells of what one worker received, the first step in which it did written in each."""
    came: dict[int, int] = {}
    for step, ids in enumerate(steps):
        for number in ids:
            came.setdefault(number, step)
    axis.add_patch(Rectangle((0, row), records - 0.1, 0.9, fc="white", ec=FAINT, lw=0.6))
    for number, step in came.items():
        _narrow_cell(axis, number, row, colour, str(step), records * columns)


def _times_received(axis, row, workers, records, columns):
    counts = np.zeros(records, int)
    for steps in workers:
        for ids in steps:
            np.add.at(counts, np.asarray(ids, int), 1)
    for number, count in enumerate(counts):
        colour = (INK, FAINT)[count] if count < 2 else SERIES[1]
        text = "" if count == 1 else str(count)
        _narrow_cell(axis, number, row + 0.25, colour, text, records * columns)


def _narrow_cell(axis, column, row, colour, text, across):
    """A cell without a number where there is no room for one, and then without a gap to the next."""
    axis.add_patch(Rectangle((column, row), 0.9 if _roomy(across) else 1, 0.9, color=colour, lw=0))
    if _roomy(across):
        axis.text(column + 0.45, row + 0.47, text, ha="center", va="center", size=8, color=_ink_on(colour))


def _roomy(across) -> bool:
    """Whether that many columns side by side are wide enough for numbers."""
    return across <= 64


def _borders(axis, files, records, bottom):
    for border in itertools.accumulate(files):
        if border < records:
            axis.plot([border - 0.05] * 2, [-0.15, bottom - 0.2], color=INK, lw=0.9)


def _row_of_copies(axis, row, numbers, equal):
    if equal:
        axis.add_patch(Rectangle((0, row), len(numbers) - 0.1, 0.9, color=FAINT, lw=0))
    for replica, number in enumerate(numbers):
        _cell(axis, replica, row, [] if equal else [worker_colour(replica)], f"{number:.4g}")


def _arrived(axis, column, row):
    """A frame around a cell and an arrow into it from the row above."""
    axis.add_patch(Rectangle((column, row), 0.9, 0.9, fill=False, ec=INK, lw=1.5, clip_on=False))
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", (column + 0.45, row + 0.2), (column + 0.45, row - 0.4), arrowprops=arrow)


def _cells_only(axis, columns, rows, title, above=0.1):
    """An axis that shows nothing but its `_cell`s: the first row on top, no ticks, no lines."""
    axis.set(xlim=(-0.1, columns), ylim=(rows, -above), xticks=[], yticks=[], title=title, aspect="auto")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def _name_rows(axis, rows, name):
    axis.set_yticks(np.arange(rows) + 0.45, [f"{name} {row}" for row in range(rows)])


def _floor(values, tolerance) -> float:
    positive = values[values > 0]
    smallest = min([*positive, tolerance or np.inf])
    return 10.0 ** np.floor(np.log10(smallest) - 1) if np.isfinite(smallest) else 1e-12


def _label_floor_as_zero(axis, floor):
    """The bottom tick says 0, and a gap in the axis says that it is not on the scale of the others."""
    powers = LogFormatterMathtext()
    powers.set_axis(axis.yaxis)
    axis.yaxis.set_major_formatter(lambda value, _: "0 (equal)" if value <= floor * 1.01 else powers(value))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(bottom=floor / 2)
    axis.axhspan(floor * 2.2, floor * 4, xmax=0.012, color="white", zorder=3, clip_on=False)


def _positive_range(values):
    positive = values[values > 0]
    return (positive.min(), positive.max()) if positive.size else (1e-12, 1.0)


def _lighter(colour, strength=0.18):
    """`colour` mixed with white: strength 1 is the colour itself, 0 is white."""
    return tuple(1 - strength * (1 - np.array(to_rgb(colour))))


def _ink_on(colour) -> str:
    """Black or white, whichever reads better on `colour` (WCAG relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = np.dot(linear, (0.2126, 0.7152, 0.0722))
    return "white" if luminance < 0.179 else "black"


def _count(n, noun) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
