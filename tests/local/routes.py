"""Ways from a command to the runtime that started it. Each is a sentence and a script; `{words}` are of `host.Host`.

A route is taken when the canary comes out, when the script says so, when a listener has a visitor, when a signal comes,
or when a file is not what it was.
"""

from typing import NamedTuple

from .toolbox import SAY_REACHED


class Route(NamedTuple):
    sentence: str
    script: str
    #: It changes modes of files that are not the test's own: nothing sets them back.
    is_for_good: bool = False


_SYSCALL = (
    "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
    "said = 'it-' + 'was-reached'; call = lambda *a: libc.syscall(*map(ctypes.c_long, a)); "
)
_CONNECT = "import socket; s = socket.socket({family}); s.settimeout(2); s.connect({address}); print(s.recv(99))"


def _python(program: str) -> str:
    return "{python} -I - <<'PROGRAM' 2>/dev/null\n" + program + "\nPROGRAM\n"


def _connect(family: str, address: str) -> str:
    return _python(_CONNECT.replace("{family}", f"socket.{family}").replace("{address}", address))


def _or_reached(script: str) -> str:
    return f"{script} 2>/dev/null && {SAY_REACHED}\n"


_FILES = [
    Route("it reads the database by its path", "cat {home}/runs.db"),
    Route("it reads the database's journal", "cat {home}/runs.db-wal {home}/runs.db-shm"),
    Route(
        "it opens the database as SQLite",
        _python("import sqlite3; print(*sqlite3.connect('{home}/runs.db').execute('select * from events'))"),
    ),
    Route("it reads what the run keeps as artifacts", "cat -r {home}/artifacts; grep -r . {home}/artifacts"),
    Route("it adds an artifact", "mkdir -p {home}/artifacts/ab && echo evil > {home}/artifacts/ab/cd"),
    Route("it reads the user's policy", "cat {home}/policy.yaml"),
    Route("it writes the user's policy", "echo evil >> {home}/policy.yaml; sed -i s/version/x/ {home}/policy.yaml"),
    Route("it keeps a rule of its own beside the policy", "echo evil > {home}/policy.kept.yaml; mkdir -p {home}/kept"),
    Route("it writes the project's policy", "echo evil >> .interlock/policy.yaml; rm -f .interlock/policy.yaml"),
    Route(
        "it puts another folder in the place of the project's policy",
        "mv .interlock x; mkdir .interlock; echo evil > .interlock/policy.yaml",
    ),
    Route(
        "it exchanges the project's policy with a rename",
        _python("import os; os.mkdir('y'); os.rename('y', '.interlock')"),
    ),
    Route(
        "it links over the project's policy",
        "ln -sfn {home}/policy.yaml .interlock/policy.yaml; ln -sfn /tmp .interlock",
    ),
    Route("it writes the project's policy through a hard link", "ln .interlock/policy.yaml p && echo evil > p"),
    Route(
        "it writes the project's policy through a link",
        "ln -s .interlock/policy.yaml p; echo evil > p; tee -a p <<< evil",
    ),
    Route(
        "it uncovers the project's policy",
        "umount .interlock; umount -l .interlock; mount -o remount,rw .interlock; echo evil > .interlock/policy.yaml",
    ),
    Route(
        "it makes the project's policy unreadable",
        "chmod 000 .interlock .interlock/policy.yaml; chmod -R 777 .interlock",
    ),
    Route("it reads keys in the home", "cat ~/.ssh/id_ed25519 {home}/.ssh/id_ed25519 $HOME/.ssh/*"),
    Route(
        "it writes what a shell reads at its start",
        "for rc in .bashrc .profile .bash_profile .zshrc; do echo evil >> {home}/$rc; done",
    ),
    Route(
        "it finds names that are shared in temporary folders",
        "cat /tmp/interlock-*-shared /dev/shm/interlock-*-shared /var/tmp/interlock-*",
    ),
    Route(
        "it starts a program through the loader",
        "/lib64/ld-linux-x86-64.so.2 /bin/cat {home}/runs.db {home}/policy.yaml",
    ),
    Route(
        "it searches everything for the runtime's files",
        "find / -name runs.db -o -name policy.yaml -path '*/home/*' 2>/dev/null | xargs -r cat",
    ),
    Route(
        "it opens a file by its handle",
        _python(_SYSCALL + "print(said) if call(304, -100, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38) else None"),
    ),
]

