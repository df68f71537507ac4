"""A member's way to its swarm's contract: opened when it is first needed, and left alone for a while when it does not
answer, so that no round waits for it."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from chain.client import ChainClient
from chain.contracts.base import ContractCall
from chain.contracts.swarms import Swarms
from chain.deployment import Deployment
from chain.errors import ContractError, TransactionError
from chain.transactions import Receipt
from protocol.accounts import LocalAccount
from protocol.errors import MusterError, printable
from protocol.swarm.identity import SwarmId
from swarm.config import SwarmChainConfig

log = logging.getLogger("muster.swarm")
T = TypeVar("T")
_PATIENCE, _SEND_SECONDS = 5.0, 20.0
_PAUSE_SECONDS = 60.0


class SwarmChain:
    """`swarm`: its number. The constructor reads the deployment file and asks nobody; it raises ConfigError."""

    def __init__(self, config: SwarmChainConfig, account: LocalAccount) -> None:
        self._config, self._account = config, account
        self.deployment = Deployment.load(config.deployment)
        self.swarm = config.swarm
        self.id = SwarmId(self.deployment.chain_id, self.deployment.address("Swarms"), config.swarm)
        self._swarms: Swarms | None = None
        self._silent_until = self._no_sending_until = 0.0
        self.reachable = True

    def swarms(self) -> Swarms:
        """The contract. Raises UnreachableError where the chain is gone, ConfigError for another chain."""
        if self._swarms is None:
            rpc, chain_id = self._config.rpc, self.deployment.chain_id
            client = ChainClient(rpc, chain_id, self._account, patience=_PATIENCE, timeout=_PATIENCE)
            self.deployment.check_genesis(client)
            self._swarms = Swarms(client, self.deployment)
        return self._swarms

    def attempt(self, what: str, do: Callable[[Swarms], T], sends: bool = False) -> T | None:
        """What `do` gives; None where the chain does not answer, or did not a minute ago. Where it answers and only a
        transaction fails, as without gas, no more than what `sends` is left alone. Raises ContractError where the
        contract refuses."""
        if time.monotonic() < max(self._silent_until, self._no_sending_until if sends else 0.0):
            return None
        try:
            done = do(self.swarms())
        except ContractError:
            raise
        except TransactionError as error:
            self._no_sending_until = time.monotonic() + _PAUSE_SECONDS
            log.warning("%s is tried again in %.0f s: %s", what, _PAUSE_SECONDS, printable(str(error)))
            return None
        except MusterError as error:
            self.reachable = False
            self._silent_until = time.monotonic() + _PAUSE_SECONDS
            log.warning("%s is tried again in %.0f s: %s", what, _PAUSE_SECONDS, printable(str(error)))
            return None
        self.reachable = True
        return done

    @staticmethod
    def send(call: ContractCall[Receipt]) -> Receipt:
        """As `ChainClient.send`, without much patience: what is mined later is found to be done at the next attempt."""
        return call.client.send(call, timeout=_SEND_SECONDS)
