"""The shape of the project: what is loaded when, how long files are, what the map mentions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/antiphon"
LONGEST = {"README.md": 150, "ARCHITECTURE.md": 250, "CONTRIBUTING.md": 150}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("antiphon", {"torch", "numba", "numpy", "asyncio", "antiphon.llm"}),
        ("antiphon.core", {"torch", "numba", "numpy", "asyncio", "msgspec"}),
        ("antiphon.report", {"torch", "numba", "asyncio", "matplotlib"}),
        ("antiphon.sim", {"torch", "numba", "antiphon.live", "antiphon.engine"}),
        ("antiphon.perf", {"torch", "numba", "asyncio", "antiphon.engine", "antiphon.wire"}),
        ("antiphon.text", {"torch", "numba"}),
        ("antiphon.checkpoint", {"torch", "numba"}),
        ("antiphon.live.gateway", {"torch", "numba"}),
        ("antiphon.live.admin", {"torch", "numba"}),
        ("antiphon.live.supervisor", {"torch", "numba", "numpy", "fastapi", "uvicorn", "uvloop"}),
        ("antiphon.cli", {"torch", "numba", "asyncio", "fastapi", "antiphon.live"}),
    ],
)
def test_a_part_loads_no_more_than_it_needs(module: str, never: set[str]) -> None:
    submodules = ", ".join(
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for file in sorted((ROOT / "src" / module.replace(".", "/")).rglob("*.py"))
        if file.name != "__main__.py"
    )
    loaded = loaded_by(f"import {submodules if module != 'antiphon' else module}")
    assert module in loaded
    assert not loaded & never


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("antiphon.live.serve", {"torch", "numba", "numpy", "fastapi", "uvicorn", "uvloop"}),
        ("antiphon.live.admin.client", {"torch", "numba", "fastapi", "uvicorn", "asyncio"}),
        ("antiphon.live.gateway_process", {"torch", "numba"}),
        ("antiphon.live.store_process", {"torch", "fastapi", "tokenizers"}),
        ("antiphon.live.worker_process", {"fastapi", "uvicorn", "tokenizers", "jinja2"}),
    ],
)
def test_a_process_loads_no_more_than_it_needs(module: str, never: set[str]) -> None:
    assert not loaded_by(f"import {module}") & never


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: file.name)
def test_source_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 400


def test_test_files_are_short() -> None:
    files = (ROOT / "tests").rglob("*.py")
    assert [file.name for file in files if len(file.read_text().splitlines()) > 400] == []


@pytest.mark.parametrize(("name", "lines"), LONGEST.items())
def test_pages_are_short(name: str, lines: int) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= lines


def test_folders_are_at_most_three_deep() -> None:
    for file in SOURCE.rglob("*.py"):
        assert len(file.relative_to(SOURCE).parts) <= 4, file


def test_the_map_mentions_every_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {file.parent for file in SOURCE.rglob("*.py")} - {SOURCE}
    for folder in sorted(folders):
        assert f"`{folder.relative_to(SOURCE)}/`" in text, folder


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_version_is_stated_alike() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    stated = re.search(r'^__version__ = "(.+)"$', (SOURCE / "__init__.py").read_text(), re.M)
    assert version
    assert stated
    assert version[1] == stated[1]


def test_every_package_that_is_needed_is_pinned_exactly() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    pinned = {
        line.split("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if re.fullmatch(r"[a-z0-9-]+==[0-9][^,*]*", line)
    }
    lists = re.findall(r"^(?:dependencies|dev) = \[(.*?)^\]", project, re.M | re.S)
    needed = re.findall(r'"([a-z0-9-]+)', "".join(lists))
    assert len(needed) > 20
    assert set(needed) <= pinned
    assert "torch" in pinned
