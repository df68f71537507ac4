"""A swarm's document and its environments, as a member's machine has them."""

from environments.pool import TextEnvironments
from protocol.encoding import load_document
from protocol.errors import ConfigError
from protocol.swarm.document import SwarmDocument
from swarm.config import SwarmMemberConfig


def load_swarm(config: SwarmMemberConfig) -> tuple[SwarmDocument, TextEnvironments]:
    """The swarm's document and its environments on this machine. Raises ConfigError where either is amiss, or where a
    round would make more groups than an envelope may hold."""
    document = load_document(config.document, SwarmDocument)
    if config.mix.total > document.groups:
        raise ConfigError(
            f"a round of {config.mix.own} own and {config.mix.shared} shared groups, an envelope of this swarm holds "
            f"{document.groups}",
            "lower mix.own or mix.shared",
        )
    return document, TextEnvironments(document.environments, document.answer_after)
