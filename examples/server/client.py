"""Begins a run on a server and follows it until it is over, over any number of broken connections.

INTERLOCK_URL=http://127.0.0.1:8321 INTERLOCK_KEY=ik_... python client.py AGENT TASK
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2


def follow(client: httpx2.Client, run_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every event once and in order: a reader that returns says which one it has."""
    last = {}
    while True:
        try:
            with client.stream("GET", f"/v1/runs/{run_id}/events/stream", headers=last, timeout=60) as answer:
                answer.raise_for_status()
                name = ""
                for line in answer.iter_lines():
                    word, _, rest = line.partition(": ")
                    if word == "id":
                        last = {"Last-Event-ID": rest}
                    elif word == "event":
                        name = rest
                    elif word == "data":
                        event = json.loads(rest)
                        if name == "end" and event["reason"] == "stopping":
                            break
                        yield name, event
                        if name == "end":
                            return
        except httpx2.TransportError:
            pass  # the server is away, or the way to it: the stream is taken up again where it broke
        time.sleep(1)


def main(agent: str, task: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['INTERLOCK_KEY']}"}
    with httpx2.Client(base_url=os.environ["INTERLOCK_URL"], headers=headers) as client:
        wish = {"agent": agent, "task": task}
        # The same key again, after a timeout for instance, is the same run.
        begun = client.post("/v1/runs", json=wish, headers={"Idempotency-Key": str(uuid4())})
        begun.raise_for_status()
        run_id = begun.json()["run_id"]
        print(f"{run_id} began", flush=True)
        for name, event in follow(client, run_id):
            match name:
                case "end":
                    print(f"{event['status']} - {event['message']}")
                case "APPROVAL_REQUIRED":
                    print(
                        f"{name}: {os.environ['INTERLOCK_URL']}/console/inbox/{event['data']['action_id']}", flush=True
                    )
                case _:
                    print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
