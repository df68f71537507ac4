"""How a program can be kept apart from this machine."""

from cli.doctor.base import Prerequisite, note, ok


def look(image: str) -> Prerequisite:
    """One line: what `isolation = "auto"` comes to here, and why nothing stronger. `image`: what containers run."""
    from sandbox.launch import choose
    from sandbox.policy import Mode

    choice = choose("auto", image)
    reasons = "; ".join(f"{mode.value}: {why}" for mode, why in choice.why_not.items())
    if choice.mode is Mode.PLAIN:
        cure = "apt-get install bubblewrap, or podman and an image (docs/design/sandbox.md)"
        return note("isolation", f"a worker would not be kept apart from this machine ({reasons}); {cure}")
    limits = "" if choice.accounting else ", limits per process only: no cgroup can be made"
    return ok("isolation", f"{choice.mode.value} works{limits}" + (f" ({reasons})" if reasons else ""))