_CODE = [
    Route(
        "it writes the runtime's own code",
        "echo evil >> {package}/__init__.py; touch {package}/evil.py",
    ),
    Route("it opens the runtime's own code to everybody", "chmod 777 {package}", is_for_good=True),
    Route(
        "it leaves a file that Python reads at its start",
        "touch {site}/evil.pth {site}/sitecustomize.py; cp main.py {site}/usercustomize.py",
    ),
    Route(
        "it leaves a file that Python reads in the home",
        "site={home}/.local/lib/python3.11/site-packages; mkdir -p $site && touch $site/evil.pth",
    ),
    Route(
        "it writes a hook of git",
        "echo evil > .git/hooks/pre-commit; echo evil > .git/hooks/post-checkout; chmod +x .git/hooks/*",
    ),
    Route(
        "it exchanges the hooks of git",
        "mv .git/hooks .git/h; mkdir .git/hooks; rm -rf .git/hooks; ln -sfn /tmp .git/hooks",
    ),
    Route(
        "it leads git to other hooks",
        "git config core.hooksPath /tmp; git config --local core.fsmonitor evil; echo evil >> .git/config",
    ),
    Route(
        "it writes git's settings of the user",
        "HOME={home} git config --global core.pager evil; git config --system core.pager evil",
    ),
    Route(
        "it has a task done later",
        "echo '* * * * * root evil' > /etc/cron.d/evil; (crontab - <<< '* * * * * evil') && "
        + SAY_REACHED
        + "; echo evil | at now && "
        + SAY_REACHED,
    ),
    Route(
        "it leaves a service",
        "mkdir -p {home}/.config/systemd/user && echo > {home}/.config/systemd/user/evil.service; systemd-run evil && "
        + SAY_REACHED,
    ),
]

_PROCESSES = [
    Route(
        "it reads our environment",
        _or_reached("head -c 99 /proc/{pid}/environ | grep -qa .") + "cat /proc/*/environ; env; set",
    ),
    Route(
        "it goes through our root and folder",
        "cat /proc/{pid}/root{home}/policy.yaml /proc/{pid}/cwd/../home/policy.yaml /proc/*/root{home}/policy.yaml",
    ),
    Route("it reads our open files", "for f in /proc/{pid}/fd/*; do timeout 1 head -c 99 $f; done"),
    Route(
        "it reads files that it inherited",
        _python("import os\nfor fd in range(3, 1024):\n  try: print(os.pread(fd, 99999, 0))\n  except OSError: pass"),
    ),
    Route("it reads our memory", _python("open('/proc/{pid}/mem', 'rb').read(1); print('it-' + 'was-reached')")),
    Route("it traces us", _python(_SYSCALL + "print(said) if call(101, 16, {pid}, 0, 0) == 0 else None")),
    Route(
        "it writes into our memory", _python(_SYSCALL + "print(said) if call(311, {pid}, 0, 0, 0, 0, 0) == 0 else None")
    ),
    Route("it takes an open file of ours", _python("import os\nfd = os.pidfd_open({pid}); os.read(fd, 1)")),
    Route(
        "it signals us through a descriptor",
        _python("import os, signal\nsignal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGUSR1)"),
    ),
    Route("it signals us", "kill -USR1 {pid}; trap '' USR1; kill -USR1 0; kill -USR1 -1; kill -USR1 -{pid}"),
    Route(
        "it enters our namespaces",
        _or_reached("nsenter -t {pid} -a true") + _or_reached("nsenter --mount=/proc/{pid}/ns/mnt true"),
    ),
    Route("it renames a thread of ours", _or_reached("echo evil > /proc/{pid}/comm")),
    Route("it changes how the kernel would end us", _or_reached("echo 1000 > /proc/{pid}/oom_score_adj")),
    Route(
        "it limits us",
        _python(
            "import resource; resource.prlimit({pid}, resource.RLIMIT_NOFILE, (9, 9)); print('it-' + 'was-reached')"
        ),
    ),
]

