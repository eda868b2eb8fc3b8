"""The command that the conformance suite starts for a scenario: hands it to the clients in the process of the test.

`python -I -S hand_over.py SOCKET URL`. It imports little, because it is started for every scenario.
"""

import os
import socket
import sys


def main(place: str, url: str) -> int:
    """Send the scenario, and return the exit code of the client."""
    names = ("MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_PROTOCOL_VERSION", "MCP_CONFORMANCE_CONTEXT")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        connection.sendall("\0".join([url, *(os.environ.get(name, "") for name in names)]).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile(encoding="utf-8").read()
    sys.stderr.write(answer)
    return 1 if answer else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
