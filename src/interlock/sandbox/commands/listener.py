"""The listening socket of a sandbox without a network: made inside by the helper, served outside.

The network of the sandbox has only its loopback. What connects to the socket is in the sandbox; what accepts has the
descriptor, which no process inside has.
"""

import array
import os
import socket

from ...domain.errors import SandboxSetupError
from ..host import process_tree
from ..host.descriptors import closing_fd
from . import sandbox_helper
from .helper_process import helper_process

_REPLY_BYTES, _FD_BYTES = 4096, 4


def open_listener(launched: int, inside: int, port: int) -> socket.socket:
    """Return a socket that listens at this port of a sandbox's loopback. Raise `SandboxSetupError`. It blocks."""
    with (
        closing_fd(os.open(f"/proc/{inside}/ns/net", os.O_RDONLY | os.O_CLOEXEC)) as namespace,
        closing_fd(os.memfd_create("listen")) as plan,
    ):
        # A number may be given to another process, but not to another child of one that we have not collected.
        if inside not in process_tree.list_children(launched):
            raise SandboxSetupError("the sandbox has ended")
        os.write(plan, f"{sandbox_helper.LISTEN}\0{port}\0".encode())
        try:
            return _request_socket(namespace, plan)
        except OSError:  # the helper is gone; there is a new one for the second question
            return _request_socket(namespace, plan)


def _request_socket(namespace: int, plan: int) -> socket.socket:
    replies, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with replies:
        with its_end:
            helper_process.send((namespace, plan, its_end.fileno()))
        message, ancillary, _, _ = replies.recvmsg(_REPLY_BYTES, socket.CMSG_SPACE(_FD_BYTES), socket.MSG_CMSG_CLOEXEC)
    received = array.array("i", b"".join(data for _, _, data in ancillary))
    if message != sandbox_helper.OK or len(received) != 1:
        raise SandboxSetupError(message.decode(errors="replace") or "the process that makes the proxy's socket died")
    return socket.socket(fileno=received[0])
