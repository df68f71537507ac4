"""The program that `muster env new` writes."""

from pathlib import Path


def read() -> str:
    """Its source."""
    return Path(__file__).with_name("template_guest.py").read_text(encoding="utf-8")
