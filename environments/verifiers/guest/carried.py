"""What a fork still shares with the process that it comes from, and with every later fork: taken away before it asks
anything of the package."""

import os

from .refusal import NoScore

_NOWHERE = "/dev/zero", "/memfd:"
"""What the kernel calls memory that is shared and no file's."""


def carry_nothing(answer: int) -> None:
    """In a fork that answers on the handle `answer`. Open files are read from where they stood, by itself alone; pipes,
    sockets and the like are nothing. Raises NoScore where memory is shared."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if any(_is_shared(line) for line in maps):
            raise NoScore("it shares memory between its scores")
    for name in os.listdir("/proc/self/fd"):
        if (number := int(name)) > 2 and number != answer:
            try:
                _own(number, os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                os.dup2(0, number)


def _is_shared(mapping: str) -> bool:
    _, rights, _, _, _, *name = mapping.split(maxsplit=5)
    return rights[3] == "s" and (rights[1] == "w" or "".join(name).startswith(_NOWHERE))


def _own(number: int, what: str) -> None:
    """Two handles of one opening have one place in the file: it is opened once more."""
    if what == os.devnull:
        return
    if not what.startswith("/") or what.startswith(_NOWHERE):
        os.dup2(0, number)
        return
    place, again = os.lseek(number, 0, os.SEEK_CUR), os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
    os.lseek(again, place, os.SEEK_SET)
    os.dup2(again, number)
    os.close(again)
