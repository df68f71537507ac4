"""A package as somebody would publish it: numbers in boxes that a tool opens (`boxes`), a gym's game (`guessing`)."""

from pathlib import Path
from textwrap import dedent

from tests.environments.verifiers.small import make_wheel

BOXES = """
    import random

    import verifiers as vf
    from datasets import Dataset


    def open(box: str, inside: dict) -> int:
        \"\"\"Say which number is in a box.\"\"\"
        return inside[box]


    def right(completion, answer) -> float:
        return float(completion[-1].content.strip() == answer)


    def opened(completion, info) -> float:
        said = [message.content for message in completion if message.role == "tool"]
        return float(all(str(info["inside"][box]) in said for box in info["asked"]))


    class Boxes(vf.StatefulToolEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.add_tool(open, args_to_skip=["inside"])

        def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            return tool_args | {"inside": state["info"]["inside"]}


    def load_environment(count=64, max_turns=3):
        rows = []
        for number in range(count):
            draw = random.Random(number)
            inside = {box: draw.randint(0, 9) for box in "abcdef"}
            one, other = sorted(draw.sample(sorted(inside), 2))
            question = f"Sum of boxes {one} and {other}?"
            info = {"inside": inside, "asked": [one, other]}
            rows.append({"question": question, "answer": str(inside[one] + inside[other]), "info": info})
        rubric = vf.Rubric(funcs=[right, opened], weights=[0.6, 0.4])
        return Boxes(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=max_turns)
"""
GUESSING = """
    import random

    import verifiers as vf
    from verifiers.envs.experimental.gym_env import GymEnv


    class Guessing:
        def reset(self, seed=0):
            self.secret = random.Random(seed).randint(0, 99)
            return "Guess my number, from 0 to 99.", {}

        def step(self, action):
            if action == self.secret:
                return "Yes.", 1.0, True, {}
            return ("Higher." if action < self.secret else "Lower."), 0.0, False, {}


    def load_environment(count=8):
        return GymEnv(env_cls=Guessing, action_parser=int, num_train_episodes=count, num_eval_episodes=1)
"""


def boxes_wheel(folder: Path) -> Path:
    """Of both, for the older library."""
    modules = {"boxes": BOXES, "guessing": GUESSING}
    files = {f"{name}.py": dedent(text) for name, text in modules.items()}
    return make_wheel(folder, "boxes", "0.1", files, "verifiers==0.2.1")
