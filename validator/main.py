"""`run(config_path)`: one validator process for one or several seats."""

from pathlib import Path
from typing import TYPE_CHECKING

from chain.deployment import Deployment
from runtime.entry import run_role
from runtime.isolation import enter
from runtime.process import start
from runtime.signer import SigningRules, accounts_of, always
from validator.config import ValidatorConfig

if TYPE_CHECKING:
    from validator.daemon import Validator
    from validator.duties import MakeVoting
    from validator.judging.pipeline import JudgeOne


_PATHS = ("/v1/uploads", "/v1/heartbeats", "/v1/sources")
# Votes, and what any keeper may send: none of them moves what the key owns.
_CALLS = (
    *("Court.commit", "Court.vote", "Court.reveal", "Court.revealAndSettle", "Court.settle", "Court.closeCommittee"),
    *("Court.announceMirror", "Juries.commit", "Juries.vote", "Juries.reveal", "Juries.draw", "Juries.closeJuror"),
    *("Appeals.conclude", "Canaries.conclude", "NodeChallenges.conclude", "Pools.finalize", "Pools.reviewSeats"),
)


def signing_rules(config: ValidatorConfig, deployment: Deployment, _: list[str]) -> SigningRules:
    """Return what a validator may have signed: requests to the services of pools, votes, and keepers' transactions. Its
    limits are far above what a process with many seats sends: a vote that is not sent is fined."""
    calls = dict.fromkeys(_CALLS, always)
    return SigningRules(config, deployment, _PATHS, {}, calls, most_gas=1 << 24, requests=6000, transactions=1200)


def build(
    config: ValidatorConfig, judge_one: "JudgeOne | None" = None, make_voting: "MakeVoting | None" = None
) -> "Validator":
    """Return a validator; `attacks` have it judge and vote in other ways. Raises ConfigError or UnreachableError."""
    from validator.daemon import Validator
    from validator.judging.pipeline import judge
    from validator.pools import PoolOpener, ValidatorCollaborators
    from validator.voting import Voting

    accounts = accounts_of(config)
    collaborators = ValidatorCollaborators.connect(config, accounts)
    opener = PoolOpener(config, collaborators, accounts[0], judge_one or judge)
    return Validator(config, collaborators, opener.open, make_voting or Voting)


def run(config_path: Path) -> None:
    """Validate until SIGINT or SIGTERM."""
    enter(config_path, ValidatorConfig, "validator", signing_rules)
    start(config_path, ValidatorConfig, build)


if __name__ == "__main__":
    run_role(run)
