"""Options that mean the same in every command."""

from typing import Annotated, TypeAlias

import typer

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: the result as JSON.")]
