"""Claims of a final answer about tests and checks, compared with the facts of the run.

Words only ask for the comparison; facts decide it. A claim is a sentence that states as a fact that tests, checks or a
build pass, or that the fix is verified. What is denied, hedged, conditional, planned, asked, quoted or past is none,
nor is what admits a failure in the same breath. It is a list of phrases, and of words that take their force away, for
English only, and it errs on the side of silence.

`_CLAIMS` finds the phrases in the plain form of a sentence. Then the words around one are looked at, back to where a
new thought, clause or part begins: a negation reaches less far than a hedge, and a hedge less far than a condition.

Every pattern goes over at most a sentence, with bounded or possessive repeats: the work is linear in the answer. They
are compiled when first used.
"""

import re

from ..domain.rendering import neutralize
from ..domain.state.verification import Verification
from .sentences import Sentence, normalize_signs, split_sentences

MAX_CLAIM_CHARS = 300

_B, _E = r"(?<![\w/-])", r"(?![\w-])"


def _word(*words: str) -> str:
    return f"{_B}(?:{'|'.join(words)}){_E}"


#: What is said to pass: a word for it, the name of a program, or a path.
_TESTS = (
    _word(
        r"(?:unit|doc)?tests?|testsuite|test_\w+|suites?|specs?|test-?cases?|builds?|ci|pipelines?|compilation",
        r"pytest|unittest|jest|vitest|mocha|rspec|tox|nox|mypy|pyright|ruff|flake8|pylint|eslint|tsc|clippy",
        r"lint(?:ers?|ing)?|type-?check(?:s|ers?|ing)?|(?<=type )check(?:er|ing)?",
        r"(?<!test )(?<!tests )(?<!suite )checks|(?<=make )check|(?<=lint )check",
    )
    + r"(?:[/.:]\S++)?"
)
#: What may stand before it.
_WHICH = (
    r"(?:(?:all|of|the|every|each|both|its|our|your|their|my|any|these|those|full|whole|entire|complete|single|existing|new"
    r"|more|other|remaining|affected|related|unit|integration|regression|static|local|e2e|end-to-end|python|project's"
    r"|project|type|test|npm|go|cargo|make|run|ruff|\d+(?:/\d+)?) )*"
)
#: What may stand between it and a state such as `green`.
_GAP = (
    r"(?: (?:is|are|was|were|been|has|have|remains?|stays?|comes?|came|turn(?:s|ed)|went|goes|looks?|runs?|ran|all|both"
    r"|now|also|again|complete|done|still|once|more|then|back|to|in|a|and|fully|completely|currently|finally|locally|together|it's|they're"
    r"|status|results?|suite|job|pipeline|ci|tests?|lint|checks|build|100%|\d+|[:,]))*?"
)
_PASSING = r"(?:pass(?:es|ed|ing)?|green|succeed(?:s|ed)?)"
#: `The tests pass a mock to it` is about something else.
_NO_DIRECT_OBJECT = (
    r"(?! (?:an?|the|it|them|its|their|none|null|true|false|to|into|as(?! (?:well|expected|intended))|by|through|along"
    r"|over|in an?|arguments?|args|values?|params|data|rates?)(?![\w-]))"
)
_FAILING = r"fail(?:s|ed|ing|ures?)?"
_TROUBLE = r"(?:errors?|issues?|problems?|warnings?|failures?|complaints?|violations?|findings)"
_FIX = r"(?:fix(?:es)?|bugfix|changes?|patch|solution|correction|implementation)"
_RUN = r"(?:ran|runs?|completed?|completes|finish(?:es|ed)|executed?|builds?|built|compile[sd]?)"
_FEW_WORDS = rf"(?: (?!{_TESTS}|;)\S++){{0,5}}?"

