"""A slow network between the workers of this machine, without being root: a proxy that throttles.

Each worker gets a TF_CONFIG of its own, in which the addresses of all others are ports of the proxy; its own
address stays. TensorFlow takes that. All that one worker sends to another then passes the proxy, which lets
it go when a cable of the wanted speed would have.

The proxy is a thread of the calling process, so it ends with it, and takes some processor time: good for
links up to about 1 Gbit/s, of no use for imitating faster ones.
"""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from course_utils import units
from course_utils.cluster.config import ClusterConfig, Task, task_of
from course_utils.errors import ConfigError

SLICE = 0.005  # seconds of one cable that one connection gets before the next may have it
FEWEST, MOST = 2 << 10, 64 << 10  # bytes in one piece
MOST_PIECES = (
    1024  # on the way at once: what a long delay holds, and an end to it if the target does not read
)
AHEAD = 0.05  # seconds of work that may wait in the proxy; then the sender has to wait, as TCP makes it
PATIENCE = 60  # seconds in which a worker may open its port
TRY_AGAIN = 0.02


class Link:
    """The cables of a cluster: each worker has one, to a switch, with a speed in each direction.

    bandwidth: such as "100Mbit" or "1Gbit", bits a second each way; None: not throttled.
    delay: such as "5ms", on the way from one worker to another; there and back takes twice as long.

    Give it to `LocalCluster(link=…)`. `cut` and `restore` may be called at any time, from any thread.
    `carried[source, target]` counts the bytes that one task has sent to another in the last run, by name.
    """

    def __init__(self, bandwidth: str | None = None, delay: str = "0ms"):
        self.bandwidth, self.delay = bandwidth, delay
        self.bytes_per_second = _bytes_per_second(bandwidth)
        self.delay_seconds = units.seconds(delay, f"Link(delay={delay!r})")
        self.carried: Counter[tuple[str, str]] = Counter()
        self._cut: set[str] = set()
        self._names: set[str] = set()  # of the tasks of this run, or of the last one
        self._stands_for: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Link(bandwidth={self.bandwidth!r}, delay={self.delay!r})"

    def __getstate__(self):
        raise TypeError("A link stays with the notebook: a worker cannot be given one.")

    def seconds(self, count: float) -> float:
        """Seconds until `count` bytes, sent at once over an idle link, have all arrived."""
        return count / self.bytes_per_second + self.delay_seconds

    def cut(self, task: str | None = None) -> None:
        """Pull a task's cable, such as "worker 1", or all: nothing passes, and nobody is told.

        Raises ConfigError where that is no task's name; once a cluster runs, also where it has no such task.
        """
        self._cut.add(ALL if task is None else self._known(task))

    def restore(self, task: str | None = None) -> None:
        """Put a task's cable back, or all of them; what was on its way goes on. Raises what `cut` raises."""
        if task is None:
            self._cut.clear()
        elif self._known(task) in self._cut or ALL not in self._cut:
            self._cut.discard(task)
        elif self._names:
            self._cut = (self._cut | self._names) - {ALL, task}
        else:
            raise ConfigError(
                f"All cables are cut, and {task} alone cannot be restored before a cluster runs.",
                cure="Call restore() without a name, then cut those that are to be cut.",
            )

    def _known(self, task: str) -> str:
        """The name of a task; ConfigError if it cannot be one, or the cluster has no such task."""
        if not isinstance(task, str) or not TASK.fullmatch(task):
            raise ConfigError(f"{task!r} is no task's name.", expected='a name such as "worker 1".')
        if self._names and task not in self._names:
            raise ConfigError(
                f"There is no {task} in this cluster.", expected=f"one of {', '.join(sorted(self._names))}."
            )
        return task

    def passes(self, source: str, target: str) -> bool:
        """Whether bytes can go from one task to another now."""
        return self._cut.isdisjoint((ALL, source, target))

    def as_written(self, text: str | None) -> str | None:
        """A worker's TF_CONFIG with the addresses that the ports of the proxy stand for."""
        for port, address in self._stands_for.items():
            text = text and text.replace(f'"{port}"', f'"{address}"')
        return text

    @contextlib.contextmanager
    def between(self, configs: Sequence[str | None]) -> Iterator[list[str | None]]:
        """The TF_CONFIG texts with the addresses of peers led through the proxy, which runs meanwhile."""
        self.carried.clear()
        with contextlib.ExitStack() as stack:
            proxy = _Proxy(self)
            stack.callback(proxy.close_ports)
            texts = [proxy.lead_through(text, number) for number, text in enumerate(configs)]
            self._names = proxy.tasks
            for task in self._cut - {ALL}:
                self._known(task)
            self._stands_for = {f"127.0.0.1:{port.getsockname()[1]}": to for port, to, *_ in proxy.ports}
            stack.enter_context(proxy.running())
            yield texts


