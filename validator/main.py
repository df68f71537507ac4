"""`run(config_path)`: one validator process for one or several seats."""

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.entry import run_role
from runtime.process import start
from validator.config import ValidatorConfig

if TYPE_CHECKING:
    from validator.daemon import Validator
    from validator.duties import MakeVoting
    from validator.judging.pipeline import JudgeOne


def build(
    config: ValidatorConfig, judge_one: "JudgeOne | None" = None, make_voting: "MakeVoting | None" = None
) -> "Validator":
    """Return a validator; `attacks` have it judge and vote in other ways. Raises ConfigError or UnreachableError."""
    from validator.daemon import Validator
    from validator.judging.pipeline import judge
    from validator.pools import PoolOpener, ValidatorCollaborators
    from validator.voting import Voting

    accounts = [voter.open() for voter in config.voters]
    collaborators = ValidatorCollaborators.connect(config, accounts)
    opener = PoolOpener(config, collaborators, accounts[0], judge_one or judge)
    return Validator(config, collaborators, opener.open, make_voting or Voting)


def run(config_path: Path) -> None:
    """Validate until SIGINT or SIGTERM."""
    start(config_path, ValidatorConfig, build)


if __name__ == "__main__":
    run_role(run)
