"""The pictures: one palette, labels and units, what the data say, and alt text."""

import base64
import io
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from course_utils import communication, plots
from course_utils.cluster.outcomes import Outcome
from course_utils.cluster.supervise import Attempt, Ending

EPOCH = {"train_loss": 0.5, "test_loss": 0.6, "train_accuracy": 0.8, "test_accuracy": 0.75}


def tried():
    """Two attempts: worker 1 is killed after step 8, and both go on with step 6."""

    def outcomes(status, first, last, seconds):
        return [
            Outcome(f"worker {i}", status, None, None, seconds, step=last, first_step=first) for i in (0, 1)
        ]

    moments = [[("start", 0.1), ("first step", 1.0)]] * 2
    crash = Ending("crashed", "Worker 1 was killed.", "worker 1", outcomes("killed", 1, 8, 3.0))
    finish = Ending("finished", outcomes=outcomes("returned", 6, 20, 4.0))
    return [Attempt(1, 0.0, 3.0, crash, moments), Attempt(2, 3.5, 7.5, finish, moments)]


def pictures():
    ranks = [np.arange(4) + 10 * rank for rank in range(3)]
    moments = [("start", 0.0), ("server up", 0.2), ("connected", 0.5), ("exit", 0.9)]
    curve = np.linspace(1, 0.1, 8)
    return {
        "device map": plots.device_map([["CPU:0", "CPU:1"], ["CPU:0", "CPU:1"]]),
        "strips": plots.strips([[[0, 1], [2]], [[3], []]], title="5 examples"),
        "record grid": plots.record_grid(
            {"FILE": [[[0, 1]], [[2]], [[1]]], "no strategy": {"one device": [[0, 1, 2]]}}, 4, files=[2, 2]
        ),
        "named strips": plots.strips([[[0, 1], [2]], [[3], []]], names=["batch of 3", "batch of 1"]),
        "copies": plots.copies_table({"weight": [1.5, 1.5], "mean": [np.array([7, 2]), np.array([7, 3])]}),
        "masks": plots.masks({"Dropout": [[True, False]] * 2, "another": [[True, False], [False, True]]}),
        "timeline": plots.timeline([moments, moments]),
        "learning curves": plots.learning_curves([EPOCH, EPOCH]),
        "curves over reference": plots.curves_over_reference(
            {"a": {"2": curve}, "b": {"2": curve}}, curve, "loss"
        ),
        "by examples and updates": plots.accuracy_by_examples_and_updates(
            {"constant": {32: [0.5, 0.7], 128: [0.4, 0.6]}, "scaled": {128: [0.5, 0.7]}}, 100
        ),
        "schedules": plots.schedules({"constant": [0.1] * 4, "warm-up": [0.0, 0.1, 0.05, 0.0]}),
        "magnitudes": plots.magnitudes({"as it is": curve, "in millionths": 1e6 * curve}, "float16"),
        "differences": plots.differences({"2 replicas": [0, 1e-8]}, "weight difference", tolerance=1e-5),
        "heat map": plots.heat_map([[0, 1], [2, 3]], ["a", "b"], ["1", "2"], "error", log=True),
        "collectives": plots.collectives({"before": ranks, "SUM": [sum(ranks)] * 3}),
        "chunk rounds": plots.chunk_rounds(communication.holdings(communication.ring_all_reduce, 3)),
        "sent by rank": plots.sent_by_rank({"star": [2.0, 1.0, 1.0], "ring": [1.33] * 3}),
        "bytes": plots.bytes_against_workers({"ring": {2: 1e6, 4: 1.5e6}}, {"ring": lambda n: 1e6}),
        "bars side by side": plots.bars_side_by_side({"MB a step": {"float32": 1.6, "float16": 0.8}}),
        "losses by cost": plots.losses_by_step_and_cost({"a": curve, "b": curve}, {"a": 2, "b": 0.1}, "MB"),
        "files over time": plots.files_over_time(
            {"4\nsaved": {"job/ckpt-4": 0, "temp/ckpt-4": 1}, "12\nsaved": {"job/ckpt-12": 0}}
        ),
        "attempts": plots.attempts(tried(), "Two attempts"),
        "who holds": plots.who_holds(
            {"mirrored": {"CPU:0": (True, True)}, "ps": {"ps 0": (True, False), "worker 0": (False, True)}}
        ),
        "updates": plots.updates([0, 1, 0], [0, 5, 0], "Worker 1 is slow"),
        "against workers": plots.against_workers([1, 2, 4], {"a": [1, 1.8, 3]}, "speed-up", ideal=[1, 2, 4]),
        "two against workers": plots.two_against_workers([8, 64], {"hours": [9, 2], "bill": [72, 128]}),
        "ranges": plots.ranges({"ResNet-50": (0.9, 0.85, 1.0), "VGG-16": (0.7, 0.5, 1.0)}, "efficiency"),
        "time lost": plots.time_lost(lambda seconds: 1 / seconds, {2.0: 0.5, 20.0: 0.05}, {"best": 9.0}),
        "waiting": plots.waiting({"equal shares": [(10, 20), (30, 0)], "by speed": [(15, 0), (15, 0)]}),
        "one step": plots.one_step([-1.0, -3.0], [-4.0, -4.0], [0.4, 0.4]),
        "bytes per replica": plots.bytes_per_replica(
            {1: {"weights": 2e6, "share": 4e6}, 2: {"weights": 2e6, "share": 2e6}}
        ),
        "what each does": plots.what_each_does(
            {"one missing": ["waits"], "good": ["trains", "raises KeyError: x"]}
        ),
        "step phases": plots.step_phases(
            [
                [("wait for data", 0, 0.01), ("compute", 0.01, 0.05), ("all-reduce", 0.05, 0.06)],
                [("compute", 0, 0.02), ("wait for others", 0.02, 0.05), ("all-reduce", 0.05, 0.06)],
            ]
        ),
        "epoch times": plots.epoch_times({"new iterator": [(1.0, 2.0)], "one iterator": [(1.0, 0.0)]}),
    }


