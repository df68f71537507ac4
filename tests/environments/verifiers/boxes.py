"""A package as somebody would publish it, made of the library's public classes alone: numbers in boxes that only a tool
can open (`boxes`), and a guessing game of the gym kind (`guessing`); and one that asks over HTTP (`talking`)."""

from pathlib import Path
from textwrap import dedent

from tests.environments.verifiers.wheels import make_wheel

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
TALKING = """
    import openai
    import verifiers as vf
    from datasets import Dataset
    from verifiers.types import Response, ResponseMessage


    class Talking(vf.MultiTurnEnv):
        own = False

        async def get_model_response(self, state, prompt, **kwargs):
            client = openai.AsyncOpenAI() if self.own else state["client"].client
            said, messages = "", [{"role": one.role, "content": one.content} for one in prompt]
            try:
                stream = await client.chat.completions.create(model=state["model"], messages=messages, stream=True)
                async for event in stream:
                    said += event.choices[0].delta.content or ""
            except openai.BadRequestError as error:
                raise vf.OverlongPromptError from error
            message = ResponseMessage(content=said, finish_reason="stop", is_truncated=False)
            return Response(id="", created=0, model="", message=message)

        async def env_response(self, messages, state, **kwargs):
            return [vf.UserMessage(content=f"You said {len(messages[-1].content)} letters.")]


    def longest(completion) -> float:
        return float(len(completion[-1].content) > 99)


    def load_environment(own=False):
        rows = Dataset.from_list([{"question": f"Talk of {n}.", "answer": ""} for n in range(2)])
        made = Talking(dataset=rows, rubric=vf.Rubric(funcs=[longest]), max_turns=3)
        made.own = own
        return made
"""


def boxes_wheel(folder: Path) -> Path:
    """Of all three, for the older library."""
    modules = {"boxes": BOXES, "guessing": GUESSING, "talking": TALKING}
    files = {f"{name}.py": dedent(text) for name, text in modules.items()}
    return make_wheel(folder, "boxes", "0.1", files, "verifiers==0.2.1")
