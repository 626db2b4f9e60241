"""One attempt at a job: start every process, follow them, say how it ended and why, leave nothing behind."""

import contextlib
import signal
import time
from dataclasses import dataclass
from multiprocessing import connection

from course_utils.cluster import diagnosis, ports, supervise
from course_utils.cluster.launch.console import Console
from course_utils.cluster.launch.members import ABORT_DEADLINE, Member
from course_utils.cluster.launch.options import Launch
from course_utils.cluster.pool import END_DEADLINE

TICK = 0.02  # seconds between two looks
JOIN_GRACE = 1.0  # seconds that one may wait for another that has ended without joining
CAUSE_GRACE = 1.5  # seconds in which the cause of another's error can show itself
TIMED_OUT = 124  # the exit code for what never ended by itself, as of the command `timeout`
SIGNALLED = 128  # plus the signal: the exit code for what a signal has ended, as a shell has it
PREEMPTED = (supervise.PREEMPTED, SIGNALLED + signal.SIGTERM)  # exit codes of who saved and left when told to


@dataclass(frozen=True)
class Ending(supervise.Ending):
    """How an attempt ended, as for the supervisor of a cluster; or "stopped": somebody stopped the launcher.

    `code` is 0 after a finish, else the exit code of the first worker that failed, the `culprit`. `cause`
    says why that may be, `stacks` where those stood who hung. `step` is the last one that all have reported.
    """

    code: int = 0
    cause: str = ""
    stacks: str = ""
    step: int | None = None


