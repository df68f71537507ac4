"""A local network that outlives its terminal: `muster up`, `muster ps`, `muster logs`, `muster down`."""
