"""Commands that start another one: by a variable, an option, a setting or a text. A rule that refuses it finds it."""

import pytest

from interlock import Rule, RulePolicy
from interlock.policy.engine.call_parts import list_script_commands
from interlock.policy.engine.example_event import example_event

NO_RM = Rule(id="no-rm", verdict="deny", command=["rm"])

#: Ways to start `rm` that are read.
DENIED = r"""
GIT_EXTERNAL_DIFF='rm x' git diff
PAGER='rm x' git log
GIT_SSH_COMMAND='rm x' git fetch
GIT_PAGER=rm git log
env PAGER='rm x' man ls
sudo EDITOR='rm x' visudo
export PAGER='rm x'; git log
PAGER='rm x'; git log
BASH_ENV='rm x' bash -c true
PS4='$(rm x)' bash -xc true
LESSOPEN='|rm x' less f
PROMPT_COMMAND='rm x' bash
tar --to-command='rm x' -xf a.tar
tar --to-command=rm -xf a.tar
tar cf a.tar --checkpoint=1 --checkpoint-action=exec='rm x' b
tar -I 'rm x' -cf a.tar b
tar --use-compress-program='rm x' -cf a.tar b
tar -F 'rm x' -cf a b
tar --rsh-command=/bin/rm -cf h:a b
rsync -e 'rm x' a h:b
rsync --rsh='rm x' a h:b
rsync --rsync-path='rm x' a h:b
ssh -o ProxyCommand='rm x' h
ssh -oProxyCommand='rm x' h
ssh -o LocalCommand='rm x' -o PermitLocalCommand=yes h
ssh h rm x
scp -S rm a h:b
scp -o ProxyCommand='rm x' a h:b
sftp -S rm h
git -c core.pager='rm x' log
git -c alias.x='!rm x' x
git clone --upload-pack='rm x' u
git clone -u 'rm x' u
git fetch --upload-pack 'rm x'
git push --receive-pack='rm x'
git -c core.sshCommand='rm x' fetch
git -c diff.external='rm x' diff
git -c core.fsmonitor='rm x' status
git config --global core.pager 'rm x'
git config alias.p '!rm x'
git difftool -x 'rm x'
git difftool --extcmd='rm x'
git bisect run rm x
git submodule foreach 'rm x'
git rebase -x 'rm x' main
git rebase --exec 'rm x' main
git filter-branch --tree-filter 'rm x' HEAD
git grep -O'rm x' p
git grep --open-files-in-pager='rm x' p
sort --compress-program=rm f
sort --compress-program 'rm' f
split --filter='rm x' f
watch rm x
watch 'rm x'
watch -n1 'rm x'
parallel rm ::: x
parallel 'rm {}' ::: x
script -c 'rm x' out
script -qc 'rm x' out
script --command='rm x' out
awk 'BEGIN{system("rm x")}'
awk 'BEGIN{print "" | "rm x"}'
awk 'BEGIN{"rm x" | getline}'
gawk 'BEGIN { system("rm" " x") }'
sed '1e rm x' f
sed 's/.*/rm x/e' f
sed -e 'e rm x' f
vim -c '!rm x'
vim -c ':!rm x' -c q
vim '+!rm x' f
vim --cmd '!rm x'
vim -c 'call system("rm x")'
nvim -c '!rm x'
ex -c '!rm x' f
emacs --eval '(shell-command "rm x")'
less '+!rm x' f
more '+!rm x' f
man -P 'rm x' ls
man --pager='rm x' ls
man -H'rm x' ls
zip -T -TT 'rm x' a b
zip a b -T --unzip-command 'rm x'
xargs rm
xargs -a f rm
find . -exec rm {} ;
find . -execdir rm {} +
flock f rm x
flock f -c 'rm x'
nsenter -t 1 rm x
unshare rm x
chroot / rm x
strace rm x
strace -o '|rm x' ls
gdb -ex '!rm x'
gdb -ex 'shell rm x'
ltrace rm x
timeout 5 rm x
nice rm x
make SHELL=/bin/rm
make -e SHELL='rm x'
make --eval='x:;rm x'
npm exec rm x
npx rm x
python -c 'import os; os.system("rm x")'
perl -e 'system("rm x")'
ruby -e 'system "rm x"'
node -e 'require("child_process").exec("rm x")'
php -r 'system("rm x");'
lua -e 'os.execute("rm x")'
expect -c 'spawn rm x'
socat - EXEC:'rm x'
socat TCP-LISTEN:1 SYSTEM:'rm x'
nc -e /bin/rm h 1
nc -c 'rm x' h 1
ncat --exec 'rm x' h 1
ncat --sh-exec 'rm x' h 1
wget --use-askpass=/bin/rm u
systemd-run rm x
tcpdump -z /bin/rm -w f
tcpdump --postrotate-command=rm
cpio --rsh-command=rm -o
busybox rm x
busybox sh -c 'rm x'
dpkg --pre-invoke='rm x' -i x
cmake -E env rm x
cmake -E time rm x
bazel run --run_under='rm x' t
go test -exec 'rm x'
go build -toolexec 'rm x'
pdflatex --shell-escape '\write18{rm x}'
tmux new-session 'rm x'
tmux run-shell 'rm x'
screen -X exec rm x
fzf --preview 'rm x'
fzf --bind 'enter:execute(rm x)'
rg --pre rm p
rg --pre='rm x' p
ag --pager='rm x' p
bat --pager='rm x' f
delta --pager='rm x'
entr rm x
nodemon --exec 'rm x'
nodemon -x 'rm x'
hyperfine 'rm x'
perf stat rm x
valgrind rm x
env -S 'rm x'
env --split-string='rm x'
setarch x86_64 rm x
dash -c 'rm x'
zsh -c 'rm x'
sqlite3 d '.shell rm x'
sqlite3 d '.system rm x'
psql -c '\! rm x'
mysql -e '\! rm x'
lftp -c '!rm x'
install --strip-program=rm a b
install -s --strip-program=/bin/rm a b
pkexec rm x
su -c 'rm x'
su root -c 'rm x'
runuser -c 'rm x' u
sg g -c 'rm x'
xterm -e rm x
gnome-terminal -- rm x
start-stop-daemon --exec /bin/rm
uv run rm x
poetry run rm x
pipenv run rm x
bundle exec rm x
nix-shell --run 'rm x'
nix develop -c rm x
mise exec -- rm x
asdf exec rm x
pyenv exec rm x
conda run rm x
doas rm x
ionice rm x
taskset 1 rm x
chrt 1 rm x
stdbuf -o0 rm x
nohup rm x
time rm x
setsid rm x
command rm x
builtin rm x
exec rm x
trap 'rm x' EXIT
complete -C 'rm x' y
mapfile -C 'rm x' -c 1 a
alias ls='rm x'
hash -p /bin/rm ls
enable -f x rm
coproc rm x
""".strip().splitlines()
#: Ways that are not read: where the words of a rule stand in them, or nobody knows what runs, a person is asked.
ASKED = r"""
FOO='rm x' make
FOO=rm make
env FOO='rm x' make
run-parts --regex '^rm$' /bin
run-parts --regex='^r.$' /bin
run-parts --arg=x /bin
docker run i rm x
docker exec c rm x
kubectl exec p -- rm x
podman run i sh -c 'rm x'
ip netns exec n rm x
apt-get -o APT::Update::Pre-Invoke::='rm x' update
apt -o Dpkg::Pre-Invoke::='rm x' install y
pip install --global-option='rm x'
cargo --config 'target.x.runner="rm x"' run
go generate -run rm
rustc -C linker=rm
gcc -wrapper 'rm,x' a.c
direnv exec . rm x
bind -x '"a":rm x'
""".strip().splitlines()
#: Nothing here starts what is refused.
HARMLESS = r"""
FOO=bar make
PAGER=cat git log
GIT_PAGER= git log
CC=gcc make
make CC=gcc SHELL=/bin/bash
uv run pytest -q
npx prettier .
awk '{print $1 | "sort"}' f
sed -n 1,5p f
tar -I zstd -cf a.tar.zst b
rsync -e ssh a h:b
git -c core.pager=cat log
git -c alias.l=log l
man -P cat ls
""".strip().splitlines()


