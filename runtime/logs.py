"""Logging; a light module, so that the command line may import it first."""

import logging
import os
import sys

from protocol.errors import ConfigError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def start_logging() -> None:
    """Log to standard error from the level in MUSTER_LOG (INFO by default). Raises ConfigError for another word."""
    level = os.environ.get("MUSTER_LOG", "INFO").upper()
    if level not in LEVELS:
        raise ConfigError(f"MUSTER_LOG is {level}", f"set it to one of {', '.join(LEVELS)}")
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