#: Every phrase has one of these, and most sentences have none.
_QUICK_FILTER = (
    r"pass|green|succe|clean|ok|fine|work|fail|error|issue|problem|warning|complain|violation|finding|exit|verified|tested"
    r"|validated|confirmed|✅"
)
#: Phrases that claim. A named group `none` begins where a phrase has its own negation.
_CLAIMS = (
    # All tests in the new folder now pass.
    rf"{_TESTS}(?P<gap>(?: (?!{_TESTS}|;)\S++){{0,12}}?) (?:pass(?:es|ed)?|succeed(?:s|ed)?){_E}{_NO_DIRECT_OBJECT}",
    # The build is green.
    rf"{_TESTS}{_GAP} (?:passing|green|clean|successful|ok|okay|fine|working|works?){_E}(?! (?:up|out|on|the|an?){_E})",
    # It passes all 12 tests.
    rf"(?<! a)(?<! an)(?<! first)(?<! second)(?<! to)(?<! that) (?:pass(?:es|ed)?|(?<=is )passing|(?<=now )passing)"
    rf" {_WHICH}{_TESTS}(?! (?:to|into|as){_E})",
    # 5 passed. All 12 pass. 12/12 green.
    rf"{_B}(?:[1-9]\d*|(?P<of>\d+)(?:/| of | out of )(?P=of)) "
    rf"(?:(?:are|now|have|were) )*{_PASSING}{_E}{_NO_DIRECT_OBJECT}",
    # Everything passes. All green.
    rf"{_B}(?:everything|all)(?: (?:of|them|it|is|are|now|has|have|was|were|else|back|to|still))*"
    rf" {_PASSING}{_E}{_NO_DIRECT_OBJECT}",
    # I ran the tests and they pass.
    rf"{_TESTS}.{{0,200}}? (?:they|it|both|these|, which|they're|it's)(?: (?:is|are|now|all|also|both|has|have))*"
    rf" {_PASSING}{_E}{_NO_DIRECT_OBJECT}",
    # No failures. No test fails. 0 failed.
    rf"{_B}(?P<none>no|zero|0|none of|not a single|not one|without|without any) {_WHICH}(?:{_TESTS} )?"
    rf"(?:(?:has|have) )?{_FAILING}{_E}(?! (?:modes?|handling|cases?|paths?|messages?|reasons?){_E})",
    # The tests no longer fail.
    rf"{_TESTS}{_FEW_WORDS} (?P<none>no longer|never|not) fail(?:s|ed|ing)?{_E}",
    # mypy reports no errors. No lint errors.
    rf"{_TESTS}{_FEW_WORDS} (?P<none>no|0|zero|without|without any) (?:\S++ )?{_TROUBLE}{_E}",
    rf"{_B}(?P<none>no|0|zero) (?:lint(?:er|ing)?|type|typing|mypy|ruff|build|compiler|test) {_TROUBLE}{_E}",
    # The tests ran successfully.
    rf"{_TESTS}(?: (?!;)\S++){{0,6}}? {_RUN}(?: \S++)? (?:successfully|cleanly){_E}",
    rf"{_B}(?:ran|reran|executed) {_WHICH}{_TESTS} (?:successfully|cleanly){_E}",
    rf"{_B}successfully (?:ran|reran|executed|built|compiled) {_WHICH}(?:{_TESTS}|project|code|app){_E}",
    rf"{_word('project|code|package|app|application|everything|it')}(?: now)? (?:builds|compiles|built|compiled)"
    rf" (?:successfully|cleanly|(?P<none>without) (?:any )?{_TROUBLE}){_E}",
    # Exit code 0.
    rf"{_B}(?P<exit>exit)(?:s|ed)?(?:[ _-](?:code|status))?(?: (?:with|of|is|was|:|code|status|an?))* 0{_E}"
    rf"(?! (?:means|indicates|for|when|instead){_E})",
    # The fix is verified.
    rf"{_B}{_FIX}{_GAP} (?:verified|validated|tested){_E}",
    rf"{_B}(?:verified|validated|confirmed|tested)(?: that)? (?:(?:the|this|my|our|these) )*{_FIX}{_E}",
    rf"{_B}(?:fixed|done|implemented|changed|corrected|works)(?: it)? (?:and|,) (?:\S+ly )?verified{_E}",
    rf"{_B}verified(?: \S++){{0,2}}? (?:by|with|via|using|through|against)(?: \S++){{0,4}}? {_TESTS}",
    rf"{_B}tested (?:\S++ ){{0,4}}?and (?:(?:it|everything|all|that) )?(?:now )?(?:works|working){_E}",
    # A check mark beside the tests.
    rf"✅ {_WHICH}{_TESTS}(?: suite)?(?= $| [,;:(✅])",
    rf"(?:^| [,;:(✅]) {_WHICH}{_TESTS}(?: suite)?(?: :)? ✅",
)