_SOCKETS = [
    Route("it asks our server on the loopback", "exec 3<>/dev/tcp/127.0.0.1/{v4}; head -c 99 <&3"),
    Route(
        "it asks our server by another name of the loopback",
        _connect("AF_INET", "('127.0.0.2', {v4})")
        + _connect("AF_INET", "('0.0.0.0', {v4})")
        + _connect("AF_INET6", "('::ffff:127.0.0.1', {v4})"),
    ),
    Route("it asks our server on the loopback of version 6", _connect("AF_INET6", "('::1', {v6})")),
    Route("it asks our server through a file", _connect("AF_UNIX", "'{socket}'")),
    Route(
        "it asks our server through a link to its file",
        "ln -s {socket} s; ln {socket} t; cd {home}; " + _connect("AF_UNIX", "'{workspace}/s'"),
    ),
    Route("it asks our server by a name without a file", _connect("AF_UNIX", "'\\0{abstract}'")),
    Route(
        "it asks an agent for keys",
        "ssh-add -l; "
        + _python(
            "import os, socket\nsocket.socket(socket.AF_UNIX).connect(os.environ.get('SSH_AUTH_SOCK', '{socket}'))"
        ),
    ),
    Route(
        "it asks a message bus",
        _python(
            "import os, socket\n"
            "bus = os.environ.get('DBUS_SESSION_BUS_ADDRESS', 'unix:path={socket}')[10:]\n"
            "socket.socket(socket.AF_UNIX).connect(bus)"
        ),
    ),
    Route(
        "it asks whatever listens on this host",
        _python(
            "import os, pathlib, socket\n"
            "for top in ('/run', '/var/run', '/tmp', '{home}'):\n"
            "  for path in filter(pathlib.Path.is_socket, pathlib.Path(top).rglob('*')):\n"
            "    socket.socket(socket.AF_UNIX).connect(str(path)); print('it-' + 'was-reached')"
        ),
    ),
    Route(
        "it reads keys that the kernel holds",
        _python(_SYSCALL + "print(said) if call(250, 0, -3, 1) >= 0 else None") + "cat /proc/keys",
    ),
]

_KERNEL = [
    Route(
        "it names a program for crashes",
        _or_reached("echo '|/tmp/x' > /proc/sys/kernel/core_pattern")
        + _or_reached("echo x > /proc/sys/kernel/modprobe"),
    ),
    Route("it asks for magic keys", _or_reached("test -w /proc/sysrq-trigger && echo h > /proc/sysrq-trigger")),
    Route(
        "it names a program for groups of processes",
        _or_reached("mkdir /sys/fs/cgroup/evil")
        + _or_reached("echo x > /sys/fs/cgroup/release_agent")
        + _or_reached("echo x > /sys/kernel/uevent_helper"),
    ),
    Route("it names an interpreter", _or_reached("echo ':x:M::x::/tmp/x:' > /proc/sys/fs/binfmt_misc/register")),
    Route(
        "it mounts over our files",
        _or_reached("mount --bind . {package}")
        + _or_reached("unshare -Urm mount --bind . /usr")
        + _or_reached("unshare -Ur true"),
    ),
    Route(
        "it makes a device",
        _or_reached("mknod d b 8 0")
        + _or_reached("head -c 1 /dev/mem")
        + _or_reached("head -c 1 /dev/kmsg")
        + _or_reached("head -c 1 /dev/vda /dev/sda"),
    ),
    Route(
        "it becomes somebody else",
        _or_reached("sudo -n true") + _or_reached("chroot . true") + _or_reached("setpriv --reuid 12345 true"),
    ),
    Route(
        "it types into our terminal",
        _python(
            "import fcntl, os, termios\n"
            "for fd in (0, 1, 2, os.open('/dev/tty', os.O_RDWR)):\n"
            "  fcntl.ioctl(fd, termios.TIOCSTI, b'x'); print('it-' + 'was-reached')"
        ),
    ),
    Route(
        "it loads a program into the kernel",
        _python(_SYSCALL + "print(said) if call(321, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38) else None"),
    ),
]

ROUTES = (*_FILES, *_CODE, *_PROCESSES, *_SOCKETS, *_KERNEL)
