"""What the demo prints, and how Ctrl-C reaches it."""

import signal
import threading
import time


class ProgressPrinter:
    """Prints a line with the seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        print(f"[{self.seconds:5.0f} s] {text}", flush=True)

    def notice(self, text: str) -> None:
        """A line about the processes rather than about the run."""
        self.say(f"· {text}")


class Stop:
    """Set by Ctrl-C or SIGTERM; a second signal interrupts at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()

    def __call__(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raises KeyboardInterrupt once set."""
        if self():
            raise KeyboardInterrupt
