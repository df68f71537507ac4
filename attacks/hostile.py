"""Programs and answers that try to deceive, hang or harm what scores them."""

from collections.abc import Callable
from typing import NamedTuple

# By programs that are asked for `add(a, b)`.
DECEITS = {
    "a fake report": "print('3'); print('PASSED 2/2'); print('{\"score\": 1.0}')",
    "a patched print": "import builtins\nbuiltins.print = lambda *a: None",
    "a patched json": "import json\njson.dumps = lambda *a, **k: '[3]'\ndef add(a, b): return 0",
    "a patched eval": """
import builtins
builtins.exec = builtins.compile = builtins.eval = lambda *a: 3
def add(a, b): return 0
""",
    "an early end": "import os\ndef add(a, b): os._exit(0)",
    "an exit": "import sys\ndef add(a, b): sys.exit(0)",
    "an early end that says three": "import os\ndef add(a, b):\n    os.write(1, b'3')\n    os._exit(0)",
    "a value equal to all": """
class All(int):
    def __eq__(self, o): return True
    def __hash__(self): return 0
def add(a, b): return All(7)
""",
    "a dictionary equal to all": "class All(dict):\n    def __eq__(self, o): return True\ndef add(a, b): return All()",
    "a finaliser": "import os\nclass A:\n    def __del__(self): os.write(1, b'3')\nx = A()\ndef add(a, b): return 0",
    "an exit handler": """
import atexit, os
atexit.register(lambda: os.write(1, b'3'))
def add(a, b): raise SystemExit(0)
""",
    "the harness's frames": """
import sys
def add(a, b):
    f = sys._getframe()
    while f:
        f.f_locals.update(code=0, value=3); f = f.f_back
    return str({**f.f_globals} if f else 0)
""",
    "the harness replaced": """
import sys, __main__
sys.modules['json'].dumps = None
sys.stdout = None
def add(a, b): return 3
""",
    "what is expected, looked for": """
import gc
def add(a, b):
    for o in gc.get_objects():
        if isinstance(o, dict) and 'output' in o: return o['output']
    return None
""",
    "memory kept between tests": """
import builtins
def add(a, b):
    seen = getattr(builtins, 'seen', []); builtins.seen = seen + [a + b]
    return seen[-1]
""",
    "threads": "import threading\nthreading.Thread(target=print, args=(3,)).start()\ndef add(a, b): return 0",
    "infinity": "def add(a, b): return float('inf')",
    "not a number": "def add(a, b): return float('nan')",
    "a deep value": "def add(a, b):\n    x = []\n    for _ in range(900): x = [x]\n    return x",
    "a value that holds itself": "def add(a, b):\n    x = []; x.append(x); return x",
    "a huge value": "def add(a, b): return 'x' * 10_000_000",
    "a huge number": "def add(a, b): return 10 ** 4000",
}


# What it is, and how to make it, of answers to a question whose answer is 12.
ANSWERS: list[tuple[str, Callable[[], str]]] = [
    ("ten megabytes", lambda: r"\boxed{" + "1" * 10_000_000 + "}"),
    ("ten megabytes of boxes", lambda: r"\boxed{" * 1_400_000),
    ("a power tower", lambda: "9^9^9^9^9^9"),
    ("a boxed power tower", lambda: r"\boxed{9^{9^{9^{9^9}}}}"),
    ("a huge exponent", lambda: r"\boxed{1e999999999}"),
    ("a huge factorial", lambda: r"\boxed{(10^9)!}"),
    ("factorials of factorials", lambda: r"\boxed{9!!!!!!!!!!}"),
    ("a huge binomial", lambda: r"\boxed{\binom{10^9}{10^8}}"),
    ("a long sum", lambda: r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k}}"),
    ("a long product", lambda: r"\boxed{\prod_{k=1}^{10^9} k}"),
    ("a high derivative", lambda: r"\boxed{\frac{d^{100}}{dx^{100}} e^{x^2}}"),
    ("a high power of a sum", lambda: r"\boxed{(x+y+z)^{99999}}"),
    ("deep parentheses", lambda: "(" * 50_000 + "1" + ")" * 50_000),
    ("deep braces", lambda: r"\boxed{" + "{" * 300 + "2" + "}" * 300 + "}"),
    ("deep fractions", lambda: r"\boxed{" + r"\frac{1}{" * 20 + "2" + "}" * 20 + "}"),
    ("deep roots", lambda: r"\boxed{" + r"\sqrt{" * 22 + "2" + "}" * 22 + "}"),
    ("many digits", lambda: r"\boxed{" + "7" * 900 + "}"),
    ("many terms", lambda: r"\boxed{" + "+".join(f"x_{{{k}}}" for k in range(100)) + "}"),
    ("a set of many", lambda: r"\boxed{\{" + ",".join(map(str, range(220))) + r"\}}"),
    ("Python", lambda: r"\boxed{__import__('os').write(1, b'1.0') or exit()}"),
    ("Python as plain text", lambda: "__import__('os')._exit(0) (1).__class__ 1.0"),
    ("macros", lambda: r"\def\a{\a\a}\a \boxed{\a}"),
    ("no text at all", lambda: "\0\ud800\x1b[2J" * 100),
    ("infinity", lambda: r"\boxed{\infty}"),
    ("everything", lambda: r"\boxed{x=x}"),
    ("not a number", lambda: r"\boxed{nan}"),
    ("a range of everything", lambda: r"\boxed{(-\infty,\infty)}"),
]
STUBBORN = "while True:\n    try:\n        while True: pass\n    except: pass"
THREADS = "import threading\nwhile True: threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
SELF_REPR = "import sys\nsys.setrecursionlimit(1 << 30)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())"
ZEROS = "import zlib\nz = b'0'\nfor _ in range(40): z = zlib.compress(z * 1000)\nzlib.decompress(z)"
SIGNALS = "import os, signal\nfor pid in (os.getppid(), 1, 0, -1):\n    os.kill(pid, signal.SIGKILL)\nprint('won')"
METHODS = "import types\nx = print\nfor _ in range(15_000): x = types.MethodType(print, x)\ndel x"


class Hostile(NamedTuple):
    """A program; `ends`: by itself, even when nothing stops it."""

    name: str
    source: str
    ends: bool = True


def hostile(marker: str) -> list[Hostile]:
    """Return what any full Python must withstand; `marker`: a file outside that none may make, read or change."""
    return [
        Hostile("an infinite loop", "while True: pass", ends=False),
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
