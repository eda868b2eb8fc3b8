"""A conversation: the run continues with the next message of the user, and ends when they say so."""

import asyncio

from interlock import Agent, ModelRequest, Runner, ScriptedModel, UserMessage


def parrot(request: ModelRequest) -> str:
    said = [message.text for message in request.messages if isinstance(message, UserMessage)]
    return f"{len(said)}: {said[-1]}"


async def main() -> None:
    async with Runner(Agent(provider=ScriptedModel([parrot] * 3)), chat=True) as runner:
        handle = await runner.start("Hello.")
        print((await handle.result()).text)
        await handle.send_message("Are you there?")
        result = await handle.result()
        print(result.text, "-", result.status)
        await handle.cancel("Goodbye.")
        print((await handle.result()).message)


if __name__ == "__main__":
    asyncio.run(main())
