"""The shells of `muster node up` and `muster validator up`: they look, let a pure function choose, and act."""
