"""The timelock that owns the parameters: what governance proposes happens after a delay."""

from chain.contracts.base import Contract, ContractCall
from chain.proposals import Proposal
from chain.transactions import Call, Receipt


class Timelock(Contract):
    """Called by governance and its guardian."""

    name = "Timelock"

    def delay(self) -> int:
        """Seconds from scheduling to executing, for what is scheduled now."""
        return int(self.read("getMinDelay"))

    def is_guardian(self, account: str) -> bool:
        return bool(self.read("hasRole", self.read("GUARDIAN_ROLE"), account))

    def schedule(self, call: Call, salt: bytes) -> ContractCall[Receipt]:
        """Propose that the timelock makes `call`. `salt` tells equal proposals apart."""
        return self.call("schedule", call.to, call.value, call.data, bytes(32), salt, self.delay())

    def execute(self, proposal: Proposal) -> ContractCall[Receipt]:
        """Make a proposal's calls, once its time has come."""
        if len(proposal.calls) == 1:
            (call,) = proposal.calls
            return self.call("execute", call.target, call.value, call.data, proposal.predecessor, proposal.salt)
        columns = ([getattr(call, name) for call in proposal.calls] for name in ("target", "value", "data"))
        return self.call("executeBatch", *columns, proposal.predecessor, proposal.salt)
