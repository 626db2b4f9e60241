"""What `wire.bytes_sent` counts: this process's own sending, over TCP, once."""

import math
import os
import socket
import sys

import pytest

from course_utils import wire

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's counters are Linux'")


@pytest.fixture
def connection():
    """Both ends of a TCP connection on the loopback interface."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=10) as near,
        server.accept()[0] as far,
    ):
        yield near, far


@linux_only
def test_counts_what_was_sent_and_not_what_was_received(connection):
    near, far = connection
    before = wire.bytes_sent()
    near.sendall(b"x" * 10_000)
    assert _receive(far, 10_000) == 10_000
    assert wire.bytes_sent() - before == 10_000


@linux_only
def test_leaves_the_connection_open_and_no_descriptor_behind(connection):
    near, far = connection
    open_before = len(os.listdir("/proc/self/fd"))
    wire.bytes_sent()
    near.sendall(b"still here")
    assert _receive(far, 10) == 10
    assert len(os.listdir("/proc/self/fd")) == open_before


@linux_only
def test_leaves_out_what_was_sent_again(connection, monkeypatch):
    info = bytes(wire._SENT_AT) + wire._COUNTS.pack(1000, 1000)
    monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: info)
    assert wire.bytes_sent() == 0


def test_is_nan_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.delattr(socket, "TCP_INFO", raising=False)
    assert math.isnan(wire.bytes_sent())


@linux_only
def test_is_nan_where_the_counter_is_not_among_what_the_kernel_gives(connection, monkeypatch):
    monkeypatch.setattr(wire, "_TCP_INFO_SIZE", 1000)
    assert math.isnan(wire.bytes_sent())


def _receive(far, wanted):
    far.settimeout(10)
    seen = 0
    while seen < wanted:
        seen += len(far.recv(wanted - seen))
    return seen
