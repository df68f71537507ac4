"""Verifiers of answers to mathematics and of programs: text in, 0 to 1 out, the same on every machine."""
