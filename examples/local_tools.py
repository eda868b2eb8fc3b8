"""The built-in tools on one folder. Files stay in it, commands run in a sandbox, and a person is asked before edits."""

from pathlib import Path
from tempfile import TemporaryDirectory

from interlock import CallbackInteractionProvider, LocalTools, ToolRuntime

calls = [  # of six model turns
    ("read_file", {"path": "shop.py"}),
    ("read_file", {"path": "../key.txt"}),
    ("bash", {"command": "grep -c tea shop.py | sort"}),
    ("bash", {"command": "cat ../key.txt"}),
    ("edit_file", {"path": "shop.py", "old_string": "3.5", "new_string": "3.9"}),
    ("bash", {"command": "python3 -c 'import shop; print(shop.tea)'"}),
]
person = CallbackInteractionProvider(lambda question: print("a person is asked:", question.capability) or True)
with TemporaryDirectory() as folder:
    project = Path(folder, "project")
    project.mkdir()
    (project / "shop.py").write_text("tea = 3.5\n")
    Path(folder, "key.txt").write_text("swordfish\n")
    with ToolRuntime(tools=LocalTools(project), interaction=person) as runtime:
        for number, (name, arguments) in enumerate(calls, 1):
            result = runtime.execute_sync([{"type": "tool_use", "id": f"{number}", "name": name, "input": arguments}])
            (observation,) = result.observations
            text = observation.content.text if observation.content else observation.summary
            print(f"{number} {name} {observation.code}: {text.splitlines()[-1]}")
