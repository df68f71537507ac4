"""`python -m attacks.validator --attack lazy --config validator.json`: votes without looking."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engines.base import Engine
from protocol.config import PoolConfig
from protocol.errors import MusterError
from protocol.tasks.environment import Environment
from protocol.verdict import Code, Verdict
from runtime.process import start
from validator.config import ValidatorConfig
from validator.context import SubmissionFacts, verdict_on

if TYPE_CHECKING:
    from validator.daemon import Validator

_FIXED = {"lazy": Code.ACCEPT, "liar": Code.REJECT_WEIGHTS}


def always(code: Code) -> Callable[..., Verdict]:
    """A judge that gives every file the same code without reading it."""

    def judge(
        facts: SubmissionFacts,
        data: bytes | None,
        config: PoolConfig,
        environment: Environment,
        engine: Engine,
    ) -> Verdict:
        return verdict_on(facts, config, code, {"name": "none"})

    return judge


def _build(attack: str, config: ValidatorConfig) -> "Validator":
    from attacks.collusion import CollusiveVoting
    from validator.collaborators import ValidatorCollaborators
    from validator.daemon import Validator
    from validator.pipeline import judge

    if attack == "colluder":
        return Validator(config, ValidatorCollaborators.connect(config, judge), CollusiveVoting)
    return Validator(config, ValidatorCollaborators.connect(config, always(_FIXED[attack])))


def main(argv: Sequence[str]) -> int:
    """`lazy` accepts everything, `liar` rejects everything, `colluder`: see attacks/collusion.py."""
    parser = argparse.ArgumentParser(prog="attacks.validator", description=__doc__)
    parser.add_argument("--attack", choices=sorted([*_FIXED, "colluder"]), default="lazy")
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args(argv)
    try:
        start(options.config, ValidatorConfig, partial(_build, options.attack))
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
