"""Interrupts that also reach a sleeping main thread."""

from __future__ import annotations

import itertools
import signal
import socket
import threading
import time
from types import FrameType

__all__ = ["hear_interrupts"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that the main thread has to hear a signal by itself.
_PATIENCE = 0.1


class _Hearing:
    """Raises KeyboardInterrupt in the main thread for each signal that arrives.

    Python notes a signal and runs its handler between two steps of the main thread. One that comes
    just before that thread falls asleep (over a lock, a thread, a child) is only heard when it
    wakes, which may be never: so a thread sends it once more while it is not heard. What has come
    and was not handled yet is in a socket, which the handler empties.
    """

    def __init__(self) -> None:
        self._heard, noted = socket.socketpair()
        noted.setblocking(False)
        self._noted = noted
        self._runs = itertools.count(1)
        self._run = 0
        self._main = threading.get_ident()

    def begin(self) -> None:
        """Take over the signals that are not ignored (as those of `nohup` are)."""
        for number in _NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        signal.set_wakeup_fd(self._noted.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._repeat, name="interrupts", daemon=True).start()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if _passed_over(frame):
            return  # it is sent once more
        self._run = next(self._runs)
        self._waiting(socket.MSG_DONTWAIT)
        raise KeyboardInterrupt

    def _waiting(self, flags: int) -> bytes:
        try:
            return self._heard.recv(4096, flags)
        except BlockingIOError:
            return b""

    def _repeat(self) -> None:
        while True:
            self._waiting(socket.MSG_PEEK)
            time.sleep(_PATIENCE)
            run = self._run
            for number in self._waiting(socket.MSG_PEEK | socket.MSG_DONTWAIT)[:1]:
                if signal.getsignal(number) != self._interrupt:
                    self._heard.recv(1)  # another's, who hears it
                # No step of the main thread can come between these two.
                elif self._run == run:
                    signal.pthread_kill(self._main, number)


def _passed_over(frame: FrameType | None) -> bool:
    """Whether what is raised here is printed and forgotten: in the end of an object, or of a lock
    that an import held (some of which come with every module)."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or (
            code.co_name == "cb" and code.co_filename == "<frozen importlib._bootstrap>"
        ):
            return True
        frame = frame.f_back
    return False


def hear_interrupts() -> None:
    """From now on an interrupt raises KeyboardInterrupt in the main thread, which calls this.

    A polite end (`kill`, a closed terminal, a time limit) is treated like Ctrl-C, so that what
    the command started is stopped by it as well.
    """
    _Hearing().begin()
