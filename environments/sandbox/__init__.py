"""Running strangers' Python: CPython on WASI, metered and reproducible, or full Python in bubblewrap."""
