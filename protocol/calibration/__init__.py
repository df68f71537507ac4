"""From figures of honest files to reject thresholds with a stated false-reject probability (docs/verification.md)."""