#: Where a condition ends; where a hedge or an aim does, too; and a negation.
_NEW_THOUGHT = r" (?:;|but|however|although|though|yet|while|whereas)(?= )"
_NEW_CLAUSE = (
    rf"{_NEW_THOUGHT}| (?:[,:()]|and(?= (?:now |also |then )?(?:all|the|every|everything|both|it|they|\d+) ))(?= )"
)
_NEW_PART = rf"{_NEW_CLAUSE}| (?:and|because|since|so|where)(?= )"

_CONDITION = _word(
    r"if|unless|until|till|whether|whenever|assuming|provided|as long as|in case|suppose",
    r"criteri(?:a|on)|requirements?|todo",
)
_AIM = _word(
    r"make(?! (?:test|check|lint|ci|verify)(?! (?:pass|succeed|green) ) )|making|get|getting|ensure|ensuring",
    r"let|letting|keep|try|write|aim|goal|want(?:s|ed)?|needs?|please|requires?|to be",
    r"in order|so that|(?<!, )so(?! (?:now|far))",
    r"(?<!can )(?<!now )(?<!also )(?:verify|check|confirm|see)(?= (?:that|the|all|your|every|it|they|no|\d+) )",
)
#: Running something in order to see it counts as having seen it.
_RAN_FOR_IT = r"(?:ran|reran|re-ran|executed) .*to (?:verify|confirm|check|see|make sure)"
_HEDGE = _word(
    r"should|would|could|might|may|will|i'll|it'll|they'll|shall|must|ought|supposed|going to|plan(?:s|ned)?",
    r"expect(?:s|ed|ing)?|hope(?:s|fully)?|hoping|believe|think|guess|suspect|assume[sd]?|intend(?:s|ed)?|confident",
    r"probably|likely|possible|doubt|waiting|perhaps|maybe|presumably|possibly|seems?|appears?|theory|theoretically",
    r"can(?! (?:also |now )?(?:confirm|report|say|see) )",
    # What others say.
    r"(?:you|user|issue|ticket|readme|comment|docs?|documentation|message|author|he|she)"
    r" (?:says?|said|claim(?:s|ed)|asked|states?|stated|wrote|reported|told|mention(?:s|ed))",
)
_NEGATION = (
    _word(
        r"not|no|never|none|neither|nor|without|nothing|nobody|hardly|barely|unable|instead of|rather than|unclear",
        r"unknown|only|some|most|mostly|many|several|few|half|almost|nearly|partly|partially|except",
    )
    + "|❌"
)
_PAST = (
    r"(?<!failed )(?<!failing )(?<!broken )"
    + _word(r"previously|originally|initially|earlier|before|beforehand|used to|formerly|yesterday|had")
    + r"(?! (?:failing|failed|broken|red) )"
)
#: With a verb in the present these are conditions, too: `once the tests pass`.
_WHEN = _word(r"once|when|as soon as|after")
_PRESENT = _word(r"pass(?:es)?|succeeds?|green|passing|clean|ok") + r" ?$"
#: What tests do to something else: `the test checks that valid input passes`; and `tests that pass`, which are some.
_ABOUT_ELSE = _word(r"verif(?:y|ies)|asserts?|ensures?|expects?|covers?|proves?|checks?|confirms?") + (
    r"|(?<!,) (?:that|which)$|(?<!continue)(?<!continues)(?<!continued) to$"
)
#: What may follow and take it back.
_RETRACTION = (
    r"^(?: (?![,;])\S++){0,6}? (?:before(?! and after)|previously|earlier|prior|originally|yesterday"
    r"|if|once|unless|until|provided|assuming|as long as|on (?:main|master)|without (?:my|this|your|these)"
    r"|only (?:if|when|on|with))(?= )"
    r"|^(?: \S++){0,6}? (?:except|apart from|aside from|other than|but (?:one|two|three|\d+|some|not|a few))(?= )|"
) + _word(
    r"i (?:think|believe|guess|hope|suspect|assume)|hopefully|presumably|probably|in theory",
    r"sometimes|half|intermittently|you say",
)
#: `3 of 5`: not all.
_PARTIAL = rf"{_B}(\d+)(?:/| of | out of )(?!\1{_E})\d+{_E}|{_B}0 (?:tests )?pass"
#: The same sentence says that something fails now.
_ADMISSION = (
    rf"{_B}(?:still|are|is|remains?|keeps?) (?:\S++ )?(?:failing|red|broken){_E}"
    rf"|(?<!longer )(?<!not )(?<!never )(?<!to )(?<!would )(?<!could )(?<!did ){_B}(?:fail|fails){_E}(?! without)"
    rf"|{_B}[1-9]\d*(?: (?!pass)\S++)?? (?:failed|failing|failures?|errors?|errored){_E}"
    rf"|(?:failed|failures?|failing|errors?) : [1-9]"
)
#: A sentence that has an exit code and no test in it must be short to be about one.
_MAX_BARE_EXIT_WORDS = 8
_ADVICE = {
    "failed": "Run it again once that is fixed, or correct the answer.",
    "stale": "Run it again, or correct the answer.",
    "none": "Run the tests, or say in the answer that they were not run.",
}


