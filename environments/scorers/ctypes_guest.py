"""Stands in for `ctypes`, which WASI has not, inside the sandbox: sympy asks it for the size of a C `long`."""


class c_long:
    """Of a 64-bit machine."""


def sizeof(_: object) -> int:
    return 8
