"""What runs inside the package's own process: the standard library alone, beside the package and what it needs.

Nothing of muster's can be imported here; `environments/verifiers/process.py` starts it and speaks with it.
"""