@pytest.fixture(scope="module")
def drawn():
    return pictures()


def texts(figure):
    """Everything that is written in a figure."""
    plots.png(figure)
    found = [text.get_text() for text in figure.findobj(matplotlib.text.Text)]
    return [text for text in found if text]


def test_every_picture_is_a_notebook_wide_png(drawn):
    for name, figure in drawn.items():
        assert figure.get_size_inches()[0] == plots.WIDTH, name
        picture = matplotlib.image.imread(io.BytesIO(plots.png(figure)))
        assert picture.shape[1] == 990 and picture.std() > 0.05, name


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("timeline", ["seconds since the run began", "worker 1", "→ connected"]),
        ("step phases", ["time (ms)", "worker 1", "wait for data", "wait for others", "all-reduce", "60"]),
        ("learning curves", ["epoch", "mean cross-entropy (nats)", "right answers (%)", "train", "test"]),
        ("curves over reference", ["step", "loss", "one device"]),
        ("differences", ["step", "weight difference", "tolerance 1e-5", "0 (equal)"]),
        ("heat map", ["error", "a", "2", "3.0e+00"]),
        ("bytes", ["workers", "sent by the busiest rank (MB)", "law for ring"]),
        ("bars side by side", ["MB a step", "float32", "1.6", "0.8"]),
        ("losses by cost", ["step", "loss", "MB", "The same cost", "b"]),
        ("waiting", ["worker 1", "ms a step", "by speed", "waiting for the other, and all-reduce"]),
        ("epoch times", ["seconds", "one iterator, epoch 1", "waiting at the end"]),
        ("one step", ["gradient (loss per unit of weight)", "replica", "weight", "-3", "-4", "0.4"]),
        ("bytes per replica", ["on the first replica (MB)", "1 replica", "2 replicas", "weights", "4.0"]),
        ("what each does", ["one missing", "process 1", "waits", "raises KeyError", "not there"]),
        ("device map", ["this machine", "worker 1", "replica 3", "CPU:1", "2 workers, 4 replicas"]),
        ("strips", ["step 1", "replica 1", "cell = example id", "none", "3"]),
        ("named strips", ["batch of 1", "replica 1"]),
        ("record grid", ["FILE", "worker 2", "one device", "together", "twice or more", "never: a hole"]),
        ("copies", ["weight", "replica 1", "equal", "1.5", "up to 1 apart", "3"]),
        ("masks", ["Dropout", "another", "replica 1", "unit (coloured: kept, white: dropped)"]),
        ("collectives", ["before\nshape (4,)", "SUM\nshape (4,)", "replica 2", "30"]),
        ("chunk rounds", ["at the start", "after round 4", "rank 2", "chunk", "numbers of rank 0"]),
        ("attempts", ["worker 1", "attempt 1\ncrashed", "1–8 ", "6–20 ", "steps lost", "where it ended"]),
        ("time lost", ["time between two checkpoints (s)", "time lost (%)", "best", "simulated"]),
        ("sent by rank", ["star", "ring", "rank", "sent (arrays)"]),
        ("who holds", ["mirrored", "ps 0", "worker 0", "holds variables only", "computes only"]),
        ("updates", ["update", "staleness (updates)", "worker 0", "worker 1"]),
    ],
)
def test_axes_carry_labels_and_units(drawn, name, wanted):
    written = texts(drawn[name])
    assert [text for text in wanted if text not in written] == []


