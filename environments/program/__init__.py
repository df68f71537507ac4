"""An environment that is a small Python program of the pool's owner, run in the reproducible sandbox alone."""
