"""Which programs of a person's shell commands get, and which they do not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.sandbox.workspace.toolchain import AUTO, Toolchain, detect_toolchain
from tests.patience import cpu_seconds_below

Detect = Callable[..., Toolchain]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "home/work/project"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def home(workspace: Path) -> Path:
    return workspace.parent.parent


@pytest.fixture
def detect(workspace: Path, home: Path) -> Detect:
    """Detect with these variables, and an empty `PATH` unless one is given."""

    def run(*path: Path | str, wanted: tuple[str, ...] = (AUTO,), **variables: object) -> Toolchain:
        given = {name: str(value) for name, value in variables.items()}
        environ = {"HOME": str(home), "PATH": ":".join(map(str, path)), **given}
        return detect_toolchain(str(workspace), environ, wanted)

    return run


def program(place: Path) -> Path:
    """Write an executable file, and return its folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    return place.parent


def environment(place: Path, home: Path | str, version: str = "3.12.1") -> Path:
    program(place / "bin/python")
    (place / "lib").mkdir()
    (place / "pyvenv.cfg").write_text(f"home = {home}\nversion = {version}\n")
    return place


def pyenv(home: Path, *versions: str) -> Path:
    root = home / ".pyenv"
    for version in versions:
        program(root / "versions" / version / "bin/python")
        (root / "versions" / version / "lib").mkdir()
    program(root / "shims/python")
    return root


def managers(found: Toolchain) -> dict[str, str]:
    """The version by manager, without what is put on `PATH` for every workspace."""
    return {part.manager: part.version for part in found.parts if part.folders}


def test_active_environment_with_its_python(detect: Detect, tmp_path: Path) -> None:
    base = program(tmp_path / "opt/python/bin/python3.12")
    venv = environment(tmp_path / "envs/web", base)

    found = detect("/usr/bin", VIRTUAL_ENV=venv)

    assert found.path[0] == f"{venv}/bin"
    assert {f"{venv}/bin", f"{venv}/lib", str(base)} <= set(found.folders)
    assert found.environment["VIRTUAL_ENV"] == str(venv)
    assert found.problems == ()


def test_settings_beside_programs_are_not_mounted(detect: Detect, tmp_path: Path) -> None:
    venv = environment(tmp_path / "envs/web", "/usr/bin")
    (venv / "pip.conf").write_text("index-url = https://user:password@index\n")

    found = detect(VIRTUAL_ENV=venv)

    assert str(venv) not in found.folders
    assert not any("pip.conf" in folder for folder in found.folders)


@pytest.mark.parametrize(
    ("chosen", "variable", "expected"),
    [
        ("", "", "3.12.1"),
        ("3.11.7\n", "", "3.11.7"),
        ("3.11 # newest\n", "", "3.11.10"),
        ("3.11.7\n", "3.12.1", "3.12.1"),
    ],
)
def test_pyenv_version_of_project(detect: Detect, home: Path, *, chosen: str, variable: str, expected: str) -> None:
    root = pyenv(home, "3.11.7", "3.11.10", "3.12.1")
    (root / "version").write_text("3.12.1\n")
    if chosen:
        (home / "work/project/.python-version").write_text(chosen)

    found = detect(root / "shims", root / "bin", PYENV_VERSION=variable)

    assert managers(found) == {"pyenv": expected}
    assert found.find_program("python") == f"{root}/versions/{expected}/bin/python"
    assert str(root / "shims") not in found.path


def test_node_rust_and_conda_are_found(detect: Detect, home: Path, tmp_path: Path) -> None:
    nvm = program(home / ".nvm/versions/node/v20.1.0/bin/node")
    cargo = program(home / ".cargo/bin/cargo")
    (home / ".cargo/credentials.toml").write_text("token")
    (home / ".rustup/toolchains").mkdir(parents=True)
    conda = environment(tmp_path / "conda/envs/ml", "/usr/bin")

    found = detect(nvm, cargo, conda / "bin", CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="ml")

    assert managers(found) == {"nvm": "v20.1.0", "rustup": "", "conda": "ml"}
    assert found.variables["RUSTUP_HOME"] == f"{home}/.rustup"
    assert str(home / ".cargo") not in found.folders


