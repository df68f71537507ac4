"""A local chain that survives `kill -9`: `python -m localnet.services.chain --data DIR --port N`.

anvil as a child of this process, its state saved every two seconds and when it stops. After a kill the chain goes on
from the last save: clients see the lost seconds as a reorganisation. Prints one READY line; SIGTERM and SIGINT save
and stop (exit 0).
"""

import argparse
import logging
import signal
import threading
import time
from pathlib import Path

from localnet.services.anvil import Anvil, find_anvil, saved_state
from localnet.services.process import claim, lock_folder, run_service
from protocol.errors import MusterError
from protocol.lifetime import die_with_parent

log = logging.getLogger("muster.chain")
_SAVE_SECONDS = 2.0
_SAVE_SHARE = 5.0  # a save that takes long is repeated more seldom: at most a fifth of the time goes into saving
_FAILED_SAVES = 5


def main() -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m localnet.services.chain", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the chain's state")
    parser.add_argument("--port", type=int, default=8545, help="port on 127.0.0.1 (default %(default)s)")
    parser.add_argument("--chain-id", type=int, default=31337, help="(default %(default)s)")
    parser.add_argument("--with-parent", action="store_true", help="die when the parent process dies")
    options = parser.parse_args()
    if options.with_parent:
        die_with_parent()
    find_anvil()
    lock = lock_folder(options.data, "chain")
    claim(options.port, "the chain")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    state = options.data / "state.json"
    anvil = Anvil(options.port, options.chain_id, options.data / "anvil.log")
    try:
        anvil.start(saved_state(state))
        anvil.save(state)  # before anybody sees it: a chain has one genesis block for good
        anvil.mine()
        block = int(anvil.call("eth_blockNumber"), 16)
        where = f"http://127.0.0.1:{options.port} chain_id={options.chain_id} block={block}"
        print(f"READY {where} seconds={time.monotonic() - started:.2f}", flush=True)
        _keep_saving(anvil, state, stop)
        anvil.save(state)
    finally:
        anvil.stop()
        lock.release()
    return 0


def _keep_saving(anvil: Anvil, state: Path, stop: threading.Event) -> None:
    """Save until told to stop. Raises MusterError when anvil ends or cannot be saved several times in a row."""
    pause, failures = _SAVE_SECONDS, 0
    next_save = time.monotonic() + pause
    while not stop.wait(0.2):
        if not anvil.running():
            raise MusterError(f"anvil ended: {anvil.last_words()}", f"see {anvil.log}")
        begun = time.monotonic()
        if begun < next_save:
            continue
        try:
            anvil.save(state)
            failures = 0
        except (MusterError, OSError) as error:
            failures += 1
            log.warning("the chain's state could not be saved: %s", error)
            if failures >= _FAILED_SAVES:
                raise MusterError(f"the chain's state cannot be saved: {error}", "see disk space and log") from None
        pause = max(_SAVE_SECONDS, _SAVE_SHARE * (time.monotonic() - begun))
        next_save = time.monotonic() + pause


if __name__ == "__main__":
    run_service(main)
