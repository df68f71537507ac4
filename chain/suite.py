"""The suite of one deployment, ready to call.

    client = ChainClient(rpc_urls, deployment.chain_id, account)
    suite = Suite(client, deployment)              # checks chain, addresses and ABIs
    suite.pools.submit(pool, step, counter, WorkItem(root, sha256, units, rows)).send()

What changes often is read from the projected state (`chain.indexer.state`), not by views.
"""

from chain import contracts
from chain.client import ChainClient
from chain.deployment import Deployment
from chain.indexer.records import Step
from protocol.seeds import step_seed


class Suite:
    """See the module's docstring. `check=False` skips the check of chain and addresses (two round trips)."""

    def __init__(self, client: ChainClient, deployment: Deployment, *, check: bool = True) -> None:
        deployment.check_abis()
        if check:
            deployment.check_chain(client)
        self.client = client
        self.deployment = deployment
        self.token = contracts.Token(client, deployment)
        self.params = contracts.Params(client, deployment)
        self.stakes = contracts.Stakes(client, deployment)
        self.seats = contracts.Seats(client, deployment)
        self.pools = contracts.Pools(client, deployment)
        self.court = contracts.Court(client, deployment)
        self.juries = contracts.Juries(client, deployment)
        self.appeals = contracts.Appeals(client, deployment)
        self.canaries = contracts.Canaries(client, deployment)
        self.node_challenges = contracts.NodeChallenges(client, deployment)
        self.diloco_runs = contracts.DilocoRuns(client, deployment)
        self.timelock = contracts.Timelock(client, deployment)

    def step_seed(self, pool: int, step: Step, confirmations: int = 0) -> bytes | None:
        """Return the public seed of a published step; None until its seed block has `confirmations` blocks on top."""
        block = self.client.block(step.seed_block)
        if block is None:
            return None
        if confirmations and self.client.block(step.seed_block + confirmations) is None:
            return None
        return step_seed(block.hash, self.deployment.chain_id, self.pools.address, pool, step.step)
