"""SKILL.md: what is read of it, and that nothing else than a skill gets through."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from interlock import ConfigurationError
from interlock.tools.skills import skill_text
from interlock.tools.skills.skill_text import MAX_DESCRIPTION_CHARS, MAX_FRONT_MATTER_CHARS, parse_skill
from tests.each import each

PATH = "skills/x/SKILL.md"


@pytest.fixture(autouse=True, params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser in C is not in every build of the library."""
    monkeypatch.setattr(skill_text, "_LOADER", getattr(yaml, request.param))


def _skill(front: str, body: str = "Do it.\n") -> bytes:
    return f"---\n{front}\n---\n{body}".encode()


def test_all_keys_of_the_format_are_taken_and_two_are_used() -> None:
    front = (
        "name: pdf-forms\ndescription: >-\n  Fill forms:\n  read, write.\nlicense: Apache-2.0\ncompatibility: git\n"
        "allowed-tools: Read Bash(git:*)\nmetadata:\n  author: ana\n  tags: [a, {b: c}]\nversion: 1.0"
    )
    found = parse_skill(_skill(front), PATH)

    assert (found.name, found.description, found.instructions) == ("pdf-forms", "Fill forms: read, write.", "Do it.")


@each(
    ("front", "description"),
    [
        ("name: x\ndescription: plain text", "plain text"),
        ('name: x\ndescription: "Use when: asked # really"', "Use when: asked # really"),
        ("name: 'x'\ndescription: 'it''s'", "it's"),
        ("name: x\ndescription: |\n  two\n  lines\n", "two\nlines"),
        ("description: 12  # as written\nname: x", "12"),
        ("name: x\ndescription: no", "no"),
        ("{name: x, description: flow}", "flow"),
    ],
)
def test_values_are_the_text_that_was_written(front: str, description: str) -> None:
    found = parse_skill(_skill(front), PATH)
    assert (found.name, found.description) == ("x", description)


def test_a_byte_order_mark_line_endings_and_rules_in_the_text_are_no_matter() -> None:
    content = b"\xef\xbb\xbf---\r\nname: x\r\ndescription: y\r\n--- \r\nOne\r\n---\r\nTwo\r\n"
    assert parse_skill(content, PATH).instructions == "One\n---\nTwo"


def test_a_skill_may_have_no_instructions() -> None:
    assert parse_skill(b"---\nname: x\ndescription: y\n---", PATH).instructions == ""


@each(
    ("content", "words"),
    [
        (b"", "line 1: it has to begin with '---'"),
        (b"# Notes\n", "line 1: it has to begin with '---'"),
        (b"---\nname: x\n", "the front matter has no end"),
        (b"---\nname: x\n\xff\n---\n", "line 3: it is not UTF-8"),
        (b"---\nname: x\n---\n\n\0", "line 5: it holds a NUL"),
        (_skill(""), "has to be lines of 'key: value'"),
        (_skill("- name: x"), "line 2: the front matter has to be lines of 'key: value'"),
        (_skill("just words"), "has to be lines of 'key: value'"),
        (_skill("name: x"), "the front matter has no 'description'"),
        (_skill("description: y"), "the front matter has no 'name'"),
        (_skill("name: x\ndescription:"), "'description' has to be a text"),
        (_skill("name: x\ndescription: '  '"), "'description' has to be a text"),
        (_skill("name: [x]\ndescription: y"), "'name' has to be a text"),
        (_skill("name: x\nname: z\ndescription: y"), "line 3: this key is there twice"),
        (_skill("? [a]\n: b\nname: x"), "line 2: a key has to be a word"),
        (_skill("name: x\ndescription: Use when: asked"), "line 3: this is not YAML .* needs quotes"),
        (_skill("name: x\ndescription: 'open"), "this is not YAML"),
        (_skill("name: x\ndescription: y\n...\nname: z"), "ends here, and something follows|this is not YAML"),
        (_skill("name: x\ndescription: y\n--- z"), "line 4: the front matter ends here, and something follows"),
        (_skill("name: x\ndescription: &a y"), "line 3: anchors, aliases and tags"),
        (_skill("name: &a x\ndescription: *a"), "line 2: anchors, aliases and tags"),
        (_skill("name: !!python/name:os.system x\ndescription: y"), "line 2: anchors, aliases and tags"),
        (_skill("name: x\ndescription: y\n<<: *a"), "line 4: anchors, aliases and tags"),
        (_skill("%YAML 1.1\nname: x\ndescription: y"), "has to be lines of 'key: value'"),
        (_skill('name: x\ndescription: "\\UFFFFFFFF"'), "this is not YAML"),
        (_skill("name: x\ndescription: \x07y"), "this is not YAML"),
        (_skill(f"name: x\ndescription: {'y' * (MAX_DESCRIPTION_CHARS + 1)}"), "1,025 characters; 1,024 are the most"),
        (_skill(f"name: x\ndescription: y\nz: {'z' * MAX_FRONT_MATTER_CHARS}"), "more than 16,384 characters"),
        (_skill(f"name: x\nz: [{'1,' * 2_500}]"), "holds too much"),
        (_skill(f"name: x\nz: {'[' * 5_000}"), "nested too deep"),
    ],
)
def test_what_is_no_skill_is_refused_with_its_file_and_the_reason(content: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        parse_skill(content, PATH)
    assert str(refused.value).startswith("The skill 'skills/x/SKILL.md' cannot be loaded")


@each("name", ["X", "a_b", "-a", "a-", "a--b", "a b", "../a", "a/b", "ä", "a" * 65, "a\u200bb", "."])
def test_names_are_small_letters_digits_and_single_hyphens(name: str) -> None:
    with pytest.raises(ConfigurationError, match="small letters, digits and single hyphens"):
        parse_skill(_skill(f'name: "{name}"\ndescription: y'), PATH)


PIECES = st.sampled_from(
    [
        *("---\n", "name: x\n", "description: y\n", "- ", ": ", "? ", "&a ", "*a", "!!", "{", "}", "[", "]", '"', "'"),
        *("|\n", ">-\n", "\n", " ", "#", "\\x", "\\u", "%YAML 1.1\n", "...\n", "\t", "\0", "\ud7ff", "\x85", "\u2028"),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=400), TEXTS))
@example(b'name: x\ndescription: "\\ud800"')
def test_whatever_the_bytes_they_are_a_skill_or_a_configuration_error(content: bytes) -> None:
    for skill in (content, b"---\n" + content + b"\n---\n"):
        with suppress(ConfigurationError):
            assert 1 <= len(parse_skill(skill, PATH).description) <= MAX_DESCRIPTION_CHARS
