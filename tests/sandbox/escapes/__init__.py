"""Attempts to get out of isolation, run inside it.

Standard library only, and no more than needed is done: a failing isolation must not cost the machine. An attempt is
told what was planted outside (../test_escapes.py); it returns what it got hold of, or raises; `None` means that
there was nothing to get. `python3 -m escapes '{"tcp": 1234, …}'`, in the folder that this package is in, prints what
came of each.
"""