def verdict(script: str, *rules: Rule, default: str = "allow") -> str:
    policy = RulePolicy([NO_RM, *rules], "ask" if default == "ask" else "allow")
    return str(policy.evaluate(example_event("bash", {"command": script})).verdict)


@pytest.mark.parametrize("script", DENIED)
def test_a_started_program_is_refused(script: str) -> None:
    assert verdict(script) == "deny"


@pytest.mark.parametrize("script", ASKED)
def test_a_program_that_may_start_is_asked_about(script: str) -> None:
    assert verdict(script) == "ask"


@pytest.mark.parametrize("script", HARMLESS)
def test_other_programs_are_left_alone(script: str) -> None:
    assert verdict(script) == "allow"


def test_what_may_start_needs_no_rule_that_allows_it() -> None:
    allow = Rule(id="ok", verdict="allow", command=["uv run", "tar"])

    assert verdict("uv run pytest -q", allow, default="ask") == "allow"
    assert verdict("tar -I zstd -xf a", allow, default="ask") == "allow"
    assert verdict("tar -I 'rm x' -xf a", allow, default="ask") == "deny"


@pytest.mark.parametrize("script", ["PAGER=cat git log", "env PAGER=cat git log", "tar -I 'npm test' -xf a"])
def test_no_value_is_allowed_by_a_rule(script: str) -> None:
    """A rule that allows a program allows neither the command that starts it nor a command with variables."""
    allow = [Rule(id="ok", verdict="allow", command=["cat", "git log", "npm test"])]

    assert verdict(script, *allow, default="ask") == "ask"


def test_a_rule_about_two_words_finds_them_in_a_value() -> None:
    push = Rule(id="no-push", verdict="deny", command=["git push"])
    ask = Rule(id="ask-push", verdict="ask", command=["git fetch"])

    assert verdict("GIT_EDITOR='git push origin' git commit", push) == "deny"
    assert verdict("git -c alias.x=push x", push) == "deny"
    assert verdict("PAGER='git fetch' git log", ask) == "ask"


def test_what_may_start_is_no_command_that_ran() -> None:
    assert list_script_commands("PAGER=cat git log; tar -I zstd -xf a") == (
        ("git", "log"),
        ("tar", "-I", "zstd", "-xf", "a"),
    )


@pytest.mark.parametrize(
    "script",
    [
        "sed '" + "s/" * 990 + "' f",
        "awk '" + '"\\"' * 600 + "' f",
        "fzf --bind '" + "execute(" * 240 + "'",
        "npx " * 900 + "x",
        " ".join(f"PAGER='x{number}'" for number in range(900)) + " git log",
        "PAGER='" + 'env PAGER="x" ' * 500 + "' git log",
    ],
)
def test_hostile_values_end(script: str) -> None:
    assert verdict(script) in ("allow", "ask")
