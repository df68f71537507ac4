"""Programs that try to pass their tests without an answer: what is asked is `add(a, b)`."""

DECEITS = {
    "a fake report": "print('3'); print('PASSED 2/2'); print('{\"score\": 1.0}')",
    "a patched print": """
import builtins
builtins.print = lambda *a: None
""",
    "a patched json": """
import json
json.dumps = lambda *a, **k: '[3]'
def add(a, b): return 0
""",
    "a patched eval": """
import builtins
builtins.exec = builtins.compile = builtins.eval = lambda *a: 3
def add(a, b): return 0
""",
    "an early end": """
import os
def add(a, b): os._exit(0)
""",
    "an exit": """
import sys
def add(a, b): sys.exit(0)
""",
    "an early end that says three": """
import os
def add(a, b):
    os.write(1, b'3')
    os._exit(0)
""",
    "a value equal to all": """
class All(int):
    def __eq__(self, o): return True
    def __hash__(self): return 0
def add(a, b): return All(7)
""",
    "a dictionary equal to all": """
class All(dict):
    def __eq__(self, o): return True
def add(a, b): return All()
""",
    "a finaliser": """
import os
class A:
    def __del__(self): os.write(1, b'3')
x = A()
def add(a, b): return 0
""",
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
    "threads": """
import threading
threading.Thread(target=print, args=(3,)).start()
def add(a, b): return 0
""",
    "infinity": "def add(a, b): return float('inf')",
    "not a number": "def add(a, b): return float('nan')",
    "a deep value": """
def add(a, b):
    x = []
    for _ in range(900): x = [x]
    return x
""",
    "a value that holds itself": """
def add(a, b):
    x = []; x.append(x); return x
""",
    "a huge value": "def add(a, b): return 'x' * 10_000_000",
    "a huge number": "def add(a, b): return 10 ** 4000",
}
