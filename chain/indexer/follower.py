"""Follows the suite's events with a durable cursor, through restarts, reorganisations and chains that lose their end.

Before each step the block at the cursor is compared with the chain's. If it is gone, the newest stored block that the
chain still has is the fork point: what was stored above it is deleted, reported as a rollback, and followed again.

Far below the head, logs are asked for by ranges of blocks, and only kept if the range's last block is the same before
and after. Near the head, where chains reorganise and an endpoint's index of logs may lag behind its blocks, every
block's logs are asked for by its hash, and its parent must be the block before: so what is stored is of one branch, and
no endpoint answers for a block that it does not have. An endpoint that takes no hashes is asked for the block's number,
and the block is looked at once more afterwards. Logs are only believed once two answers were alike, because an
index that lags, or one replica of several, leaves some out now and then. An endpoint that always leaves out the same
logs is found by the ledger's comparison with the contracts (`orchestrator.ledger`).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from chain import abi
from chain.deployment import Deployment
from chain.indexer.logs import Batch, Event, Log, accepted, decode_logs, place_of
from chain.indexer.store import EventStore
from chain.rpc import Block, ChainReader, ErrorKind, Request, RpcError
from protocol.errors import MusterError, UnreachableError

log = logging.getLogger("muster.chain")
_RANGE = 2000
_TIP = 64  # Blocks below the head whose logs are asked for one by one
_ATTEMPTS = 6
_MOST_EVENTS = 10_000
_LAG_SECONDS = 10.0
_INVALID_PARAMETERS = -32602


class _Moved(Exception):
    """The chain, or what an endpoint says of it, changed while it was being read."""


class Follower:
    """Events of a deployment from its start block on, stored in the file `path`. One thread at a time. Raises
    ConfigError when the chain or the file belongs to another deployment."""

    def __init__(self, client: ChainReader, deployment: Deployment, path: Path) -> None:
        self._client = client
        self._deployment = deployment
        self._first = deployment.start_block
        self._addresses = [deployment.address(name) for name in abi.FOLLOWED]
        self._range = self._max_range = _RANGE
        self._behind_since: float | None = None
        self._without_hashes: set[str] = set()  # Endpoints that give no logs by a block's hash
        self.time = 0  # Chain time: that of the newest block that a poll saw; 0 before the first
        # Stored but not yet handed out: a poll that fails half-way must not swallow events.
        self._undelivered: list[Event] = []
        self._rollback: int | None = None
        deployment.check_genesis(client)
        self._store = EventStore(
            path,
            {
                "chain": str(deployment.chain_id),
                "genesis": deployment.genesis,
                "pools": deployment.address("Pools"),
                "start": str(deployment.start_block),
            },
        )
        self.archive = self._store.archive  # where a projection of these events keeps what is final

    @property
    def head(self) -> int:
        """The block up to which events are stored; one less than the start block before the first poll."""
        cursor = self._store.cursor
        return self._first - 1 if cursor is None else cursor

    def history(self, after: int = -1) -> Iterator[Event]:
        """Yield the stored events of the blocks above `after` in chain order."""
        logs = self._store.logs(after)
        while chunk := list(islice(logs, 1000)):
            yield from decode_logs(chunk, self._deployment)

    def poll(self) -> Batch:
        """Catch up with the chain, or by some thousand events of it. Raises UnreachableError when it does not answer;
        nothing stored is lost."""
        for _ in range(_ATTEMPTS):
            try:
                target = self._target()
                last = target.number if target is not None else self.head
                while target is not None and self.head < last and len(self._undelivered) < _MOST_EVENTS:
                    self._undelivered += self._advance(target)
                batch = Batch(self._rollback, self._undelivered, self.head, more=self.head < last)
                self._rollback, self._undelivered = None, []
                return batch
            except _Moved:
                log.info("the chain changed while being read; looking again")
        raise UnreachableError(f"{self._client.url} changes its mind faster than it can be read", "check the endpoint")

    def close(self) -> None:
        self._store.close()

    # Where to go, and whether the past still holds

    def _target(self) -> Block | None:
        """The block to follow up to, if there is anything new, after a stored end that is gone was withdrawn."""
        cursor = self._store.cursor
        latest, *at_cursor = self._client.blocks(["latest"] if cursor is None else ["latest", cursor])
        if latest is None:
            raise UnreachableError(f"{self._client.url} has no latest block", "wait until the node has synced")
        self.time = latest.time
        if cursor is not None and not self._holds(cursor, at_cursor[0], latest):
            if self._lagging(cursor, latest):
                return None
            self._rewind(cursor)
        self._behind_since = None
        return latest if latest.number > self.head else None

    def _holds(self, cursor: int, at_cursor: Block | None, latest: Block) -> bool:
        block = latest if latest.number == cursor else at_cursor
        return block is not None and (block.number, block.hash) == (cursor, self._store.hash_at(cursor))

    def _lagging(self, cursor: int, latest: Block) -> bool:
        if len(self._client.provider.urls) == 1 or latest.number >= cursor:
            return False
        now = time.monotonic()
        self._behind_since = self._behind_since or now
        return now - self._behind_since < _LAG_SECONDS

    def _rewind(self, cursor: int) -> None:
        self._deployment.check_genesis(self._client)
        fork = self._fork_point()
        log.warning("the chain reorganised: events above block %d are withdrawn (cursor was %d)", fork, cursor)
        self._store.rewind(fork)
        # At once: what this poll asks next may fail, and the next one will find nothing amiss.
        self._rollback = fork if self._rollback is None else min(self._rollback, fork)
        self._undelivered = [event for event in self._undelivered if event.block <= fork]

    def _fork_point(self) -> int:
        below, width = self.head + 1, 4
        while part := [known for known in self._store.known_blocks(below, width) if known[0] >= self._first]:
            blocks = self._client.blocks([number for number, _ in part])
            for (number, block_hash), block in zip(part, blocks, strict=True):
                if block is not None and block.hash == block_hash:
                    return number
            below, width = part[-1][0], min(width * 4, 100)
        return self._first - 1

    # Going there

    def _advance(self, target: Block) -> list[Event]:
        first, deep = self.head + 1, target.number - _TIP
        return self._tip(first, target) if first > deep else self._span(first, min(deep, first + self._range - 1))

    def _tip(self, first: int, target: Block) -> list[Event]:
        before = self._store.hash_at(first - 1)
        between = range(first, target.number)
        blocks = [*(self._client.blocks(between) if between else ()), target]
        links = []
        for block in blocks:
            if block is None or (before is not None and block.parent != before):
                raise _Moved
            links.append((block.number, block.hash))
            before = block.hash
        url = self._client.url
        by_hash = url not in self._without_hashes
        answers = self._asked_twice([_one_block(*link, by_hash) for link in links])
        refusals = [error for error in answers if isinstance(error, RpcError)]
        if by_hash and any(map(_takes_no_hash, refusals)):
            log.info("%s gives no logs by a block's hash (%s); asking by number", url, refusals[0].message)
            self._without_hashes.add(url)
            return []
        if not by_hash and not refusals:
            again = self._client.blocks([number for number, _ in links])
            if [block and block.hash for block in again] != [block_hash for _, block_hash in links]:
                raise _Moved
        logs = []
        for (number, block_hash), answer in zip(links, answers, strict=True):
            if isinstance(answer, RpcError):
                raise self._refusal(answer, number)
            with self._distrusting():
                logs += accepted(answer, number, number, block_hash)
        return self._keep(logs, links)

    def _span(self, first: int, last: int) -> list[Event]:
        end = self._client.block(last)
        if end is None:
            raise _Moved
        try:
            (answer,) = self._asked_twice([{"fromBlock": hex(first), "toBlock": hex(last)}])
        except UnreachableError:  # perhaps a limit of the range, in words of a busy endpoint
            self._range = max(1, (last - first + 1) // 4)
            raise
        if isinstance(answer, RpcError):
            if first == last or _lacks_block(answer):
                raise self._refusal(answer, last)
            block_count = last - first + 1
            # Doubling the range later must not run into the same refusal again.
            self._max_range, self._range = max(1, block_count - 1), max(1, block_count // 4)
            refusal = f"refuses {block_count} blocks of logs ({answer.message})"
            log.info("%s %s; asking for %d", self._client.url, refusal, self._range)
            return []
        known_parent = self._store.hash_at(first - 1)
        *parent, end_now = self._client.blocks([*([first - 1] if known_parent else ()), last])
        # The cursor's own block may have gone since it was compared: what follows is then another branch's.
        same_parent = all(block is not None and block.hash == known_parent for block in parent)
        if end_now is None or end_now.hash != end.hash or not same_parent:
            raise _Moved
        self._range = min(self._range * 2, self._max_range)
        with self._distrusting():
            logs = accepted(answer, first, last, end.hash)
        return self._keep(logs, [(last, end.hash)])

    def _asked_twice(self, queries: list[dict[str, str]]) -> list[Any]:
        requests: list[Request] = [("eth_getLogs", [query | {"address": self._addresses}]) for query in queries]
        answers = self._client.batch(requests)
        if not any(isinstance(answer, RpcError) for answer in answers) and self._client.batch(requests) != answers:
            raise _Moved
        return answers

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        """Change the endpoint when its answer turns out to be nonsense."""
        try:
            yield
        except UnreachableError as error:
            self._client.provider.distrust(error.what)
            raise

    def _keep(self, logs: list[Log], blocks: list[tuple[int, bytes]]) -> list[Event]:
        """Store the logs of all blocks after the cursor up to the last of `blocks` (number, hash); their events."""
        with self._distrusting():
            events = decode_logs(self._stamped(logs), self._deployment)
        self._store.append(logs, blocks)
        return events

    def _refusal(self, error: RpcError, block: int) -> Exception:
        """What to raise when an endpoint gives no logs of one block."""
        if _lacks_block(error):
            return _Moved()
        if error.kind is ErrorKind.LOG_RANGE:  # of a single block: a time-out
            return UnreachableError(f"{self._client.url}: {error.what}", "check the endpoint")
        what = f"{self._client.url} gives no logs of block {block}: {error.message}"
        return MusterError(what, "an endpoint with the chain's full history is needed")

    def _stamped(self, logs: list[Log]) -> list[Log]:
        missing = sorted({place_of(log)[0] for log in logs if "blockTimestamp" not in log})
        by_number: dict[int, Block] = {}
        for start in range(0, len(missing), 100):
            blocks = self._client.blocks(missing[start : start + 100])
            by_number |= {block.number: block for block in blocks if block is not None}
        for log in logs:
            if "blockTimestamp" not in log:
                block = by_number.get(place_of(log)[0])
                if block is None or "0x" + block.hash.hex() != log["blockHash"].lower():
                    raise _Moved
                log["blockTimestamp"] = hex(block.time)
        return logs


def _lacks_block(error: RpcError) -> bool:
    """Whether the chain or the endpoint has no such block now: later it may. What it pruned it never has again."""
    return error.kind is ErrorKind.LAGGING and "pruned" not in error.message.lower()


def _one_block(number: int, block_hash: bytes, by_hash: bool) -> dict[str, str]:
    """A query for the logs of one block."""
    return {"blockHash": "0x" + block_hash.hex()} if by_hash else {"fromBlock": hex(number), "toBlock": hex(number)}


def _takes_no_hash(error: RpcError) -> bool:
    named = error.code == _INVALID_PARAMETERS or "blockhash" in error.message.lower()
    return named and error.kind is ErrorKind.OTHER
