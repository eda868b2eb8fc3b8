"""The site builds without a network, has every page, and describes every public name."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from scripts.docs import PACKAGES
from tests.patience import HANG_SECONDS

from .pages import ROOT, text_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=4 * HANG_SECONDS, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_every_page_has_a_place_in_the_navigation(site: Path) -> None:
    listed = re.findall(r"[\w/-]+\.md", text_of("mkdocs.yml"))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    assert [name for name in listed if not (site / name.replace(".md", ".html")).exists()] == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=[\"'](https?://[^\"']+)")
    found = {url for page in site.glob("*.html") for url in loaded.findall(page.read_text("utf-8"))}
    assert found == set()


def test_the_api_page_describes_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text("utf-8")
    described = {name.rpartition(".")[2] for name in re.findall(r'id="(interlock[\w.]*)"', page)}
    public = [
        (name, getattr(import_module(package), name)) for package in PACKAGES for name in import_module(package).__all__
    ]
    shown = {id(value) for name, value in public if name in described}
    assert [name for name, value in public if id(value) not in shown] == []


def test_the_configuration_names_no_host() -> None:
    assert "://" not in re.sub(r"^#.*$", "", text_of("mkdocs.yml"), flags=re.MULTILINE)
    assert yaml.safe_load(re.sub(r"!!python\S+", "x", text_of("mkdocs.yml")))["theme"]["font"] is False
