"""The recorded outputs and what is expected of each."""

from pathlib import Path

import msgspec

from interlock.tools.reports.report import CheckReport

FIXTURES = Path(__file__).parent / "fixtures"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    program: str
    case: str
    command: str
    exit_code: int
    report: CheckReport | None

    @property
    def text(self) -> str:
        return (FIXTURES / self.program / f"{self.case}.txt").read_bytes().decode("utf-8", "replace")

    @property
    def name(self) -> str:
        return f"{self.program}/{self.case}"


CASES = msgspec.json.Decoder(Case).decode_lines((FIXTURES / "cases.jsonl").read_bytes())


def case(name: str) -> Case:
    return next(each for each in CASES if each.name == name)
