"""`python -m attacks.validator --attack lazy --config validator.json`: votes without looking.

`lazy` accepts everything, `liar` rejects everything, `colluder`: see attacks/collusion.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attacks.launch import launch
from protocol.verdict import Code, Verdict
from validator.config import ValidatorConfig
from validator.judging.context import verdict_on
from validator.main import build

if TYPE_CHECKING:
    from validator.daemon import Validator

_FIXED = {"lazy": Code.ACCEPT, "liar": Code.REJECT_WEIGHTS}


def always(code: Code) -> Callable[..., Verdict]:
    """A judge that gives every file the same code without reading it."""
    return lambda facts, data, config, environment, engine: verdict_on(facts, config, code, {"name": "none"})


def _build(attack: str, config: ValidatorConfig) -> "Validator":
    from attacks.collusion import CollusiveVoting
    from validator.judging.pipeline import judge
    from validator.voting import Voting

    if attack == "colluder":
        return build(config, judge, CollusiveVoting)
    return build(config, always(_FIXED[attack]), Voting)


if __name__ == "__main__":
    launch(__doc__, ValidatorConfig, _build, choices=sorted([*_FIXED, "colluder"]), default="lazy")