def test_no_text_is_cut_off_or_too_small_to_read(drawn):
    for name, figure in drawn.items():
        plots.png(figure)
        edge = figure.bbox
        for text in figure.findobj(matplotlib.text.Text):
            if text.get_text() and text.get_visible() and text.get_figure() is not None:
                assert text.get_fontsize() >= 8, (name, text.get_text())
        box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
        assert box.x0 >= -1 and box.x1 <= edge.x1 + 1, name


def test_a_worker_has_one_colour_in_every_picture(drawn):
    def colours(name):
        faces = [patch.get_facecolor() for patch in drawn[name].findobj(matplotlib.patches.Patch)]
        return {to_hex(face).upper() for face in faces}

    for name in ("device map", "strips", "timeline", "one step"):
        assert {plots.worker_colour(0), plots.worker_colour(1)} <= colours(name), name


def test_equal_copies_share_a_bar_and_different_ones_have_a_box_each():
    def faces(copies):
        patches = plots.copies_table({"v": copies}).axes[0].patches
        return [to_hex(patch.get_facecolor()).upper() for patch in patches]

    assert faces([1.0, 1.0, 1.0]) == [plots.FAINT]
    assert len(set(faces([1.0, 2.0, 1.0]))) == 3
    assert faces([np.array([0.0, 1.0])] * 2) == [plots.FAINT]


def test_a_mask_colours_what_is_kept_and_nothing_else():
    patches = plots.masks({"m": [[True, False], [False, False]]}).axes[0].patches
    kept = [to_hex(patch.get_facecolor()).upper() for patch in patches]
    assert kept == [plots.worker_colour(0), "#FFFFFF", "#FFFFFF", "#FFFFFF"]


def test_workers_are_told_apart_with_any_colour_vision():
    # Viénot, Brettel and Mollon 1999: what a dichromat sees, in linear RGB.
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    first_six = np.array([to_rgb(plots.worker_colour(i)) for i in range(6)]) ** 2.2
    for seen in (first_six, first_six @ protan.T, first_six @ deutan.T):
        seen = np.clip(seen, 0, 1) ** (1 / 2.2)
        distances = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(6, 1)]
        assert distances.min() > 0.12


def test_no_other_thing_wears_a_workers_colour():
    assert not set(plots.WORKERS) & {plots.series_colour(i) for i in range(10)}
    assert plots.worker_colour(0) != plots.worker_colour(1)
    assert plots.worker_colour(9) == plots.worker_colour(1)


def test_text_reads_on_every_workers_colour():
    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return np.dot(linear, (0.2126, 0.7152, 0.0722))

    for colour in plots.WORKERS:
        low, high = sorted((luminance(colour), luminance(plots._ink_on(colour))))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour  # WCAG AA


def test_a_difference_of_zero_is_on_the_picture():
    figure = plots.differences({"x": [0.0, 1e-8, 1e-6]}, "difference", tolerance=1e-5)
    (line, *_) = figure.axes[0].lines
    assert min(line.get_ydata()) > 0 and figure.axes[0].get_ylim()[0] < min(line.get_ydata())
    assert list(line.get_ydata())[1:] == [1e-8, 1e-6]


def test_all_differences_zero_still_draws():
    assert plots.png(plots.differences({"x": [0.0, 0.0]}, "difference"))


