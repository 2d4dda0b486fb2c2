"""The image of the pods: what it installs is what the extras of the package install, and its files lie there once."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "examples" / "container"
LARGE = {"nvmath-python", "nvidia-cublas", "nvidia-cublas-cu12"}


def named(lines: list[str]) -> set[str]:
    """The packages of requirements."""
    return {re.split(r"[<>=]", line, maxsplit=1)[0] for line in lines}


def listed(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def extra(name: str) -> list[str]:
    """What an optional dependency of the package asks for (tomllib is younger than our oldest Python)."""
    found = re.search(rf"^{name} = (\[.*?^\])", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert found
    words: list[str] = ast.literal_eval(found[1])
    return words


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
def test_the_image_has_what_the_extra_installs(name: str) -> None:
    """A node in a pod has no other packages than one where the extra was installed."""
    assert listed(IMAGE / f"{name}.txt") == extra(name)


@pytest.mark.parametrize("name", ["cuda12", "cuda13"])
def test_without_products_the_rest_is_there(tmp_path: Path, name: str) -> None:
    """PRODUCTS=no leaves out cuBLAS and nvmath-python, and nothing else."""
    (script,) = re.findall(r"no\) sed -i '(.*?)' /packages.txt", (IMAGE / "Containerfile").read_text())
    path = tmp_path / "packages.txt"
    path.write_text((IMAGE / f"{name}.txt").read_text())
    subprocess.run(["sed", "-i", script, str(path)], check=True, timeout=20)
    assert named(listed(path)) == named(extra(name)) - LARGE
    assert len(named(extra(name)) & LARGE) == 2


class Built:
    """A root file system laid out from a small Python, an environment, and libraries that `ldd` is told to find."""

    def __init__(self, room: Path) -> None:
        self.target, self.venv, self.stdlib = room / "image", room / "venv", room / "stdlib"
        self.python, self.system = room / "bin" / "python3.11", room / "system"
        packages = self.venv / "lib" / "python3.11" / "site-packages"
        self.wheel = packages / "nvidia" / "lib" / "libcublasLt.so.13"
        for path, text in {
            self.stdlib / "os.py": "x = 1\n",
            self.stdlib / "test" / "test_os.py": "x = 1\n",
            packages / "nvidia" / "there.py": "x = 1\n",
            packages / "nvidia" / "another_python.py": "print 'hello'\n",
            packages / "pip" / "main.py": "x = 1\n",
            packages / "nvidia" / "lib" / "libcublas.so.13": "needs libcublasLt",
            self.wheel: "large",
            self.system / "libc.so.6": "libc",
            self.system / "libgcc_s.so.1": "for the driver",
            self.system / "libz.so.1": "for Python",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.wheel.chmod(0o4755)
        inside = f"{self.target}{self.wheel}"
        self.program(self.python, f'case $1 in -c) echo {self.stdlib} ;; *) exec {sys.executable} "$@" ;; esac')
        found = f"libc.so.6 => {self.system}/libc.so.6 (0x1)\nlibz.so.1 => {self.system}/libz.so.1 (0x2)"
        self.program(
            room / "path" / "ldd",
            f"echo {shlex.quote(found)}\nif test -f {inside}; then echo 'libcublasLt.so.13 => {inside} (0x3)'; fi",
        )
        (self.venv / "bin").mkdir()
        (self.venv / "bin" / "python3").symlink_to(self.python)
        (self.venv / "bin" / "pip").write_text("#!/bin/sh\n")
        self.path = f"{room / 'path'}:{os.environ['PATH']}"

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def lay_out(self) -> None:
        words = ["sh", str(IMAGE / "rootfs.sh"), str(self.target), str(self.venv)]
        subprocess.run(words, env={"PATH": self.path}, check=True, timeout=60)

    def inside(self, path: Path) -> Path:
        """Where a file of this machine lies in the image."""
        return Path(f"{self.target}{path}")


@pytest.fixture
def built(tmp_path: Path) -> Built:
    image = Built(tmp_path.resolve())
    image.lay_out()
    return image


def test_each_library_lies_there_once(built: Built) -> None:
    """A library of a wheel stays where the wheel has it; those of the system come along, also what a driver needs."""
    lying = sorted(path.relative_to(built.target) for path in built.target.rglob("lib*.so*"))
    wheels = [built.wheel, built.wheel.parent / "libcublas.so.13"]
    system = [built.system / name for name in ("libc.so.6", "libgcc_s.so.1", "libz.so.1")]
    assert lying == sorted(path.relative_to("/") for path in [*wheels, *system])


def test_what_is_imported_is_compiled_already(built: Built) -> None:
    """Bytecode lies beside each module, under the names that it has in the image; a file that is none costs nothing."""
    modules = [built.stdlib / "os.py", built.venv / "lib/python3.11/site-packages/nvidia/there.py"]
    compiled = list(built.target.rglob("*.pyc"))
    assert sorted(path.name.split(".")[0] for path in compiled) == ["os", "there"]
    for module in modules:
        (code,) = built.inside(module).parent.glob(f"__pycache__/{module.stem}.*.pyc")
        assert str(module).encode() in code.read_bytes()
        assert str(built.target).encode() not in code.read_bytes()


def test_nothing_installs_or_gains_rights_there(built: Built) -> None:
    """No pip, no tests of the standard library, no setuid file; Python and `timeout` are there."""
    names = {path.name for path in built.target.rglob("*")}
    assert not names & {"pip", "test", "test_os.py"}
    assert {"python3.11", "timeout", "there.py"} <= names
    assert not [path for path in built.target.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]
