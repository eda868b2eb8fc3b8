"""Risks of a command, as text for the person who is asked. Facts from tables; no entry does not mean no risk."""

from collections.abc import Iterable
from posixpath import basename

from .command import SimpleCommand
from .command_match import matches_widely
from .read_only_table import READ_ONLY_PROGRAMS

_NETWORK = "uses the network"
_PROJECT = "runs project scripts"
_INSTALL = "may run install scripts"
_COVERAGE = "may write a coverage directory"
RUNS_ANY_CODE = "runs any code"
_CONTAINER = "starts or changes containers"
_SERVICES = "changes services of this machine"
_OTHER_USER = "runs as another user"
_DEVICE = "writes devices or file systems"


def _assign_to_each(programs: str, *facts: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(programs.split(), facts)


#: By program, whatever its words.
_PROGRAMS: dict[str, tuple[str, ...]] = {
    **_assign_to_each(
        "make gmake cmake ninja just task rake gradle gradlew mvn mvnw ant bazel tox nox pytest jest vitest", _PROJECT
    ),
    **_assign_to_each("mocha phpunit rspec ctest npx bunx pre-commit", _PROJECT),
    **_assign_to_each(
        "curl wget ssh scp sftp rsync ping nc ncat netcat telnet dig nslookup host whois ftp socat nmap", _NETWORK
    ),
    **_assign_to_each("traceroute gh glab aws gcloud az kubectl helm terraform tofu heroku flyctl vercel", _NETWORK),
    **_assign_to_each(
        "bash sh dash zsh ksh fish python python3 node deno bun ruby perl php lua awk gawk osascript", RUNS_ANY_CODE
    ),
    **_assign_to_each("eval source . xargs parallel Rscript julia irb ipython tclsh expect", RUNS_ANY_CODE),
    **_assign_to_each("sudo doas su runuser pkexec", _OTHER_USER),
    **_assign_to_each("dd mkfs fdisk parted mkswap wipefs losetup mount umount", _DEVICE),
    **_assign_to_each("kill pkill killall", "ends processes"),
    **_assign_to_each("shutdown reboot halt poweroff", "stops this machine"),
    **_assign_to_each("docker podman docker-compose nerdctl buildah", _CONTAINER),
    **_assign_to_each("systemctl service launchctl rc-service", _SERVICES),
    **_assign_to_each("crontab at batch", "runs something later"),
    **_assign_to_each("chmod chown chgrp setfacl chattr", "changes who may use files"),
    **_assign_to_each("shred truncate", "destroys the content of files"),
    **_assign_to_each(
        "apt apt-get dnf yum pacman apk brew zypper snap flatpak", "changes the software of this machine", _NETWORK
    ),
    **_assign_to_each("iptables nft ufw firewall-cmd ip ifconfig", "changes the network of this machine"),
    **_assign_to_each("useradd userdel usermod passwd visudo", "changes users of this machine"),
    **_assign_to_each("rm rmdir unlink", "deletes files"),
    **_assign_to_each("mv", "moves or overwrites files"),
    **_assign_to_each("tee install", "writes files"),
}
#: By an option, also behind `--`, where it is meant for what the program starts.
_OPTIONS = {"--coverage": _COVERAGE, "--cov": _COVERAGE}
#: By the leading words, as a rule would name them.
_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *[
        (f"{tool} {verb}", (_PROJECT,))
        for tool in ("npm", "yarn", "pnpm", "bun")
        for verb in ("test", "run", "start", "exec", "t")
    ],
    *[
        (f"{tool} {verb}", (_INSTALL, _NETWORK))
        for tool in ("npm", "yarn", "pnpm", "bun")
        for verb in ("install", "add", "ci", "i", "update")
    ],
    *[
        (f"{tool} {verb}", (_PROJECT,))
        for tool in ("cargo", "go")
        for verb in ("test", "run", "build", "generate", "bench")
    ],
    *[
        (f"{tool} install", (_INSTALL, _NETWORK))
        for tool in ("pip", "pip3", "pipx", "poetry", "bundle", "gem", "cargo", "go", "composer")
    ],
    ("uv sync", (_INSTALL, _NETWORK)),
    ("uv add", (_INSTALL, _NETWORK)),
    ("uv pip install", (_INSTALL, _NETWORK)),
    ("uv run", (_PROJECT,)),
    ("poetry run", (_PROJECT,)),
    ("bundle exec", (_PROJECT,)),
    ("python -m pip install", (_INSTALL, _NETWORK)),
    ("python3 -m pip install", (_INSTALL, _NETWORK)),
    ("coverage run", (_PROJECT, _COVERAGE)),
    ("go test -coverprofile", (_COVERAGE,)),
    ("npm publish", ("publishes a package", _NETWORK)),
    ("cargo publish", ("publishes a package", _NETWORK)),
    ("twine upload", ("publishes a package", _NETWORK)),
    ("rm -r", ("deletes files recursively",)),
    ("rm -f", ("deletes without asking",)),
    ("find -delete", ("deletes files recursively",)),
    ("find -exec", (RUNS_ANY_CODE,)),
    ("sed -i", ("changes files in place",)),
    ("git reset --hard", ("uncommitted changes are lost",)),
    ("git clean -f", ("files that git does not know are lost",)),
    ("git checkout --", ("uncommitted changes to these files are lost",)),
    ("git checkout .", ("uncommitted changes to these files are lost",)),
    ("git restore", ("uncommitted changes to these files are lost",)),
    ("git stash drop", ("stashed changes are lost",)),
    ("git stash clear", ("stashed changes are lost",)),
    ("git branch -D", ("commits that are only on this branch may be lost",)),
    ("git push", (_NETWORK,)),
    ("git push --force", ("commits on the other side may be lost",)),
    ("git push --force-with-lease", ("commits on the other side may be lost",)),
    ("git push --delete", ("a branch on the other side is deleted",)),
    ("git rebase", ("rewrites commits",)),
    ("git commit --amend", ("rewrites the last commit",)),
    ("git filter-branch", ("rewrites commits",)),
    ("git pull", (_NETWORK,)),
    ("git fetch", (_NETWORK,)),
    ("git clone", (_NETWORK,)),
    ("git ls-remote", (_NETWORK,)),
    ("docker run", (RUNS_ANY_CODE,)),
    ("docker exec", (RUNS_ANY_CODE,)),
    ("kubectl delete", ("deletes resources of a cluster",)),
    ("terraform apply", ("changes infrastructure",)),
    ("terraform destroy", ("destroys infrastructure",)),
)


def _group_by_program() -> dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    table: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for text, facts in _PATTERNS:
        words = tuple(text.split())
        table.setdefault(words[0], []).append((words, facts))
    return table


_PATTERNS_BY_PROGRAM = _group_by_program()


def describe_risks(command: SimpleCommand) -> tuple[str, ...]:
    """Return concrete risks of this command, most general first, each once."""
    return tuple(dict.fromkeys(_find_risks(command)))


def _find_risks(command: SimpleCommand) -> Iterable[str]:
    for wrapper in command.wrappers:
        if _PROGRAMS.get(basename(wrapper)) == (_OTHER_USER,):
            yield _OTHER_USER
    program = basename(command.argv[0])
    yield from _PROGRAMS.get(program, ())
    for words, said in _PATTERNS_BY_PROGRAM.get(program, ()):
        if matches_widely(words, False, command):
            yield from said
    if program not in READ_ONLY_PROGRAMS:
        yield from [_OPTIONS[option] for word in command.argv if (option := word.partition("=")[0]) in _OPTIONS]