ALL = "all"
TASK = re.compile(r"(chief|worker|ps|evaluator)( \d+)?")


class Lane:
    """One direction of one cable: a schedule of when the bytes that came in have gone out.

    A token bucket that holds no token: who comes late gains nothing, and who waits loses nothing, because
    bytes are counted from when they came, not from when the proxy has time for them.
    """

    def __init__(self, bytes_per_second: float):
        self.bytes_per_second, self.free_at = bytes_per_second, 0.0

    def take(self, arrival: float, count: int) -> float:
        """When the first of `count` bytes goes out; the lane is free again at `free_at`."""
        start = max(self.free_at, arrival)
        self.free_at = start + count / self.bytes_per_second
        return start


class Way:
    """From one task to another: out over the cable of the one, in over that of the other."""

    def __init__(self, link: Link, source: str, target: str, out: Lane, into: Lane):
        self.link, self.names, self.out, self.into = link, (source, target), out, into
        self.piece = int(min(MOST, max(FEWEST, link.bytes_per_second * SLICE)))

    def due(self, arrival: float, count: int) -> float:
        """When the last of `count` bytes reaches its target."""
        # The switch passes on while it still receives, so the second cable costs time only if it is busy.
        self.into.take(self.out.take(arrival, count), count)
        return self.into.free_at + self.link.delay_seconds

    def backlog(self, now: float) -> float:
        """Seconds until the busier of the two cables is free."""
        return max(self.out.free_at, self.into.free_at) - now

    async def open(self) -> None:
        """Return when bytes can pass."""
        while not self.link.passes(*self.names):
            await asyncio.sleep(TRY_AGAIN)


