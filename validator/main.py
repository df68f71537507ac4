"""`run(config_path)`: one validator process for one or several seats."""

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.process import start
from validator.config import ValidatorConfig

if TYPE_CHECKING:
    from validator.daemon import Validator


def run(config_path: Path) -> None:
    """Validate until SIGINT or SIGTERM."""
    start(config_path, ValidatorConfig, _build)


def _build(config: ValidatorConfig) -> "Validator":
    from validator.collaborators import ValidatorCollaborators
    from validator.daemon import Validator
    from validator.pipeline import judge

    return Validator(config, ValidatorCollaborators.connect(config, judge))
