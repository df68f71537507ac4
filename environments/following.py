"""A pool's environments along its policy steps, each of which brings its own tokenizer, template and stop tokens."""

from pathlib import Path

from environments.base import Environment
from environments.catalogue import load_environment
from environments.conformance import check_versions
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.models import text_digest


class FollowingEnvironments:
    """Those of the step that was loaded last. They are made anew whenever a folder's text files differ from those
    before: whoever joined at an earlier step would else judge by other prompts than whoever joins now, and an owner
    who changes a template under way would have honest nodes refused."""

    def __init__(self, config: PoolConfig) -> None:
        self._config, self._digest = config, b""
        self._made: PoolEnvironments | None = None
        self._loaded: list[Environment] = []

    def prepare(self) -> None:
        """Load what no policy step changes, which takes seconds: a process does it before the first one is here. Raises
        what `load_environment` and `check_versions` raise."""
        check_versions(self._config.environments, self._config.scoring_versions)
        self._loaded = self._loaded or [load_environment(one) for one in self._config.environments]

    def of(self, folder: Path) -> PoolEnvironments:
        """With the step's table of resting problems. Raises what `PoolEnvironments.of` and `at` raise."""
        digest = text_digest(folder)
        if self._made is None or digest != self._digest:
            self.prepare()
            self._made = PoolEnvironments.of(self._config, folder, self._loaded)
            self._digest = digest
        return self._made.at(folder)
