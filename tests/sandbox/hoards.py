"""Programs that hold memory without having it mapped, for as long as they may."""

MEGABYTE = 1 << 20
HELD_BYTES = 300 * MEGABYTE

_BEGIN = f"""
import array, ctypes, os, signal, socket
CHUNK, COUNT = bytes({MEGABYTE}), {HELD_BYTES // MEGABYTE}
"""
_END = """
print("all of it is held", flush=True)
signal.pause()
"""
_MEMFD = """
fd = os.memfd_create("x")
for _ in range(COUNT):
    os.write(fd, CHUNK)
"""
_DELETED_FILE = """
fd = os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT)
os.unlink("/dev/shm/x")
for _ in range(COUNT):
    os.write(fd, CHUNK)
"""
_TEMPORARY_FILE = """
with open("/tmp/x", "wb") as file:
    for _ in range(COUNT):
        file.write(CHUNK)
"""
#: Filled and detached: they stay until the last process of their namespace has ended.
_SYSTEM_V = """
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(4000):
    segment = libc.shmget(0, ctypes.c_size_t(1 << 16), 0o1600)
    place = libc.shmat(segment, None, 0)
    ctypes.memset(place, 1, 1 << 16)
    libc.shmdt(ctypes.c_void_p(place))
"""
#: Sockets that nobody reads from. The limit on open files holds for each process.
_SOCKETS = """
for _ in range(6):
    if os.fork() == 0:
        pairs = [socket.socketpair() for _ in range(400)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
                try:
                    while True:
                        end.send(CHUNK[:65536])
                except BlockingIOError:
                    pass
        signal.pause()
for _ in range(6):
    os.wait()
"""

HOARDS = {
    kind: _BEGIN + program + _END
    for kind, program in {
        "memfd": _MEMFD,
        "deleted file": _DELETED_FILE,
        "temporary file": _TEMPORARY_FILE,
        "system v": _SYSTEM_V,
        "sockets": _SOCKETS,
    }.items()
}
