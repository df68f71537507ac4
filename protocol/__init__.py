"""What another implementation of muster must reproduce, and the version that `--version` and the service name."""

VERSION = "0.1.0"


def behind(service: str, ours: str = VERSION) -> str:
    """Return what to do where a pool's service has another version than `ours`; empty if not, or if one is unknown."""
    if not service or not ours or service == ours:
        return ""
    return f"the pool's service is muster {service}, this process muster {ours}: upgrade the older of the two"
