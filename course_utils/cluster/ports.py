"""Free ports on this machine, held until their worker takes them."""

import contextlib
import socket

from course_utils.errors import ConfigError


class HeldPort:
    """A port of 127.0.0.1 that nobody else is given until it is released: this one, or one that is free.

    The socket is bound and does not listen. With SO_REUSEADDR on both sides, gRPC can bind the same port and
    listen while we hold it, so there is no moment in which another program could get it.
    """

    def __init__(self, number: int = 0):
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", number))
        self.number = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def release(self) -> None:
        self._socket.close()


# Addresses given out by `free_addresses` and not used yet.
_given_out: dict[int, HeldPort] = {}


def free_addresses(count: int) -> list[str]:
    """Addresses "127.0.0.1:port" for a TF_CONFIG of your own; nobody else is given these ports meanwhile."""
    held = [HeldPort() for _ in range(count)]
    _given_out.update({port.number: port for port in held})
    return [port.address for port in held]


def take(port: int | None) -> HeldPort | None:
    """The hold on a port that `free_addresses` gave out, now the taker's to release."""
    return _given_out.pop(port, None)


def listens(port: int) -> bool:
    """Whether some program of this machine accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_this_machine(host: str) -> bool:
    """Whether the host is this machine, told without asking any name server."""
    host = host.strip("[]")
    if host.lower() in ("localhost", socket.gethostname().lower()):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        packed = socket.inet_pton(family, host)
        with socket.socket(family) as trial:
            trial.bind((socket.inet_ntop(family, packed), 0))
    except OSError:
        return False
    return True


def holder(port: int) -> str | None:
    """Who has the port: "python (process 1234)", "another program"; None if it is free."""
    with contextlib.closing(socket.socket()) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
            # A bound socket that does not listen would let us bind; listening settles it.
            trial.listen(1)
        except OSError:
            return _program_on(port) or "another program"
    return None


def taken(port: int, task: str) -> ConfigError:
    """The error to raise when a task cannot have its port."""
    return ConfigError(
        f"Port {port}, where {task} is to listen, is taken by {holder(port) or 'another program'}.",
        cure=f"Give {task} another port, or end that program.",
    )


def _program_on(port: int) -> str | None:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for entry in psutil.net_connections("tcp"):
            if entry.laddr and entry.laddr.port == port and entry.pid:
                return f"{psutil.Process(entry.pid).name()} (process {entry.pid})"
    return None
