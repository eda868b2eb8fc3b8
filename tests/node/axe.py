"""axe, which finds what people with disabilities cannot use on a page: a script that is run in the page itself."""

from pathlib import Path

import pytest

from tests.node.install import PAGE_TOOLS, NoRegistryError, found


def axe_script() -> Path:
    """With Playwright: `page.evaluate(axe_script().read_text())`, which a content security policy does not stop, then
    `page.evaluate("axe.run()")`, whose `violations` should be empty."""
    program = found(PAGE_TOOLS)
    if isinstance(program, NoRegistryError):
        pytest.skip(str(program))
    return PAGE_TOOLS.folder / "node_modules" / "axe-core" / "axe.min.js"
