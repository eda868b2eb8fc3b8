"""What a person is told about a command."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.policy.shell.bash import parse_script
from interlock.policy.shell.command import SimpleCommand
from interlock.policy.shell.command_facts import describe_risks
from tests.each import each


@each(
    ("text", "told"),
    [
        ("npm test", ("runs project scripts",)),
        ("npm --silent run build", ("runs project scripts",)),
        ("npm test -- --coverage", ("runs project scripts", "may write a coverage directory")),
        ("pytest --cov=src", ("runs project scripts", "may write a coverage directory")),
        ("make", ("runs project scripts",)),
        ("go test ./...", ("runs project scripts",)),
        ("npm install", ("may run install scripts", "uses the network")),
        ("pip install x", ("may run install scripts", "uses the network")),
        ("uv pip install x", ("may run install scripts", "uses the network")),
        ("rm -rf x", ("deletes files", "deletes files recursively", "deletes without asking")),
        ("rm x", ("deletes files",)),
        ("git -C x reset --hard", ("uncommitted changes are lost",)),
        ("git clean -fdx", ("files that git does not know are lost",)),
        ("git push -f", ("uses the network", "commits on the other side may be lost")),
        ("git checkout -- x", ("uncommitted changes to these files are lost",)),
        ("git status", ()),
        ("ls", ()),
        ("sudo ls", ("runs as another user",)),
        ("curl https://x.example", ("uses the network",)),
        ("python3 x.py", ("runs any code",)),
        ("/usr/bin/python3 x.py", ("runs any code",)),
        ("chmod +x a", ("changes who may use files",)),
        ("docker run x", ("starts or changes containers", "runs any code")),
        ("dd if=a of=b", ("writes devices or file systems",)),
        ("kill 1", ("ends processes",)),
        ("shutdown now", ("stops this machine",)),
        ("crontab -e", ("runs something later",)),
        ("systemctl stop x", ("changes services of this machine",)),
    ],
)
def test_the_risk_is_told_in_words(text: str, told: tuple[str, ...]) -> None:
    (command,) = parse_script(text).commands
    assert describe_risks(command) == told


@given(st.lists(st.text(), min_size=1).map(tuple), st.lists(st.text()).map(tuple))
def test_no_words_raise(argv: tuple[str, ...], wrappers: tuple[str, ...]) -> None:
    describe_risks(SimpleCommand(argv=argv, wrappers=wrappers))
