"""A relay's configuration file."""

from runtime.process import KeyConfig, ProcessConfig
from runtime.relay.serving import ServeWeights


class RelayConfig(ProcessConfig):
    """A relay for one pool. `cache` keeps what it serves; `key` signs its announcements and holds no money: without it
    the relay serves those who name it among their `mirrors`."""

    key: KeyConfig | None = None
    serve_weights: ServeWeights = ServeWeights()
