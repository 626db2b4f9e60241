"""The live table and timeline: what they say, and that they change in place."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from course_utils.cluster import LocalCluster
from course_utils.errors import ClusterError, ConfigError
from course_utils.timing import Step
from course_utils.watching import Live

NAMES = ["worker 0", "worker 1"]


def values(number, waiting=0.010, compute=0.020, exchange=0.020, begin=None, **more):
    """A step of 50 ms as it is reported."""
    begin = 1000 + 0.05 * number if begin is None else begin
    moments = {"ready": begin + waiting, "computed": begin + waiting + compute}
    end = begin + waiting + compute + exchange
    fixed = {"number": number, "begin": begin, "end": end, "examples": 40, "loss": 2.0, "traced": False}
    return fixed | moments | more


@pytest.fixture
def live():
    live = Live()
    live.start(NAMES)
    return live


def test_a_row_has_the_medians_of_a_worker(live):
    for number in range(3):
        live.report(0, values(number))
    live.report(1, values(0, computed=None))
    first, second = live.rows()
    assert first == ["worker 0", "3", "800", "50.0 ms", "10.0 ms", "20.0 ms", "20.0 ms", "2.000"]
    assert second[4:7] == ["10.0 ms", "–", "–"]  # what `fit` cannot tell is not made up


def test_steps_that_found_their_data_read_ahead_are_soon_in_no_figure(live):
    for number in range(10):
        live.report(0, values(number, waiting=0.001 if number < 5 else 0.100))
    assert live.rows()[0][4] == "100.0 ms"
    for shown in (repr(live), live._repr_html_()):
        assert "medians of the last 5 steps" in shown


def test_the_step_that_was_traced_is_in_no_figure(live):
    live.report(0, values(0, compute=9.0, traced=True, begin=900))
    assert live.rows()[0][2:] == ["…"] * 6
    live.report(0, values(1))
    assert live.rows()[0][3] == "50.0 ms"


def test_the_timeline_has_a_box_for_each_phase_of_each_step_in_proportion(live):
    for number in range(2):
        for worker in (0, 1):
            live.report(worker, values(number, compute=0.02 + 0.01 * worker, exchange=0.02 - 0.01 * worker))
    boxes = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', live.svg())[:-4]  # without the legend
    assert len(boxes) == 2 * 2 * 4
    widths = [float(width) for _, width in boxes]
    assert widths[1] * 3 == pytest.approx(widths[9] * 2, rel=1e-2)  # compute: 20 ms and 30 ms
    assert max(float(x) + float(width) for x, width in boxes) == pytest.approx(870, abs=0.1)


def test_waiting_for_data_and_waiting_for_others_look_different(live):
    live.report(0, values(0))
    live.report(1, values(0, compute=0.03, exchange=0.01))
    svg = live.svg()
    for number, fill in ((0, "url(#hatch0)"), (1, "url(#hatch1)"), (0, "#D9D9D9")):
        assert f'fill="{fill}"' in svg, number
    assert svg.count('<pattern id="hatch1"') == 1 and svg.count('fill="url(#hatch7)"') == 1  # the legend


def test_reports_of_another_kind_pass(live):
    live.report(0, {"epoch": 3})
    assert live.steps == [[], []]


def test_names_are_text_not_markup():
    live = Live()
    live.start(["<b>"])
    live.report(0, values(0))
    assert "<b>" not in live._repr_html_() + live.svg()


def test_a_new_run_begins_with_an_empty_table(live):
    live.report(0, values(0))
    live.start(["worker 0"])
    assert live.steps == [[]]


def report_steps(count):
    import os

    import numpy as np

    import course_utils as cu

    worker = int(os.environ["COURSE_WORKER"].split()[1])
    for number in range(count):
        cu.cluster.report({**make(number, worker), "loss": np.float32(0.25)})


def make(number, worker):
    begin = 1000 + 0.05 * number
    moments = {"begin": begin, "ready": begin + 0.01, "computed": begin + 0.02, "end": begin + 0.05}
    return moments | {"number": number, "examples": 40 + worker, "traced": number == 0}


def test_what_workers_report_arrives_in_order_and_is_told_at_the_end(capsys):
    live = Live()
    LocalCluster(2, output=live, timeout=60).run(report_steps, 300)
    assert live.names == NAMES
    for worker in (0, 1):
        assert [step.number for step in live.steps[worker]] == list(range(300))
        assert live.steps[worker][7] == Step(**make(7, worker), loss=0.25)
    shown = capsys.readouterr().out
    assert "worker 1" in shown and "820" in shown  # no notebook listens: the table, once


def test_what_cannot_be_told_in_plain_values_is_refused():
    def report_a_set():
        import course_utils as cu

        cu.cluster.report({"them": object()})

    with pytest.raises(ClusterError, match="This cannot be reported"):
        LocalCluster(1, output="quiet", timeout=60).run(report_a_set)


def test_a_report_outside_of_a_worker_does_nothing():
    import course_utils as cu

    assert cu.cluster.report({"loss": 1.0}) is None


def test_only_displays_and_their_names_are_taken_as_output():
    with pytest.raises(ConfigError):
        LocalCluster(2, output=print)


CELL = """
import course_utils as cu
from test_watching import report_steps
live = cu.watching.Live()
cu.watching.PAUSE = 0
cu.LocalCluster(2, output=live, timeout=60).run(report_steps, 30)
None
"""


def test_in_a_notebook_one_output_changes_in_place_and_its_last_state_is_saved(request):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    shown = []

    class Counting(NotebookClient):
        def process_message(self, message, cell, cell_index):
            if message["header"]["msg_type"] in ("display_data", "update_display_data"):
                shown.append(message["header"]["msg_type"])
            return super().process_message(message, cell, cell_index)

    folder = str(request.path.parent)
    Counting(notebook, timeout=120, resources={"metadata": {"path": folder}}).execute()
    (output,) = notebook.cells[0].outputs
    assert shown.count("display_data") == 1 and shown.count("update_display_data") >= 2
    last = output["data"]["text/html"]
    assert "<td>30</td>" in last and "worker 1" in last and "data:image/svg+xml" in last
    assert "…" not in last and "<svg" not in last  # an image: shown by a notebook that is not trusted, too
