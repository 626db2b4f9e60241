"""Calibration: two points give a line, the line is kept, and a forecast follows from it."""

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from course_utils import calibration, costmodel, forecast
from course_utils.calibration import Calibration
from course_utils.cli import main
from course_utils.cluster import Link
from course_utils.costmodel import Network
from course_utils.errors import ConfigError

KNOWN = Calibration(
    cores=2,
    alone=(0.001, 1e-5),
    beside=(0.002, 2e-5),
    loopback=Network(1e-3, 1e9),
    slow=Network(2e-2, 1e7),
)


def test_two_points_give_the_line_through_them():
    fixed, slope = calibration._line((64, 512), (0.002, 0.009))
    assert fixed + 64 * slope == pytest.approx(0.002)
    assert fixed + 512 * slope == pytest.approx(0.009)


def test_what_two_workers_need_is_what_the_ring_of_two_costs():
    sizes = (1e5, 2e6)
    times = {size: costmodel.ring(2, size, KNOWN.slow) for size in sizes}
    found = calibration._round_of_two(times)
    assert (found.latency, found.bandwidth) == pytest.approx((2e-2, 1e7))


def test_a_step_is_the_work_on_shared_cores_and_the_ring():
    size = calibration.gradient_bytes(calibration.HIDDEN)
    one, two, four = (KNOWN.step(workers, 100) for workers in (1, 2, 4))
    assert one.seconds == pytest.approx(0.001 + 100 * 1e-5)
    assert two.seconds == pytest.approx(0.002 + 100 * 2e-5 + costmodel.ring(2, size, KNOWN.loopback))
    assert four.work == pytest.approx(2 * two.work)
    # Six rounds, each a quarter of the bytes; the bytes are work, for which four share two cores.
    assert four.communication == pytest.approx(6 * (1e-3 + 2 * size / 4 / 1e9))
    assert KNOWN.step(4, 100, Link("100Mbit")).communication == pytest.approx(
        costmodel.ring(4, size, KNOWN.slow)  # the cable is what is waited for, not the cores
    )


def test_a_slower_link_scales_with_its_speed_and_adds_its_delay():
    measured, slower = KNOWN.network(Link("100Mbit")), KNOWN.network(Link("50Mbit", "5ms"))
    assert (measured.latency, measured.bandwidth) == pytest.approx((2e-2, 1e7))
    assert (slower.latency, slower.bandwidth) == pytest.approx((2.5e-2, 5e6))
    assert KNOWN.network(Link("100Gbit")).bandwidth == KNOWN.loopback.bandwidth  # no faster than this machine


def test_gradients_have_the_size_of_the_network():
    import tensorflow as tf

    model, _, _ = calibration._network(tf.distribute.get_strategy(), 32)
    assert calibration.gradient_bytes(32) == 4 * model.count_params()


def test_a_calibration_survives_being_saved(tmp_path):
    assert Calibration.load(KNOWN.save(tmp_path / "deep" / "it.json")) == KNOWN


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"loopback": {"latency": 0}}'])
def test_a_file_that_is_none_is_refused_with_the_cure(tmp_path, text):
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(ConfigError, match="course calibrate"):
        Calibration.load(tmp_path / "it.json")
    with pytest.raises(ConfigError, match="There is no"):
        Calibration.load(tmp_path / "other.json")


def test_real_workers_are_measured_and_the_forecast_is_made_from_that(tmp_path):
    measured = calibration.calibrate(repeats=3)
    assert measured.slow.bandwidth < 12.5e6 * 1.5  # 100 Mbit/s are 12.5 MB/s
    text = io.StringIO()
    forecast.print_calibration(measured, tmp_path / "it.json", Console(file=text, width=120))
    assert "a round over 100 Mbit/s" in text.getvalue()

    told = CliRunner().invoke(
        main,
        [
            "predict",
            "--workers",
            "100",
            "--network",
            "25Gbit",
            "--hours",
            "0.1",
            "--file",
            tmp_path / "it.json",
        ],
    )
    assert told.exit_code == 0, told.output
    assert [row in told.output for row in ("│ 1 ", "│ 10 ", "│ 100 ")] == [True] * 3


def test_a_forecast_can_be_made_for_another_machine_without_a_calibration(tmp_path):
    arguments = [
        "predict",
        "--per-example",
        "3.75ms",
        "--gradients",
        "102",
        "--batch",
        "32",
        "--hours",
        "0.1",
    ]
    told = CliRunner().invoke(main, [*arguments, "--workers", "64", "--file", tmp_path / "none.json"])
    assert told.exit_code == 0, told.output
    assert "120 ms" in told.output and "102.0 MB" in told.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hours", "nan"], "finite number"),
        (["--hours", "0"], "not in the range"),
        (["--gradients", "-3"], "not in the range"),
        (["--network", "0Gbit"], "no bandwidth"),
        (["--spread", "-1"], "not in the range"),
        (["--spread", "1e300"], "not in the range"),
        (["--per-example", "0ms"], "more than 0"),
        (["--per-example", ""], "no time"),
        (["--per-example", "5ms/s"], "no time"),
        (["--latency", "0us"], "more than 0"),
        (["--between-failures", "1s"], "never ends"),
        (["--gradients", "inf"], "finite number"),
        (["--workers", "0"], "not in the range"),
        (["--workers", "1000000000000"], "not in the range"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_a_sentence(arguments, words):
    told = CliRunner().invoke(main, ["predict", "--per-example", "3ms", *arguments])
    assert told.exit_code != 0 and words in told.output
    assert told.exception is None or isinstance(told.exception, SystemExit)


def test_a_hundred_thousand_workers_are_forecast_in_seconds():
    arguments = ["--per-example", "3ms", "--workers", "100000", "--hours", "1e9"]
    told = CliRunner().invoke(main, ["predict", *arguments])
    assert told.exit_code == 0 and "100000" in told.output
    assert "Of the 1e+09 hours the first" in told.output


def test_the_hours_that_were_asked_for_are_simulated():
    told = CliRunner().invoke(main, ["predict", "--per-example", "30ms", "--workers", "100"])
    assert told.exit_code == 0 and "Simulated, 24 hours of steps on 100 workers" in told.output