class Following:
    """All processes of one attempt, from their start to their end."""

    def __init__(self, members: list[Member], console: Console, signals: list[int], options: Launch):
        self.members, self.console, self.signals = members, console, signals
        self.options = options
        self.began = time.monotonic()

    def run(self) -> Ending:
        """How it ended, when no process of it is left."""
        try:
            for member in self.members:
                member.start()
            while (ending := self._ending()) is None:
                self._wait()
                self._look()
            return ending
        finally:
            self._end()

    def _wait(self) -> None:
        channels = [member.channel for member in self.members if member.channel]
        if channels:
            connection.wait(channels, TICK)
        else:
            time.sleep(TICK)

    def _look(self) -> None:
        for number, member in enumerate(self.members):
            self.console.show(number, member.look())

    def _needed(self) -> list[Member]:
        """Those that end the job; parameter servers, and the workers of a coordinator, only serve."""
        types = {member.task.type for member in self.members}
        servers = {"ps"} | ({"worker"} if {"ps", "chief"} <= types else set())
        return [member for member in self.members if member.task.type not in servers]

    def _ending(self) -> Ending | None:
        """How it has ended, None while it goes on."""
        if self.signals:
            return self._stop()
        if all(member.finished for member in self._needed()):
            return self._done()
        return self._failure() or self._absence() or self._silence() or self._time_up()

    def _done(self) -> Ending:
        return Ending("finished", self._unequal(), step=self._common_step())

    def _unequal(self) -> str:
        """A sentence if workers that train together have not reported equally many steps."""
        steps = {m: m.progress.step for m in self._together() if m.progress}
        if len(set(steps.values())) < 2:
            return ""
        parts = [f"{member.name} {step}" for member, step in steps.items()]
        return f"All workers have finished, but not after equally many steps: {', '.join(parts)}."

    # A failure ----------------------------------------------------------------------------------------

    def _failure(self) -> Ending | None:
        """The first worker that failed by itself; those that only noticed it come when nobody else did."""
        failed = sorted((m for m in self.members if m.failed), key=lambda m: m.ended_at)
        causes = [m for m in failed if not (m.error and m.error.consequence)]
        if causes:
            return self._failed(causes[0])
        if failed and time.monotonic() - failed[0].ended_at > CAUSE_GRACE:
            return self._noticed(failed[0])
        return None

    def _failed(self, member: Member) -> Ending:
        return self._ended(member, how_it_ended(member), likely_cause(member))

    def _noticed(self, victim: Member) -> Ending:
        """Nobody but those who miss somebody: one that is halted or has left is the first that failed."""
        cause = f"{how_it_ended(victim).removesuffix('.')}, because it waited in vain."
        for member in self.members:
            if member.running and diagnosis.is_stopped(member):
                seen = f"{capital(member.name)} is halted (SIGSTOP){at_step(member)}, and does not answer."
                return self._ended(member, seen, cause, _halted())
            if self._left_early(member, victim):
                seen = f"{capital(member.name)} ended too early, with exit code 0{at_step(member)}."
                return self._ended(member, seen, cause, 1)
        return self._ended(victim, how_it_ended(victim), "a worker that it needs was not there.")

    def _left_early(self, member: Member, victim: Member) -> bool:
        return member in self._together() and member.finished and member.ended_at < victim.ended_at

    def _together(self) -> list[Member]:
        """Those that train together, step by step."""
        return [m for m in self._needed() if m.task.type in ("chief", "worker")]

    def _ended(self, member: Member, seen: str, cause: str, code: int | None = None) -> Ending:
        code = (shell_code(member.process.exit_code) or 1) if code is None else code
        how = "preempted" if code in PREEMPTED else "crashed"
        return Ending(how, seen, member.name, code=code, cause=cause, step=self._common_step())

    def _common_step(self) -> int | None:
        steps = [m.progress.step for m in self._together() if m.progress]
        return min(steps, default=None)

    def _absence(self) -> Ending | None:
        """One that has ended without making a strategy, while others wait for it to join."""
        joining = [m for m in self._together() if m.joining]
        gone = [m for m in self._together() if m.finished and "strategy" not in m.stages]
        since = [m.ended_at for m in gone] + [m.stages["strategy"] for m in joining]
        if not (joining and gone) or time.monotonic() - max(since) < JOIN_GRACE:
            return None
        seen = f"{capital(names(gone))} ended with exit code 0 without making a strategy; {names(joining)} "
        seen += "would wait for ever."
        cause = "a way through the script that does not lead to MultiWorkerMirroredStrategy()."
        return Ending("crashed", seen, gone[0].name, code=1, cause=cause, step=self._common_step())

    # A hang -------------------------------------------------------------------------------------------

    def _silence(self) -> Ending | None:
        """A job hangs when no worker that still trains shows a sign of life: no step, no line."""
        running = [m for m in self._together() if m.running] or [m for m in self._needed() if m.running]
        silent = time.monotonic() - max((m.alive_at for m in running), default=0)
        if running and silent > self.options.heartbeat:
            return self._stuck(f"No sign of life for {self.options.heartbeat:g} s", running)
        return None

    def _time_up(self) -> Ending | None:
        if self.options.timeout and time.monotonic() - self.began > self.options.timeout:
            running = [m for m in self._needed() if m.running]
            return self._stuck(f"The job did not finish within {self.options.timeout:g} s", running)
        return None

    def _stuck(self, seen: str, running: list[Member]) -> Ending:
        halted = [m for m in running if diagnosis.is_stopped(m)]
        joining = [m.joining for m in running]
        self._abort(running)
        stuck = halted or _not_waiting(running)
        left = [m for m in self._together() if m.finished]
        states = [f"{m.name} is stuck{at_step(m)} {self._where(m, halted)}" for m in stuck]
        states += [f"{m.name} had ended with exit code 0{at_step(m)}" for m in left]
        states += [f"{m.name} waits{at_step(m)} {self._where(m, halted)}" for m in running if m not in stuck]
        return Ending(
            "hung",
            f"{seen}. {capital('; '.join(states))}.",
            (stuck + left + running)[0].name,
            code=TIMED_OUT,
            cause=diagnosis.EVERYONE_MEETS if left and not stuck and not any(joining) else "",
            stacks="\n".join(f"{m.name}\n{diagnosis.own_stack_text(m.stack)}" for m in stuck if m.stack),
            step=self._common_step(),
        )

    def _abort(self, members: list[Member]) -> None:
        for member in members:
            member.abort()
        end = time.monotonic() + ABORT_DEADLINE
        while any(m.running and not diagnosis.is_stopped(m) for m in members) and time.monotonic() < end:
            time.sleep(TICK)
            for member in members:
                member.process.poll()
        for member in members:
            self.console.show(self.members.index(member), member.read_stack())

    def _where(self, member: Member, halted: list[Member]) -> str:
        if member in halted:
            return "(halted by SIGSTOP)"
        if "strategy" in member.stages and "connected" not in member.stages:
            missing = [m.name for m in self._together() if m is not member and "strategy" not in m.stages]
            return f"for {' and '.join(missing) or 'the others'} to join"
        return diagnosis.place(member.stack)

    # An end on demand ---------------------------------------------------------------------------------

    def _stop(self) -> Ending:
        """Ask all to stop and give them time; a second signal, or the end of the time, kills them."""
        first, grace = self.signals[0], self.options.grace
        self.console.say(
            f"{diagnosis.signal_name(first)}: the workers are told to stop and have {grace:g} s to write a "
            "checkpoint. A second signal ends them at once."
        )
        for member in self.members:
            member.ask_to_stop()
        end = time.monotonic() + grace
        while any(m.running for m in self._needed()) and time.monotonic() < end and len(self.signals) < 2:
            self._wait()
            self._look()
        step, reason = self._common_step(), f"Stopped by {diagnosis.signal_name(first)}"
        reason += "" if step is None else f" at step {step}"
        return Ending("stopped", f"{reason}{self._late()}.", code=SIGNALLED + first, step=step)

    def _late(self) -> str:
        """The end of a sentence on those that have not stopped when asked to."""
        late = " and ".join(member.name for member in self._needed() if member.running)
        if late and len(self.signals) > 1:
            return f"; {late} had to be killed, as a second signal demanded"
        return f"; {late} did not end within {self.options.grace:g} s, and had to be killed" if late else ""

    def _end(self) -> None:
        """No process, no open file."""
        started = [member for member in self.members if member.process]
        for member in started:
            member.process.kill()
        for member in started:
            member.process.wait(END_DEADLINE)
        for number, member in enumerate(self.members):
            with contextlib.suppress(OSError, ValueError):
                self.console.show(number, traceless(member))
            member.close()


