"""A local chain that survives `kill -9`: `python -m localnet.services.chain --data DIR --port N`.

anvil runs as a child of this process. Its state is saved every two seconds and at the end, so a kill loses at most the
last seconds, which clients see as a reorganisation. Prints one READY line. SIGTERM and SIGINT save and stop (exit 0).
"""

import argparse
import gzip
import json
import logging
import platform
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx

import localnet
from localnet.ports import claim, lock_folder
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.waits import wait_for
from runtime.entry import run_main
from runtime.supervisor import Child

log = logging.getLogger("muster.chain")
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_START_SECONDS = 60.0
_HISTORY = 64
"""Past blocks that keep their full state, for historical calls. Each is a copy: saving thousands would take seconds."""
_BLOCK_SECONDS = 1.0


def find_anvil() -> Path:
    """The native program: from the checkout's node_modules, or the one on PATH. Raises ConfigError."""
    machine = _MACHINES.get(platform.machine().lower(), "")
    package = f"@foundry-rs/anvil-{platform.system().lower()}-{machine}"
    anvil = shutil.which("anvil")
    # npm's `anvil` is a node wrapper that would not pass signals on; the native program lies beside its package.
    wrapped = [folder for folder in Path(anvil).resolve().parents if folder.name == "node_modules"] if anvil else []
    for modules in (Path(localnet.__file__).parents[1] / "node_modules", *wrapped):
        for folder in (modules, modules / "@foundry-rs/anvil/node_modules"):
            program = folder / package / "bin" / "anvil"
            if program.is_file():
                return program
    if anvil:
        return Path(anvil)
    hint = "put Foundry's anvil on the PATH: npm install -g @foundry-rs/anvil; in a checkout: make setup"
    raise ConfigError("anvil, the local chain, is not installed", hint)


class Anvil:
    """One anvil child on 127.0.0.1; once its `miner` is started it has a block a second, until `stop`.

    The blocks are asked for one by one: with an interval of its own anvil keeps the state of the last 1,500 blocks,
    whatever `--prune-history` says, in its memory and in everything that it saves.
    """

    def __init__(self, port: int, chain_id: int, log: Path) -> None:
        self.port, self.chain_id, self.log = port, chain_id, log
        command = [str(find_anvil()), "--host", "127.0.0.1", "--port", str(port), "--chain-id", str(chain_id)]
        command += ["--no-mining", "--hardfork", "prague", "--quiet"]
        # In a session of its own: Ctrl-C is for us, who save the state first.
        self._child = Child("anvil", [*command, "--prune-history", str(_HISTORY)], log)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self._stopping = threading.Event()
        self.miner = threading.Thread(target=self._mine, name="miner", daemon=True)

    def start(self, state: Path | None) -> None:
        """Start, from `state` if given, and wait until it answers. Raises MusterError with the end of its log."""
        self.log.unlink(missing_ok=True)
        if state is not None:
            self._child.argv += ["--load-state", str(state)]
        self._child.start()
        wait_for("anvil to answer", self._answers, timeout=_START_SECONDS, poll=0.05, hint=f"see {self.log}")

    def _mine(self) -> None:
        """Each block's time is above that of the one before, as on every chain."""
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due = max(due + _BLOCK_SECONDS, time.monotonic())
            try:
                newest = int(self.call("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
                self.call("evm_mine", {"timestamp": max(int(time.time()), newest + 1)})
            except MusterError as error:
                log.warning("no block was made: %s", error)

    def _answers(self) -> bool:
        if not self.running():
            raise MusterError(f"anvil ended at once: {self.log_tail()}", f"see {self.log}")
        try:
            chain_id = int(self.call("eth_chainId"), 16)
        except UnreachableError:
            return False
        if chain_id != self.chain_id:
            raise ConfigError(f"port {self.port} answers for chain {chain_id}", "stop what uses it")
        return True

    def running(self) -> bool:
        return self._child.pid is not None

    def log_tail(self) -> str:
        return self._child.tail()[-300:] or "it said nothing"

    def call(self, method: str, *params: Any) -> Any:
        """One JSON-RPC call. Raises UnreachableError, or MusterError with anvil's own message."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            fields = self._http.post("/", json=body).json()
        except (httpx.HTTPError, ValueError) as error:
            raise UnreachableError(f"anvil on port {self.port} does not answer: {error}", f"see {self.log}") from None
        if "error" in fields:
            raise MusterError(f"anvil refuses {method}: {fields['error'].get('message', '')}", f"see {self.log}")
        return fields["result"]

    def save(self, path: Path) -> None:
        """Write the whole state to `path`: complete and on disk before the old file goes."""
        write_atomic(path, gzip.decompress(bytes.fromhex(self.call("anvil_dumpState", True)[2:])))

    def stop(self) -> None:
        self._stopping.set()
        self._child.terminate()
        self._child.end(5)
        self._http.close()


def saved_state(path: Path) -> Path | None:
    """Return a file with the saved state and one block 0, None on a first start: anvil 1.7 adds a block 0 of its own at
    every start, and loads any of them the next time. Raises ConfigError if what is there is not a state: nothing is
    overwritten."""
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_bytes())
        numbers = [int(block["header"]["number"], 16) for block in fields["blocks"]]
    except (OSError, ValueError, KeyError, TypeError):
        hint = "restore it from a copy, or remove --data to start again"
        raise ConfigError(f"the chain's state {path} is damaged", hint) from None
    genesis = [block for block, number in zip(fields["blocks"], numbers, strict=True) if number == 0]
    if len(genesis) < 2:
        return path
    first = min(genesis, key=lambda block: int(block["header"]["timestamp"], 16))
    fields["blocks"] = [first, *(block for block, number in zip(fields["blocks"], numbers, strict=True) if number > 0)]
    repaired = path.with_suffix(".start")
    repaired.write_text(json.dumps(fields))
    return repaired


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
    options = parser.parse_args()
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
        anvil.miner.start()
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
            raise MusterError(f"anvil ended: {anvil.log_tail()}", f"see {anvil.log}")
        if not anvil.miner.is_alive():
            raise MusterError("nobody makes blocks any more", "see the log above")
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
    run_main(main)
