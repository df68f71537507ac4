"""Programs that try to harm, hang or deceive. None may reach `marker`, a file outside, or be still running later."""

from dataclasses import dataclass

LOOP = "while True: pass"
STUBBORN = "while True:\n    try:\n        while True: pass\n    except: pass"
THREADS = "import threading\nwhile True: threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
SELF_REPR = "import sys\nsys.setrecursionlimit(1 << 30)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())"
ZEROS = "import zlib\nz = b'0'\nfor _ in range(40): z = zlib.compress(z * 1000)\nzlib.decompress(z)"
SIGNALS = "import os, signal\nfor pid in (os.getppid(), 1, 0, -1):\n    os.kill(pid, signal.SIGKILL)\nprint('won')"
METHODS = "import types\nx = print\nfor _ in range(15_000): x = types.MethodType(print, x)\ndel x"


@dataclass(frozen=True)
class Hostile:
    """`ends`: it ends by itself even when nothing stops it."""

    name: str
    source: str
    ends: bool = True


def hostile(marker: str) -> list[Hostile]:
    """Those that any full Python must withstand too; `marker`: a file outside that none may make, read or change."""
    return [
        Hostile("an infinite loop", LOOP, ends=False),
        Hostile("a loop that swallows everything", STUBBORN, ends=False),
        Hostile("a fork bomb", "import os\nwhile True: os.fork()", ends=False),
        Hostile("processes", "import subprocess\nprint(subprocess.run(['id'], capture_output=True).stdout or 'won')"),
        Hostile("threads", THREADS, ends=False),
        Hostile("memory at once", "x = bytearray(1 << 40)\nprint('won')"),
        Hostile("memory bit by bit", "x = []\nwhile True: x.append(bytearray(1 << 20))", ends=False),
        Hostile("a number without end", "print(len(str(10 ** 10 ** 9)))", ends=False),
        Hostile("the network", "import socket\ns = socket.create_connection(('127.0.0.1', 22), 1)\nprint('won')"),
        Hostile("a name server", "import socket\nprint(socket.getaddrinfo('example.org', 80), 'won')"),
        Hostile("reading a file outside", f"print(open({marker!r}).read(), 'won')"),
        Hostile("writing a file outside", f"open({marker!r}, 'w').write('won')\nprint('won')"),
        Hostile("a link", f"import os\nos.symlink({marker!r}, '/tmp/link')\nprint(open('/tmp/link').read(), 'won')"),
        Hostile("the root", "import os\nos.remove('/etc/passwd')\nprint('won')"),
        Hostile("other processes", "print(open('/proc/1/environ').read() and 'won')"),
        Hostile("the parent's memory", "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b').write(b'x')\nprint('won')"),
        Hostile("signals", SIGNALS),
        Hostile("ten megabytes", "print('x' * 10_000_000)"),
        Hostile("output without end", "while True: print('x' * 1000)", ends=False),
        Hostile("errors without end", "import sys\nwhile True: sys.stderr.write('x' * 1000)", ends=False),
        Hostile("empty writes", "import os\nwhile True: os.write(1, b'')", ends=False),
        Hostile("deep parentheses", "eval('(' * 100_000 + ')' * 100_000)"),
        Hostile("deep recursion", "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(): f()\nf()", ends=False),
        Hostile("recursion in C", SELF_REPR),
        Hostile("a long chain freed", "x = iter([])\nfor _ in range(15_000): x = enumerate(x)\ndel x"),
        Hostile("a long chain of methods freed", METHODS),
        Hostile("a bomb of zeros", ZEROS),
        Hostile("a regular expression", "import re\nre.match('(a*)*$', 'a' * 40 + 'b')", ends=False),
        Hostile("sleep", "import time\nwhile True: time.sleep(1000)", ends=False),
        Hostile("an exit handler", "import atexit\natexit.register(lambda: [0 for _ in iter(int, 1)])", ends=False),
        Hostile("a finaliser", "class A:\n    def __del__(self):\n        while True: pass\nA()", ends=False),
        Hostile("no exit", "raise SystemExit(10 ** 100)"),
        Hostile("bytes that are no text", "import os\nos.write(1, bytes(range(256)) * 100)"),
    ]  # fmt: skip