def test_a_gathered_cell_has_the_colour_of_the_rank_it_came_from():
    ranks = [np.array([1, 2]), np.array([3, 4])]
    figure = plots.collectives({"before": ranks, "gather": [np.concatenate(ranks)] * 2})
    cells = [patch.get_facecolor() for patch in figure.axes[1].patches]
    assert cells[0] == cells[1] != cells[2] == cells[3]


class Shell:
    """As much of a notebook as show() needs."""

    def __init__(self, monkeypatch):
        import IPython
        import IPython.display

        self.shown = []
        monkeypatch.setattr(IPython, "get_ipython", lambda: self)
        monkeypatch.setattr(
            IPython.display, "display", lambda data, raw, metadata: self.shown.append((data, metadata))
        )


def test_show_displays_the_picture_with_its_alt_text(monkeypatch, drawn):
    shell = Shell(monkeypatch)
    plots.show(drawn["bytes"], alt='Ring is "flat" & low')
    ((data, metadata),) = shell.shown
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert 'alt="Ring is &quot;flat&quot; &amp; low"' in data["text/html"]
    assert metadata["image/png"]["alt"] == data["text/plain"] == 'Ring is "flat" & low'


def test_show_insists_on_alt_text(drawn):
    with pytest.raises(ValueError, match="alt text"):
        plots.show(drawn["bytes"], alt=" ")


def test_show_is_silent_outside_a_notebook(monkeypatch, drawn, capsys):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    plots.show(drawn["bytes"], alt="Ring is flat")
    assert capsys.readouterr().out == ""


def test_a_picture_is_the_same_bytes_each_time():
    curve = {"x": [1e-8, 2e-8]}
    assert plots.png(plots.differences(curve, "d")) == plots.png(plots.differences(curve, "d"))


def test_pictures_leave_nothing_open_in_pyplot(drawn):
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_a_panel_may_have_its_own_reference():
    references = {"SGD": [3.0, 1.0], "Adam": [2.0, 2.0]}
    figure = plots.curves_over_reference({name: {"4": [1.0, 1.0]} for name in references}, references, "loss")
    drawn = {axis.get_title(loc="left"): axis.lines[0].get_ydata().tolist() for axis in figure.axes}
    assert drawn == references


def test_a_cell_is_striped_in_the_colours_of_those_whose_numbers_are_in_it():
    figure = plots.chunk_rounds(communication.holdings(communication.ring_all_reduce, 2))
    stripes = [sum(p.get_linewidth() == 0 for p in axis.patches) for axis in figure.axes[:3]]
    assert stripes == [4, 6, 8]  # 4 cells of one colour, then 2 of them with two, then all


def test_accuracy_is_drawn_against_examples_and_against_updates():
    figure = plots.accuracy_by_examples_and_updates({"constant": {20: [0.5, 0.7], 50: [0.4, 0.6]}}, 100)
    by_examples, by_updates = figure.axes
    assert [line.get_xdata().tolist() for line in by_examples.lines] == [[100, 200]] * 2
    assert [line.get_xdata().tolist() for line in by_updates.lines] == [[5, 10], [2, 4]]
    for axis in figure.axes:
        np.testing.assert_allclose([line.get_ydata() for line in axis.lines], [[50, 70], [40, 60]])


def test_what_does_not_fit_a_type_of_numbers_has_another_colour():
    figure = plots.magnitudes({"gradients": np.array([0.0, 1e-9, 1e-3, 1e-3, 1e6])}, "float16")
    bars = [bar for bar in figure.axes[0].containers[0] if bar.get_height()]
    look = [(to_hex(bar.get_facecolor()).upper(), bar.get_height()) for bar in bars]
    assert look == [(plots.SERIES[1], 25), (plots.SERIES[3], 50), (plots.SERIES[1], 25)]


def test_holes_and_duplicates_have_colours_of_their_own():
    workers = [[[0, 1], [2]], [[2, 4]]]  # 2 comes to both, 3 to nobody
    figure = plots.record_grid({"one": workers, "none": [[], []]}, records=5, files=[3, 2])
    together = [[p for p in axis.patches if p.get_y() > 2] for axis in figure.axes]
    look = [[to_hex(p.get_facecolor()).upper() for p in patches] for patches in together]
    once, hole, twice = plots.FAINT, plots.INK.upper(), plots.SERIES[1]
    assert look == [[once, once, twice, hole, once], [hole] * 5]


