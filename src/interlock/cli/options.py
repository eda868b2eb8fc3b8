"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from ..domain.tool import PermissionMode

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: the result as JSON.")]

ModelOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="The model.", show_default=False)]
ProviderOption: TypeAlias = Annotated[
    Literal["openai", "anthropic"] | None,
    typer.Option(help="How the model is spoken to. openai: and all that are compatible.", show_default=False),
]
BaseUrlOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="The model's server.", show_default=False)
]
ModeOption: TypeAlias = Annotated[
    PermissionMode | None, typer.Option(help="How much it may do without asking.", show_default=False)
]
PolicyOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your policy file, instead of the usual one.", show_default=False)
]
WorkspaceOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder to work in. Default: this one.", show_default=False)
]
ScriptOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Answers of a model from a file, instead of a model.", show_default=False),
]
HeadlessOption: TypeAlias = Annotated[
    bool, typer.Option("--headless", help="Ask nobody here: a question pauses the run until somebody answers.")
]
MaxStepsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many answers with calls it may give.", show_default=False)
]
MaxModelCallsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How often it may ask the model.", show_default=False)
]
MaxToolCallsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many calls it may make.", show_default=False)
]
MaxSecondsOption: TypeAlias = Annotated[
    float | None, typer.Option(min=0.001, metavar="S", help="How long it may take.", show_default=False)
]
MaxTokensOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many tokens it may use.", show_default=False)
]
MaxCostOption: TypeAlias = Annotated[
    float | None, typer.Option(min=0.000001, metavar="C", help="What it may cost.", show_default=False)
]


def collect_options(**options: object) -> dict[str, str]:
    """Return the given options as written."""
    return {name: str(value) for name, value in options.items() if value is not None}
