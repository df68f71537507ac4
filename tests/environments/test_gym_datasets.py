"""reasoning_gym comes without the library for plots, which is there for whoever wants it."""

import subprocess
import sys


def _said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_game_of_life_is_computed_without_plots() -> None:
    program = (
        "import sys; from environments.gym.datasets import registry; kind, config = registry()['game_of_life']; "
        "entry = kind(config(seed=5, size=1))[0]; assert kind(config(seed=5, size=1)).score_answer("
        "entry['answer'], entry) == 1.0; print([one for one in sys.modules if one.startswith('matplotlib')])"
    )
    assert _said(program) == "[]"


def test_who_plots_has_the_library() -> None:
    program = (
        "from environments.gym.datasets import registry; registry(); from cellpylib import ca_functions2d; "
        "found = ca_functions2d.plt.get_cmap('Greys').name, ca_functions2d.animation.FuncAnimation.__module__; "
        "import matplotlib, matplotlib.pyplot; assert matplotlib.__version__ and matplotlib.pyplot.plot; print(*found)"
    )
    assert _said(program) == "Greys matplotlib.animation"