def test_files_are_divided_only_in_the_panels_that_have_some():
    workers = [[[0, 1], [2]], [[3, 4]]]
    panels = {"files": workers, "memory": workers}
    figure = plots.record_grid(panels, records=5, files={"files": [3, 2]})
    assert [len(axis.lines) for axis in figure.axes] == [1, 0]


def test_a_record_stands_in_its_workers_row_with_the_step_in_which_it_came_first():
    figure = plots.record_grid({"one": [[[0, 1], [1]], [[3]]]}, records=4, columns=1)
    cells = [
        (round(t.get_position()[0] - 0.45), int(t.get_position()[1]), t.get_text())
        for t in figure.axes[0].texts
    ]
    assert [cell for cell in cells if cell[1] < 2] == [(0, 0, "0"), (1, 0, "0"), (3, 1, "0")]


def test_many_narrow_records_bear_no_numbers():
    figure = plots.record_grid({"one": [[list(range(40))]]}, records=40)
    assert not figure.axes[0].texts


def test_a_file_is_drawn_when_it_was_there_in_its_writers_colour_and_in_the_order_of_numbers():
    figure = plots.files_over_time({"a": {"job/ckpt-4": 0, "job/ckpt-12": 1}, "b": {"job/ckpt-12": 1}})
    cells = {
        (patch.get_x(), patch.get_y()): to_hex(patch.get_facecolor()).upper()
        for patch in figure.axes[0].patches
    }
    blue, orange, absent = plots.worker_colour(0), plots.worker_colour(1), "#FFFFFF"
    assert cells == {(0, 1): blue, (1, 1): absent, (0, 2): orange, (1, 2): orange}
    names = [label.get_text().strip() for label in figure.axes[0].get_yticklabels()]
    assert names == ["job/", "ckpt-4", "ckpt-12"]


def test_steps_that_the_next_attempt_repeats_are_hatched_and_the_culprit_is_marked(drawn):
    (axis,) = drawn["attempts"].axes
    hatched = [bar for bar in axis.patches if bar.get_hatch()]
    lost = [(bar.get_x(), bar.get_width()) for bar in hatched if bar.get_width()]
    assert lost == [(pytest.approx(3 - 2 * 3 / 8), pytest.approx(2 * 3 / 8))] * 2  # 3 of 8 steps, in 2 s
    (cross,) = [line for line in axis.lines if line.get_marker() == "X"]
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (3.0, 1)


def test_what_a_worker_does_for_itself_has_its_colour_and_the_rest_has_none():
    for worker in range(8):
        own = plots.worker_colour(worker)
        assert plots.phase_colour("compute", worker) == own
        assert plots.phase_colour("wait for data", worker) not in (own, plots.FAINT)
    for phase in ("wait for others", "all-reduce"):
        assert len({plots.phase_colour(phase, worker) for worker in range(8)}) == 1


def test_a_device_is_coloured_by_what_it_holds_and_does(drawn):
    boxes = [to_hex(patch.get_facecolor()) for patch in drawn["who holds"].axes[0].patches]
    both, holds, computes = (plots.HOLDS[key][1] for key in ((True, True), (True, False), (False, True)))
    assert boxes == [to_hex(colour) for colour in (both, holds, computes)]
    assert len({both, holds, computes}) == 3


def test_an_update_is_as_high_as_it_is_stale_in_the_colour_of_its_worker(drawn):
    bars = drawn["updates"].axes[0].patches
    assert [bar.get_height() for bar in bars] == [0, 5, 0]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [
        plots.worker_colour(i) for i in (0, 1, 0)
    ]


def test_panels_with_other_curves_have_a_legend_each():
    figure = plots.curves_over_reference({"left": {"a": [1, 2]}, "right": {"b": [2, 1]}}, [1, 2], "loss")
    legends = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in figure.axes]
    assert legends == [["one device", "a"], ["one device", "b"]] and not figure.legends


def test_five_losses_have_five_colours():
    ways = {way: [2.0, 1.0] for way in "abcde"}
    left, _ = plots.losses_by_step_and_cost(ways, dict.fromkeys(ways, 1.0), "MB").axes
    assert len({line.get_color() for line in left.lines}) == 5
