"""What every service process needs: to claim its port, to end with one clear line."""

import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from localnet.ports import is_free
from protocol.errors import ConfigError, MusterError
from protocol.waits import wait_for
from runtime.logs import start_logging


def claim(port: int, what: str) -> None:
    """Raise ConfigError unless `port` is free on 127.0.0.1, or becomes so within three seconds of a restart."""
    try:
        wait_for(f"port {port}", lambda: is_free(port) or None, timeout=3, poll=0.1)
    except MusterError:
        raise ConfigError(f"port {port} for {what} is in use", "stop what uses it or choose another --port") from None


def lock_folder(folder: Path, what: str, option: str = "--data") -> FileLock:
    """Take `folder` for this process alone, until the returned lock is released or the process ends. Waits three
    seconds for a predecessor. `option` names the folder on the command line. Raises ConfigError."""
    lock = FileLock(folder / "lock", timeout=3)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(poll_interval=0.1)
    except Timeout:
        raise ConfigError(
            f"{folder} is in use by another {what}", f"stop that one or choose another {option}"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}", f"choose another {option}") from None
    return lock


def run_service(main: Callable[[], int], interrupted: str = "") -> None:
    """Run `main` and exit with its code; a MusterError becomes one line on stderr and exit code 2, Ctrl-C 130 and the
    line `interrupted`, if there is one."""
    try:
        start_logging()
        code = main()
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 2
    except KeyboardInterrupt:
        if interrupted:
            print(interrupted, file=sys.stderr, flush=True)
        code = 130
    sys.exit(code)