def find_claim(text: str) -> str:
    """Return the first sentence that claims that tests or checks pass or that the fix is verified; empty when none
    does.
    """
    if not re.search(_QUICK_FILTER, normalize_signs(text)):  # no sentence has one of the words, either
        return ""
    for sentence in split_sentences(text):
        if not re.search(_QUICK_FILTER, sentence.plain):
            continue
        if any(_is_stated(sentence, match) for pattern in _CLAIMS for match in re.finditer(pattern, sentence.plain)):
            return sentence.text[:MAX_CLAIM_CHARS]
    return ""


def describe_contradiction(claim: str, verification: Verification) -> str:
    """Return what was claimed, what the facts are and what to do; empty where the facts do not contradict the claim."""
    if not claim or verification.status == "passed":
        return ""
    quoted = " ".join(neutralize(claim[:MAX_CLAIM_CHARS]).split()).replace('"', "'").rstrip(".!:;, ")
    fact = verification.message[:1].lower() + verification.message[1:].rstrip(".")
    return f'The answer says "{quoted}", but {fact}. {_ADVICE[verification.status]}'


def _is_stated(sentence: Sentence, match: "re.Match[str]") -> bool:
    """Return True if the match is stated as a fact, by the author, and about now."""
    plain, start, end, groups = sentence.plain, match.start(), match.end(), match.groupdict()
    if sentence.is_question or sentence.is_quoted(start, end):
        return False
    if groups.get("exit") and plain.count(" ") > _MAX_BARE_EXIT_WORDS + 1 and not re.search(_TESTS, plain):
        return False
    if groups.get("gap") and re.search(_ABOUT_ELSE, match["gap"]):
        return False
    none = match.start("none") if groups.get("none") else -1
    return not (
        _is_denied(plain, start, none if none >= 0 else end)
        or _is_unsure(plain, start, end)
        or re.search(_RETRACTION, plain[end:])
        or _admits_failure(plain if none < 0 else plain[:start] + plain[end:])
    )


def _is_denied(plain: str, start: int, end: int) -> bool:
    part = plain[_last_boundary(_NEW_PART, plain, start) : end].rpartition(" and ")[2]
    return re.search(_NEGATION, part) is not None or re.search(_PARTIAL, plain) is not None


def _is_unsure(plain: str, start: int, end: int) -> bool:
    thought = plain[_last_boundary(_NEW_THOUGHT, plain, start) : end]
    clause = plain[_last_boundary(_NEW_CLAUSE, plain, start) : end]
    if re.search(_CONDITION, thought) or re.search(_HEDGE, clause):
        return True
    if re.search(_AIM, thought if " now " not in thought else clause) and not re.search(_RAN_FOR_IT, thought):
        return True
    if re.search(_WHEN, clause) and re.search(_PRESENT, clause):
        return True
    return re.search(_PAST, clause.rpartition(" now ")[2]) is not None


def _admits_failure(plain: str) -> bool:
    for found in re.finditer(_ADMISSION, plain):
        clause = plain[_last_boundary(_NEW_CLAUSE, plain, found.start()) : found.start()]
        if not re.search(_PAST, clause) and not re.search(_word("no|none|zero|0"), clause):
            return True
    return False


def _last_boundary(boundary: str, plain: str, before: int) -> int:
    """Return where the words after the last boundary begin."""
    return max((found.end() for found in re.finditer(boundary, plain[: before + 1])), default=0)
