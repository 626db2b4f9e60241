"""Reading what workers write while they write it."""

import pytest

from course_utils.cluster import output
from course_utils.cluster.output import Lines, Log


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path / "worker-0.log")
    yield log
    log.close()


def test_only_complete_lines_are_read_until_the_last_time(log):
    log.file.write(b"one\ntw")
    assert log.read() == ["one"]
    log.file.write(b"o\nthree")
    assert log.read() == ["two"]
    assert log.read(last=True) == ["three"]
    assert log.text() == "one\ntwo\nthree\n"


def test_a_progress_bar_leaves_its_last_state(log):
    log.file.write(b"10 %\r50 %\r100 %\n100 %\r\n")
    assert log.read() == ["100 %", "100 %"]


def test_colours_are_left_out(log):
    log.file.write(b"\x1b[1m1/2\x1b[0m \x1b[32mdone\x1b[0m\n")
    assert log.read() == ["1/2 done"]


def test_bytes_that_are_no_text_do_not_stop_the_reading(log):
    log.file.write(b"\xff\xfe\nafter\n")
    assert log.read()[1] == "after"


def test_harmless_messages_of_tensorflow_are_left_out_and_others_are_not(log):
    noise = b"E0000 00:00:1796047431.741788   15462 cuda_platform.cc:52] failed call to cuInit\n"
    log.file.write(noise + b"E0000 00:00:1796048168.581550 17234 ring_alg.cc:291] Aborting RingReduce\n")
    (line,) = log.read()
    assert "Aborting RingReduce" in line
    assert noise in log.path.read_bytes()


def test_a_huge_log_is_cut_and_goes_on(log, monkeypatch):
    monkeypatch.setattr(output, "LOG_LIMIT", 1000)
    for number in range(300):
        log.file.write(f"line {number}\n".encode())
        log.read()
    assert log.path.stat().st_size < 2000 and log.dropped > 0
    assert log.lines[0] == "line 0" and log.lines[-1] == "line 299"


def test_a_line_without_an_end_is_not_kept_in_memory_for_ever(log, monkeypatch):
    monkeypatch.setattr(output, "LINE_LIMIT", 10)
    log.file.write(b"x" * 25)
    assert log.read() == ["x" * 25]


def test_a_flood_of_lines_is_cut_on_the_screen(capsys, monkeypatch):
    monkeypatch.setattr(output, "SHOWN_LINES", 2)
    Lines(["worker 0"]).show(0, ["a", "b", "c", "d"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["[worker 0] a", "[worker 0] b"] and len(shown) == 3 and ".logs" in shown[2]
