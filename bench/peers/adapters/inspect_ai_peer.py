"""inspect-ai: its own tool loop (`generate_loop`) with a model of its own; durable runs are its `.eval` log.

Its tools are async only, and an approver blocks in the process: there is no pause that can be stored.
"""

import asyncio
import shutil
import tempfile

from harness import MARK, SLEEP_SECONDS, arguments, file_bytes, main, now, per_call, result_text, temporary_folder
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.solver import solver
from inspect_ai.tool import ToolCall, tool

STATE = {"script": [], "turn": 0, "seen": [], "plan": []}


@modelapi(name="bench")
class Model(ModelAPI):
    def __init__(self, model_name, base_url=None, api_key=None, config=None, **options):
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())

    async def generate(self, input, tools, tool_choice, config):
        MARK.enter()
        said = STATE["script"][STATE["turn"]]
        STATE["turn"] += 1
        STATE["seen"] = input
        MARK.exit()
        return said

    def max_connections(self):
        return 100


@tool(parallel=True)
def t_async():
    async def execute(path: str, count: int, ratio: float) -> str:
        """Return the arguments.

        Args:
            path: A path.
            count: A number.
            ratio: A ratio.
        """
        MARK.tool()
        return result_text(path, count, ratio)

    return execute


@tool(parallel=True)
def t_sleep():
    async def execute(path: str, count: int, ratio: float) -> str:
        """Wait without blocking.

        Args:
            path: A path.
            count: A number.
            ratio: A ratio.
        """
        MARK.tool()
        await asyncio.sleep(SLEEP_SECONDS)
        return "ok"

    return execute


def output(content, calls=None):
    message = ChatMessageAssistant(content=content, model="bench", source="generate", tool_calls=calls)
    choice = ChatCompletionChoice(message=message, stop_reason="tool_calls" if calls else "stop")
    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return ModelOutput(model="bench", choices=[choice], usage=usage)


class Adapter:
    PACKAGES = ("inspect-ai",)

    async def setup(self):
        self.model = get_model("bench/model")
        self.tools = [t_async(), t_sleep()]
        self.folder = tempfile.mkdtemp(dir=temporary_folder())

    def prepare(self, turns, calls, tool):
        if tool == "sleep_sync":
            raise NotImplementedError("tools are async only")
        script = [
            output(
                "",
                [
                    ToolCall(id=f"call_{number}", function="t_" + tool, arguments=arguments(number))
                    for number in range(turn * calls, (turn + 1) * calls)
                ],
            )
            for turn in range(turns)
        ]
        return [*script, output("done")]

    async def execute(self, script):
        STATE["script"], STATE["turn"] = script, 0
        _, last = await self.model.generate_loop("go", tools=self.tools)
        assert last.completion == "done"
        return sum([isinstance(message, ChatMessageTool) for message in STATE["seen"]])

    async def pause_resume(self, turns):
        raise NotImplementedError("an approver blocks in the process")

    async def durable(self, turns, calls):
        adapter = self

        @solver
        def solve_all():
            async def solve(state, generate):
                await adapter.execute(STATE["plan"])
                return state

            return solve

        STATE["plan"] = self.prepare(turns, calls, "async")
        task = Task(dataset=[Sample(input="go")], solver=solve_all())
        began = now()
        logs = await eval_async(task, model=self.model, log_dir=self.folder, log_samples=True, score=False)
        ended = now()
        assert logs[0].status == "success", logs[0].error
        return per_call(began, ended, turns * calls, file_bytes(logs[0].location))

    async def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
