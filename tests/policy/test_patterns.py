"""Patterns of paths and texts: what they mean, and that no text makes them slow."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import CallContext
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import ArgumentGlob, ArgumentRegex, Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.patterns import PatternSet, compile_regex, fold_text, glob_to_regex, path_glob_to_regexes
from tests.each import each


def narrow(glob: str, path: str) -> bool:
    """Is it that path, from the workspace on or absolute?"""
    text = ("a:" if path.startswith("/") else "r:") + path
    return bool(PatternSet(path_glob_to_regexes(glob, wide=False)).find_matches(text))


def wide(glob: str, path: str) -> bool:
    text = fold_text(("a:" if path.startswith("/") else "r:") + path)
    patterns = PatternSet(path_glob_to_regexes(glob, wide=True))
    return bool(patterns.find_matches(text) or patterns.find_matches(fold_text(text)))


@each(
    ("glob", "fits", "does_not_fit"),
    [
        (".env", [".env", "a/b/.env"], [".env2", "x.env", "env"]),
        ("*.py", ["a.py", "src/a.py", ".py"], ["a.pyc", "a.py.txt"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a/src/a.py", "src.py"]),
        ("src/**", ["src", "src/a", "src/a/b"], ["srcs/a", "a/src/b"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "src/a.txt"]),
        ("**/test", ["test", "a/test", "a/b/test"], ["atest", "test2"]),
        ("a**b/c", ["ab/c", "axb/c", "ax/yb/c"], ["a/c"]),
        ("src/", ["src", "src/a", "x/src/a"], ["src2"]),
        ("./src/a", ["src/a"], ["x/src/a"]),
        ("a?c", ["abc", "x/abc"], ["ac", "a/c", "abbc"]),
        ("[ab]c", ["ac", "bc"], ["cc", "abc"]),
        ("[!ab]c", ["cc"], ["ac", "bc", "/c"]),
        ("[a-c]", ["a", "b", "x/c"], ["d", "-"]),
        ("[]]", ["]"], ["[", "a"]),
        ("[^a]", ["^", "a"], ["b"]),
        ("a[[]b", ["a[b"], ["ab", "a[[]b"]),
        ("a+(b).{c}|d$^", ["a+(b).{c}|d$^"], ["ab", "aab"]),
        ("/etc/*", ["/etc/passwd"], ["etc/passwd", "/etc", "/etc/ssh/x"]),
        ("/**", ["/etc/passwd", "/x"], ["etc"]),
        ("a b", ["a b"], ["ab"]),
        ("a\nb", ["a\nb"], ["ab"]),
        ("*", ["a", "x/.hidden", "a\nb"], []),
        ("**", ["a", "a/b/c"], []),
    ],
)
def test_a_path_glob_is_read_as_in_a_gitignore(glob: str, fits: list[str], does_not_fit: list[str]) -> None:
    assert [path for path in fits + does_not_fit if narrow(glob, path)] == fits


@each(
    ("glob", "fits", "does_not_fit"),
    [
        (".env", [".ENV", "/x/.env", ".env/a", "\uff0eenv"], [".env2", "/x/.environment"]),
        ("secrets/**", ["SECRETS/x", "Secrets", "\u017fecrets/x"], ["/secrets/x", "a/secrets/x"]),
        ("Stra\xdfe", ["strasse", "STRASSE/x", "x/stra\xdfe"], ["strase"]),
        ("caf\xe9", ["cafe\u0301", "CAFE\u0301/x"], ["cafe"]),
        ("src/a", ["src/a/b/c"], ["src/ab"]),
        ("/etc", ["/etc/passwd", "/ETC"], ["/etcetera", "etc"]),
        ("/", ["/", "/etc/passwd"], []),
        (".", [".", "src/a"], []),
        ("./", [".", "src/a"], ["/etc"]),
        ("[!A]*", ["banana"], []),
    ],
)
def test_a_pattern_that_refuses_is_wide(glob: str, fits: list[str], does_not_fit: list[str]) -> None:
    assert [path for path in fits + does_not_fit if wide(glob, path)] == fits


_pieces = st.sampled_from(["a", "B", "\xdf", "*", "?", "**", "/", "[ab]", "[!a]", "[A-C]", ".", "\ufb01", "e\u0301"])
_globs = st.lists(_pieces, min_size=1, max_size=6).map("".join).filter(lambda glob: ".." not in glob)
_paths = st.lists(
    st.sampled_from(["a", "A", "b", "B", "\xdf", "x", "/", ".", "\ufb01", "e\u0301"]), min_size=1, max_size=6
)


@given(_globs, _paths.map("".join))
def test_what_an_allow_of_a_pattern_covers_a_deny_of_it_refuses(glob: str, path: str) -> None:
    situation = CallContext(run_id="run_1", workspace="/nowhere/project")
    event = example_event("edit_file", {"path": path}, situation)
    allow, deny = (RulePolicy([Rule(id="r", verdict=said, path=glob)]) for said in ("allow", "deny"))

    if allow.evaluate(event).verdict == "allow":
        assert deny.evaluate(event).verdict == "deny"


@each(
    ("glob", "fits", "does_not_fit"),
    [
        ("*", ["", "a", "a/b", "a\nb"], []),
        ("a*c", ["ac", "a/b/c", "a\nc"], ["abcd"]),
        ("a?c", ["abc", "a/c", "a\nc"], ["ac", "abbc"]),
        ("[!a]c", ["bc", "/c"], ["ac"]),
        ("[ab]", ["a"], ["A", "ab"]),
        ("a\nb", ["a\nb"], ["ab"]),
        ("a.c", ["a.c"], ["abc"]),
        ("", [""], ["a"]),
    ],
)
def test_a_text_glob_is_the_whole_text_and_a_slash_is_a_character(
    glob: str, fits: list[str], does_not_fit: list[str]
) -> None:
    whole = compile_regex(glob_to_regex(glob))

    assert [text for text in fits + does_not_fit if whole.fullmatch(text)] == fits


def test_a_regular_expression_is_found_anywhere_unless_it_is_anchored() -> None:
    def verdict(pattern: str, value: object) -> str:
        policy = RulePolicy([Rule(id="r", verdict="deny", arguments={"x": ArgumentRegex(pattern)})])
        return policy.evaluate(example_event("t", {"x": value})).verdict

    assert verdict("b+", "abbc") == "deny"
    assert verdict("^b+$", "abbc") == "allow"
    assert verdict("a.c", "a\nc") == "deny"
    assert verdict("(?i)ABC", "xabcx") == "deny"
    assert [verdict("1", value) for value in (1, None, {"1": "1"}, True)] == ["allow"] * 4


@each("pattern", ["(", "a{2,1}", "[z-a]", "(?=a)", r"(a)\1", "(?<!a)b", "*", "a" * 2_001, "((a{999}){999}){9}"])
def test_what_is_no_re2_pattern_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        compile_regex(pattern)
    with pytest.raises(ConfigurationError, match=re.escape("Rule 'r': ")):
        RulePolicy([Rule(id="r", verdict="deny", arguments={"x": ArgumentRegex(pattern)})])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "(a*)*(a*)*(a*)*b", "([a-z]+)*[0-9]"])
def test_no_text_makes_a_pattern_slow(pattern: str) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", arguments={"x": ArgumentRegex(pattern)})])
    event = example_event("t", {"x": "a" * 100_000 + "!"})
    before = process_time()
    policy.evaluate(event)

    assert process_time() - before < 2


def test_globs_with_many_stars_are_not_slow_either() -> None:
    rules = [Rule(id="text", verdict="deny", arguments={"path": ArgumentGlob("*a" * 100 + "b")})]
    rules += [Rule(id=f"path {at}", verdict="deny", path=f"**/a{at}/**/*a*a*a*a*b/**") for at in range(100)]
    event = example_event("read_file", {"path": "/".join(["a" * 200] * 20)})
    before = process_time()
    decision = RulePolicy(rules).evaluate(event)

    assert decision.verdict == "allow"
    assert process_time() - before < 5


@pytest.mark.parametrize("script", ["cat " + "=a/" * 20_000, "cat " + "a/" * 30_000, "cat " + "a " * 30_000])
def test_no_script_makes_a_rule_about_a_path_slow(script: str) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", path="secrets/**")])
    event = example_event("bash", {"command": script}, CallContext(run_id="run_1", workspace="/nowhere/project"))
    before = process_time()
    policy.evaluate(event)

    assert process_time() - before < 2


def test_many_patterns_are_matched_at_once() -> None:
    patterns = PatternSet([path_glob_to_regexes(glob, wide=False)[0] for glob in ("*.py", "src/**", "x", "**")])

    assert sorted(patterns.find_matches("r:src/a.py")) == [0, 1, 3]
    assert list(PatternSet(path_glob_to_regexes("x", wide=False)).find_matches("r:y")) == []


def test_texts_that_a_file_system_may_take_for_the_same_are_folded_to_one() -> None:
    assert len({fold_text(text) for text in ("CAF\xc9", "cafe\u0301", "\uff43af\xe9")}) == 1
    assert fold_text("\ufb01le") == "file"
