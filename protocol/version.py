"""The version of muster: what `--version`, the service and a support bundle say."""

VERSION = "0.1.0"
