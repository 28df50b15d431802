"""What is published: the sdist holds all that is needed and nothing else, and the wheel built from it works.

The wheel is installed beside the packages that are here; for `make peers` into an empty environment, with the newest
packages that its requirements allow.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

import zeus
from support.environments import empty, install, project, requirements
from support.paths import ROOT
from support.waiting import PATIENCE_SECONDS

SOURCES = ROOT / "src" / "zeus"
PUBLISHED = {  # at the top of an sdist; hatchling adds the first four and .gitignore by itself
    "PKG-INFO", "LICENSE", "README.md", "pyproject.toml", ".gitignore",
    "src", "tests", "docs", "examples", "benchmarks", "deploy", "Makefile", "constraints.txt", "mkdocs.yml",
    ".importlinter", "constraints-reproduce.txt", "package.json", "biome.jsonc",
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md",
}  # fmt: skip
LARGEST_BYTES, ALL_BYTES = 500_000, 8_000_000  # of one file and of all: data would be beyond it
NEVER = {"__pycache__", ".hypothesis", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", ".git"}
ENDINGS = {".pyc", ".db", ".sqlite", ".csv", ".log", ".so", ".whl"}

# The name under which a distribution is imported, where it is another.
IMPORTED_AS = {"nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client", "pillow": "PIL", "pyyaml": "yaml"}
BROUGHT_BY = {"pytorch_lightning": "lightning"}  # the same callbacks under the name of the older package
# Declared though nothing in src imports it: transformers loads its trainer's back end, and the page plotly's script.
LOADED_BY_OTHERS = {"accelerate", "plotly", "pyarrow"}
# Extras whose packages the modules below a folder may import. Elsewhere only the core's are sure to be there.
EXTRAS_OF = {
    "cli/demo": ("torch",),
    "cli/monitor_prometheus": ("prometheus",),
    "cli/reproduce": ("plots",),
    "cli/simulate_files": ("parquet",),
    "compat/prometheus": ("prometheus",),
    "device/amd": ("amd",),
    "distributed": ("torch",),
    "training/hf_power_limit": ("huggingface",),
    "training/train_watch": ("huggingface",),
    "launch/placement/kubernetes": ("kubernetes",),
    "launch/placement/ray": ("ray",),
    "ray_address": ("ray",),
    "reproduce": ("plots",),
    "service": ("service",),
    "store/check": ("postgres",),
    "store/sql/postgres": ("postgres",),
    "training/huggingface": ("huggingface",),
    "training/lightning": ("lightning",),
    "training/loader": ("torch",),
    "simulate/ray_workers": ("ray",),
    "tuning/optuna": ("optuna",),
    "tuning/ray_tune": ("ray",),
}
SHIPPED_EXTRAS = (
    "torch",
    "huggingface",
    "lightning",
    "optuna",
    "ray",
    "kubernetes",
    "amd",
    "postgres",
    "prometheus",
    "service",
    "plots",
    "parquet",
)


def test_the_sdist_holds_what_is_published_and_nothing_else(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    assert file.name == f"zeus_energy-{zeus.__version__}.tar.gz"
    with tarfile.open(file) as packed:
        members = {Path(*Path(one.name).parts[1:]): one.size for one in packed.getmembers() if one.isfile()}
    assert {path.parts[0] for path in members} == PUBLISHED
    ours = Path("benchmarks/h200/traces")  # measured by us; no other data is published
    strange = [path for path in members if NEVER & set(path.parts) or path.suffix in ENDINGS]
    assert [path for path in strange if path.parent != ours] == []
    assert [path for path, size in members.items() if size > LARGEST_BYTES] == []
    assert sum(members.values()) < ALL_BYTES
    assert {path.relative_to("src") for path in members if path.parts[0] == "src"} == sources()


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as packed:
        names = [Path(name) for name in packed.namelist()]
        told = f"zeus_energy-{zeus.__version__}.dist-info"
        about = message_from_bytes(packed.read(f"{told}/METADATA"))
    assert {path for path in names if path.parts[0] != told} == sources()
    assert about["Version"] == zeus.__version__
    assert about["License-Expression"] == "Apache-2.0"


@pytest.mark.peers
def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    python = empty(Path(sys.executable), tmp_path / "env")
    install(python, wheel)
    works(python, tmp_path)
    check = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert "No broken requirements" in check.stdout, check.stdout


def test_the_wheel_works_beside_what_is_installed_here(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--no-index", wheel], check=True, capture_output=True)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    others = sysconfig.get_path("purelib")  # .pth files in that folder are not read, so the checkout is not found
    (packages / "others.pth").write_text(f"{others}\n")
    works(python, tmp_path)


def works(python: Path, tmp_path: Path) -> None:
    """Whether what is installed for this interpreter measures."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "PYTHON", "RANK"))}
    env = {**clean, "ZEUS_GPU": "virtual:v100", "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def say(*command: str) -> str:
        return subprocess.run(
            [python.parent / command[0], *command[1:]],
            env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS,
        ).stdout  # fmt: skip

    assert say("zeus", "--version").split()[-1] == zeus.__version__
    assert "measure" in say("zeus", "--help")
    where = Path(say("python", "-c", "import zeus; print(zeus.__file__)").strip())
    assert where.is_relative_to(tmp_path), "it is the installed one, not the checkout"
    measured = json.loads(say("zeus", "measure", "--json", "--", str(python), "-c", "import time; time.sleep(0.2)"))
    assert measured["joules"] > 0


def test_every_package_that_is_imported_is_declared() -> None:
    missing = [
        f"{path}: {package}"
        for path, package in imports()
        if BROUGHT_BY.get(package, package) not in importable(*allowed(path))
    ]
    assert missing == [], "declare it in pyproject.toml: in the core, or in an extra that EXTRAS_OF grants the folder"


def test_every_package_that_is_declared_is_used() -> None:
    used = {package for _, package in imports()} | LOADED_BY_OTHERS
    assert importable(*SHIPPED_EXTRAS) - used == set()
    assert set(project()["optional-dependencies"]) - set(SHIPPED_EXTRAS) == {"test", "dev", "docs", "peers"}


def test_every_requirement_says_its_lowest_version_and_no_highest() -> None:
    """A pin or a ceiling would be at odds with what else is installed beside Zeus."""
    for need in requirements(*project()["optional-dependencies"]):
        assert [bound.operator for bound in need.specifier] == [">="], str(need)


def sources() -> set[Path]:
    """The files of the package in this checkout."""
    files = (file for file in SOURCES.parent.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(SOURCES.parent) for file in files}


def allowed(path: str) -> list[str]:
    """Extras whose packages this module may import."""
    return [extra for folder, extras in EXTRAS_OF.items() if path.startswith(folder) for extra in extras]


def importable(*extras: str) -> set[str]:
    """Names that can be imported with the core and these extras."""
    return {IMPORTED_AS.get(need.name, need.name) for need in requirements(*extras)}


@functools.cache
def imports() -> list[tuple[str, str]]:
    """Each module of the package, with every package of others that it imports or looks up by name."""
    return list(_imports())


def _imports() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCES.rglob("*.py")):
        path = str(file.relative_to(SOURCES).with_suffix(""))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in imported(node):
                package = name.partition(".")[0]
                if package not in ("zeus", "zeus_energy") and package not in sys.stdlib_module_names:
                    yield path, package


def imported(node: ast.AST) -> list[str]:
    """Names of modules that one statement or call asks for."""
    match node:
        case ast.Import(names=names):
            return [one.name for one in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module" | "find_spec" | "files")
            | ast.Attribute(attr="import_module" | "find_spec" | "files"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
        case _:
            return []
