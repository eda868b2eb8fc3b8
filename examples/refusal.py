"""A model wants a private key. The policy refuses the file tool; a command, though approved, finds nothing."""

from interlock import CallbackInteractionProvider, LocalTools, ToolRuntime

calls = [  # as a model sends them
    {"type": "tool_use", "id": "1", "name": "read_file", "input": {"path": "../.ssh/id_ed25519"}},
    {"type": "tool_use", "id": "2", "name": "bash", "input": {"command": "cat ~/.ssh/id_ed25519"}},
]
person = CallbackInteractionProvider(lambda question: True)  # approves everything
with ToolRuntime(tools=LocalTools("."), interaction=person) as runtime:
    for observation in runtime.execute_sync(calls).observations:
        print(f"{observation.code}: {observation.content.text.strip() if observation.content else observation.summary}")