class _Proxy:
    """The ports and the lanes of one run, and the thread that serves them."""

    def __init__(self, link: Link):
        self.link = link
        self.lanes: dict[tuple[str, str], Lane] = {}
        self.ports: list[tuple[socket.socket, str, Way, Way]] = []
        self.reached: set[str] = set()  # addresses that have answered
        self.tasks: set[str] = set()
        self.over = False

    def lead_through(self, text: str | None, number: int) -> str | None:
        """The TF_CONFIG of one process with a port of ours in place of each address that is not its own."""
        try:
            config, me = ClusterConfig.from_tf_config(text), task_of(text, number)
        except ConfigError:
            return text  # a text that is wrong on purpose
        self.tasks |= {str(me), *map(str, config.tasks)}
        changed = json.loads(text)
        for peer in config.tasks:
            if peer != me:
                address = config.address(peer.type, peer.index)
                changed["cluster"][peer.type][peer.index] = self._port_to(address, me, peer)
        return json.dumps(changed)

    def _port_to(self, address: str, me: Task, peer: Task) -> str:
        port = socket.create_server(("127.0.0.1", 0))
        self.ports.append((port, address, self._way(str(me), str(peer)), self._way(str(peer), str(me))))
        return f"127.0.0.1:{port.getsockname()[1]}"

    def _way(self, source: str, target: str) -> Way:
        return Way(self.link, source, target, self._lane("out", source), self._lane("in", target))

    def _lane(self, direction: str, task: str) -> Lane:
        return self.lanes.setdefault((direction, task), Lane(self.link.bytes_per_second))

    def close_ports(self) -> None:
        for port, *_ in self.ports:
            port.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        # A daemon, so that it cannot keep alive a process whose main thread has ended.
        thread = threading.Thread(target=_serve, args=(loop, self), name="links", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._end, loop)
            thread.join()

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the loop, and say so: a stop that comes just as `listen` is done would be lost."""
        self.over = True
        loop.stop()

    async def listen(self) -> None:
        for port, address, there, back in self.ports:
            await asyncio.start_server(self._handler(address, there, back), sock=port, limit=4 * MOST)

    def _handler(self, address: str, there: Way, back: Way):
        async def handle(reader, writer):
            # Only the end of the run cancels this, and asyncio would report a cancelled handler as a fault.
            with contextlib.suppress(asyncio.CancelledError), _closing(writer):
                await there.open()
                far = await self._connect(address)
                if far is None:
                    return
                far_reader, far_writer = far
                with _closing(far_writer):
                    await _both(carry(reader, far_writer, there), carry(far_reader, writer, back))

        return handle

    async def _connect(self, address: str):
        """A connection to a worker, which may not have opened its port yet; None if it has gone."""
        host, _, port = address.rpartition(":")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                connection = await asyncio.open_connection(host.strip("[]"), int(port), limit=4 * MOST)
            except OSError:
                if address in self.reached:
                    return None
                await asyncio.sleep(TRY_AGAIN)
            else:
                self.reached.add(address)
                return connection
        return None


def _serve(loop: asyncio.AbstractEventLoop, proxy: _Proxy) -> None:
    """Run the proxy until the loop is stopped, then end all connections."""
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(RuntimeError):  # the run is over before all ports listen
            loop.run_until_complete(proxy.listen())
            if not proxy.over:
                loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))  # sockets are closed in the round after
    finally:
        loop.close()


@contextlib.contextmanager
def _closing(writer):
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    writer.close()


async def _both(*directions) -> None:
    """Return when both directions have ended, or one has broken."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.gather(*tasks)
    except OSError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def carry(reader, writer, way: Way) -> None:
    """Bring all that comes out of `reader` to `writer`, each piece when it is due; the end too."""
    on_the_way = asyncio.Queue(MOST_PIECES)
    taking_in = asyncio.ensure_future(_take_in(reader, way, on_the_way))
    try:
        while isinstance(piece := await on_the_way.get(), tuple):
            due, data = piece
            await _until(due)
            await way.open()
            writer.write(data)
            await writer.drain()
            way.link.carried[way.names] += len(data)
        await way.open()
        if piece is not None:
            raise piece
        writer.write_eof()
    finally:
        taking_in.cancel()
        await asyncio.gather(taking_in, return_exceptions=True)


async def _take_in(reader, way: Way, on_the_way: asyncio.Queue) -> None:
    """Read what comes, note when it is due; read no further ahead than a cable's queue is long.

    The last thing in the queue is None, or the error that broke the connection.
    """
    try:
        while data := await reader.read(way.piece):
            now = time.monotonic()
            await on_the_way.put((way.due(now, len(data)), data))
            await _until(now + way.backlog(now) - AHEAD)
            await way.open()
    except OSError as error:
        await on_the_way.put(error)
    else:
        await on_the_way.put(None)


async def _until(moment: float) -> None:
    if (left := moment - time.monotonic()) > 0:
        await asyncio.sleep(left)


def _bytes_per_second(bandwidth):
    if bandwidth is None:
        return float("inf")
    return units.bits_per_second(bandwidth, f"Link(bandwidth={bandwidth!r})") / 8