def test_shims_become_the_chosen_programs(detect: Detect, home: Path, workspace: Path) -> None:
    mise = home / ".local/share/mise"
    program(mise / "installs/node/20.1.0/bin/node")
    program(mise / "shims/node")
    program(home / ".volta/tools/image/node/18.2.0/bin/node")
    program(home / ".volta/bin/node")
    (workspace / ".tool-versions").write_text("nodejs 20\npython system\n")
    (workspace / "package.json").write_text('{"volta": {"node": "18.2.0"}}')

    found = detect(mise / "shims", home / ".volta/bin")

    assert managers(found) == {"mise": "nodejs 20.1.0", "volta": "18.2.0"}


def test_keys_of_this_process_stay_out(detect: Detect) -> None:
    found = detect("/usr/bin", OPENAI_API_KEY="k", INTERLOCK_MODEL="m", PYTHONPATH="/x", LD_PRELOAD="x", TZ="UTC")

    assert set(found.environment) == {"PATH", "TZ"}


def test_programs_of_the_workspace_are_never_mounted(detect: Detect, workspace: Path) -> None:
    environment(workspace / ".venv", "/usr/bin")
    tools = program(workspace / "tools/make")

    found = detect(tools, VIRTUAL_ENV=workspace / ".venv")

    assert found.path[:3] == (f"{workspace}/.venv/bin", f"{workspace}/node_modules/.bin", str(tools))
    assert found.folders == ()


@pytest.mark.parametrize("place", [".ssh", "", "work", ".pyenv/versions", ".pyenv/versions/../.."])
def test_project_cannot_choose_a_folder(detect: Detect, home: Path, workspace: Path, place: str) -> None:
    """The `home` of an environment in the workspace is what a model may have written."""
    program(home / place / "bin/python")
    environment(workspace / ".venv", f"{home / place}/bin")

    found = detect("/usr/bin")

    assert found.folders == ()
    assert any("its Python is in" in problem for problem in found.problems)


def test_project_may_choose_an_installed_python(detect: Detect, home: Path, workspace: Path) -> None:
    base = program(home / ".local/share/uv/python/cpython-3.12.5/bin/python3.12")
    alias = home / ".local/share/uv/python/cpython-3.12"
    alias.symlink_to("cpython-3.12.5")
    environment(workspace / ".venv", alias / "bin")

    assert {str(base), f"{alias}/bin"} <= set(detect("/usr/bin").folders)


def test_project_may_choose_a_python_on_path(detect: Detect, home: Path, workspace: Path, tmp_path: Path) -> None:
    base, mine = program(tmp_path / "opt/conda/bin/python3.12"), program(home / "bin/python")
    (home / "lib").mkdir()

    environment(workspace / ".venv", base)
    assert str(base) in detect(base, mine).folders
    (workspace / ".venv/pyvenv.cfg").write_text(f"home = {mine}\n")
    assert not any(folder.startswith(str(home)) for folder in detect(base, mine, TZ="UTC").folders)


@pytest.mark.parametrize("content", ["../../../.ssh", "/etc", "\0", "9.9.9", "-x", "3.11.7/../../x", "a" * 100_000])
def test_bad_version_files_choose_nothing(detect: Detect, home: Path, workspace: Path, content: str) -> None:
    root = pyenv(home, "3.11.7")
    (workspace / ".python-version").write_text(content)

    found = detect(root / "shims")

    assert found.folders == ()
    assert all(problem.isprintable() and len(problem) < 1_000 for problem in found.problems)
    assert found.problems


def test_version_file_may_be_a_pipe(detect: Detect, home: Path, workspace: Path) -> None:
    root = pyenv(home, "3.11.7")
    os.mkfifo(workspace / ".python-version")

    assert detect(root / "shims").folders == ()