def traceless(member: Member) -> list[str]:
    """What a member has written last, without a stack that was asked for."""
    return [] if member.stack else member.log.read(last=True)


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def names(members: list[Member]) -> str:
    """ "worker 0 and worker 2"."""
    return " and ".join(member.name for member in members)


def at_step(member: Member) -> str:
    """ " at step 40", nothing where it has reported none."""
    return f" at step {member.progress.step}" if member.progress else ""


def how_it_ended(member: Member) -> str:
    """One sentence on a member that failed: its exception, the signal, or the exit code."""
    code = member.process.exit_code
    if code < 0:
        return f"{capital(member.name)} was killed by {diagnosis.signal_name(-code)}{at_step(member)}."
    if member.error:
        return f"{diagnosis.what_it_raised(member).removesuffix('.')} ({_after(member)}exit code {code})."
    if member.vanished:
        return f"{capital(member.name)} ended too early, with exit code 0{at_step(member)}."
    if code in PREEMPTED:
        return f"{capital(member.name)} has left as it was told to, with exit code {code}{at_step(member)}."
    return f"{capital(member.name)} ended with exit code {code}{at_step(member)}."


def _after(member: Member) -> str:
    return f"after step {member.progress.step}, " if member.progress else ""


def likely_cause(member: Member) -> str:
    """Why a member may have failed, where its end is one that has a usual reason."""
    said = member.error.message if member.error else ""
    if "Could not start gRPC server" in said:
        return ports.taken(member.port, member.name).seen
    if "No space left on device" in said:
        return "the disk is full."
    if member.vanished:
        return "os._exit, or native code that ends the process: the script did not come to its end."
    return diagnosis.likely_cause_of_error(said) or diagnosis.likely_cause_of_death(member)


def shell_code(code: int) -> int:
    """The exit code as a shell reports it: 137 for a process killed by signal 9."""
    return SIGNALLED - code if code < 0 else code


def _halted() -> int:
    return SIGNALLED + signal.SIGSTOP


def _not_waiting(running: list[Member]) -> list[Member]:
    """Those whose stack is not inside TensorFlow, where one waits for others."""
    return [member for member in running if member.stack and not diagnosis.in_tensorflow(member.stack)]
