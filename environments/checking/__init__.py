"""Is an environment what it must be: the same everywhere, quick, and not to be fooled."""