def test_broken_links_are_reported(detect: Detect, home: Path, tmp_path: Path) -> None:
    root = pyenv(home, "3.11.7")
    (root / "versions/gone").symlink_to(tmp_path / "nowhere")
    (root / "version").write_text("gone\n")
    (tmp_path / "tools").symlink_to(tmp_path / "nowhere")

    found = detect(root / "shims", tmp_path / "tools", tmp_path / "never-existed")

    assert found.folders == ()
    assert [problem.split(":")[0] for problem in found.problems] == [
        f"{root}/versions/gone",
        f"{root}/versions/gone",
        f"{tmp_path}/tools",
    ]


def test_version_that_leads_elsewhere_is_refused(detect: Detect, home: Path, tmp_path: Path) -> None:
    root = pyenv(home, "3.11.7")
    program(tmp_path / "elsewhere/bin/python")
    (root / "versions/x").symlink_to(tmp_path / "elsewhere")
    (root / "version").write_text("x\n")

    found = detect(root / "shims")

    assert found.folders == ()
    assert "leads to" in found.problems[0]


@pytest.mark.parametrize("shared", ["opt/tool/bin", "opt/tool", "opt"])
def test_folders_that_all_can_write_are_not_mounted(detect: Detect, tmp_path: Path, shared: str) -> None:
    tool = program(tmp_path / "opt/tool/bin/tool")
    (tmp_path / shared).chmod(0o777)

    found = detect(tool)

    assert found.folders == ()
    assert f"every user can write to {tmp_path / shared}" in found.problems[0]
    assert found.find_program("tool") == ""


def test_home_itself_is_never_mounted(detect: Detect, home: Path) -> None:
    program(home / "bin/mine")
    program(home / ".local/bin/ruff")
    (home / ".local/share/keyrings").mkdir(parents=True)

    found = detect(home / "bin", home / ".local/bin", home, ".", "bin")

    assert found.folders == (f"{home}/.local/bin",)
    assert any("Name it in the setting toolchain" in problem for problem in found.problems)
    assert detect(wanted=(f"{home}/bin",)).folders == (f"{home}/bin",)


def test_setting_replaces_what_is_found(detect: Detect, home: Path, tmp_path: Path) -> None:
    nvm = program(home / ".nvm/versions/node/v20.1.0/bin/node")
    mine = program(tmp_path / "opt/mine/bin/tool")

    assert detect(nvm, wanted=()).parts == ()
    assert detect(nvm, wanted=(str(mine),)).path[0] == str(mine)
    both = detect(nvm, wanted=(str(mine), AUTO))
    assert both.find_program("tool")
    assert both.find_program("node")


def test_thousands_of_versions_are_bounded(detect: Detect, home: Path, workspace: Path) -> None:
    root = pyenv(home, "3.11.7")
    for number in range(6_000):
        (root / f"versions/9.{number}").mkdir()
    (workspace / ".python-version").write_text("9\n" * 5_000)
    entries = [f"/opt/none/{number}" for number in range(3_000)]

    with cpu_seconds_below(1):
        found = detect(root / "shims", *entries)

    assert len(found.folders) < 100
    assert len(found.problems) <= 20
    assert any("versions; not all were seen" in problem for problem in found.problems)


def test_detection_is_fast_and_cached(detect: Detect, home: Path) -> None:
    """The target is 50 ms; the CPU time of one detection is about 3 ms."""
    root = pyenv(home, *(f"3.{minor}.{patch}" for minor in range(20) for patch in range(10)))
    (root / "version").write_text("3.12\n")

    with cpu_seconds_below(0.05):
        found = detect(root / "shims", "/usr/local/bin", "/usr/bin", home / ".cargo/bin")

    assert detect(root / "shims", "/usr/local/bin", "/usr/bin", home / ".cargo/bin") is found
