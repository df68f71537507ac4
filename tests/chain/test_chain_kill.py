"""kill -9 of the chain while transactions are under way; it comes back from its last save, seconds older."""

import gzip
import threading
import time
from pathlib import Path

from chain.transactions import Call
from protocol.waits import wait_for
from tests.conftest import Chain

SELF = "0x000000000000000000000000000000000000bEEF"


def test_senders_survive_a_chain_that_forgets_its_last_seconds(tmp_path: Path) -> None:
    chain = Chain(block_time=1).start()
    try:
        accounts = [chain.account() for _ in range(2)]
        chain.mine()
        client_list = [chain.client(account, patience=30) for account in accounts]
        done: list[str] = []
        failures: list[Exception] = []
        stop = threading.Event()

        def work(number: int) -> None:
            try:
                while not stop.is_set():
                    done.append(client_list[number].send(Call(SELF, b"", "gift", 1), timeout=60).tx_hash)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def until_sent(more: int) -> None:
            goal = len(done) + more
            wait_for(f"{more} more transactions", lambda: len(done) >= goal or bool(failures), 100)

        for _ in range(2):
            until_sent(4)
            state = tmp_path / "state.json"
            state.write_bytes(gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:])))
            until_sent(4)
            chain.kill()
            time.sleep(1)
            chain.state = state
            chain.start()
        until_sent(8)
        stop.set()
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive()
        assert not failures
        balance = client_list[0].balance(SELF)
        nonces = [int(chain.rpc("eth_getTransactionCount", a.address, "latest"), 16) for a in accounts]
        # Nothing acts twice: every mined transaction is one that somebody was told of, and no nonce was wasted.
        assert sum(nonces) == balance <= len(done)
        kept = [chain.rpc("eth_getTransactionReceipt", tx_hash) is not None for tx_hash in done]
        assert sum(kept) == balance
        assert all(kept[-4:]), "since its last start it has forgotten nothing"
    finally:
        chain.kill()
