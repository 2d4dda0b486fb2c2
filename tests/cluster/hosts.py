"""Four hosts on this machine, each a network namespace with a real sshd: `netns-hosts.sh` as a Python object."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.transport.ssh import Ssh

SCRIPT = Path(__file__).parent / "netns-hosts.sh"
INSTALL = "apt-get install -y --no-install-recommends openssh-server iproute2"
SYSTEM_PATH = ":/usr/sbin:/sbin"
CLONE_NEWNET = 0x40000000


def missing() -> str:
    """Why hosts cannot be started here, as one line; "" where they can."""
    if os.geteuid() != 0:
        return "expected root for hosts in network namespaces, found another user; run the tests as root"
    path = os.environ.get("PATH", "") + SYSTEM_PATH
    lacking = [tool for tool in ("sshd", "ssh", "ip", "nsenter") if shutil.which(tool, path=path) is None]
    if lacking:
        return f"expected {', '.join(lacking)} for hosts in network namespaces, found none; {INSTALL}"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    if probe.returncode:
        return "expected network namespaces, found none; run the tests where CAP_SYS_ADMIN is granted"
    return ""


@dataclass(frozen=True)
class Hosts:
    """`names` are four hosts; `odd_python` of the third speaks garbage, the fourth has a read-only /tmp."""

    folder: Path
    prefix: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{number}" for number in (1, 2, 3, 4))

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def odd_python(self) -> str:
        """A Python on all hosts but the third."""
        return str(self.folder / "odd" / "python3")

    def ssh(self, **other: object) -> Ssh:
        """The transport to these hosts, impatient."""
        options: dict[str, object] = {
            "config": self.config,
            "python": sys.executable,
            "connect_timeout_s": 5.0,
            "login_timeout_s": 20.0,
            "patience_s": 1.0,
        }
        return Ssh(**{**options, **other})  # type: ignore[arg-type]

    def script(self, *words: str) -> None:
        act, *rest = words
        words = ["sh", SCRIPT, act, self.folder, *rest]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{SCRIPT.name} {act}: {done.stderr.strip()}")

    def start(self) -> None:
        """Start them; a second or less."""
        third, fourth = (self.folder / name for name in self.names[2:])
        odd = self.folder / "odd"
        for folder in (third, fourth, odd):
            folder.mkdir()
        (odd / "python3").symlink_to(sys.executable)
        (third / "odd").write_text("#!/bin/sh\nexec head -c 3000000 /dev/zero\n")
        (third / "odd").chmod(0o755)
        shutil.copytree(odd, third / "bin", symlinks=True)
        (third / "bin" / "python3").unlink()
        shutil.copy(third / "odd", third / "bin" / "python3")
        (third / "overlay.sh").write_text(f"mount --bind {third}/bin {odd}\n")
        # This folder, which may lie in /tmp, stays writable.
        (fourth / "overlay.sh").write_text(
            f"mount --bind {self.folder} {self.folder}; mount --rbind /tmp /tmp; mount -o remount,bind,ro /tmp\n"
        )
        self.script("start", "4", self.prefix)

    def stop(self) -> None:
        self.script("stop")

    def pid_of_sshd(self, name: str) -> int:
        return int((self.folder / name / "sshd.pid").read_text())

    @contextlib.contextmanager
    def dead_sshd(self, name: str) -> Iterator[None]:
        """Nobody listens on that host."""
        os.kill(self.pid_of_sshd(name), signal.SIGTERM)
        try:
            yield
        finally:
            self.script("sshd", name)

    @contextlib.contextmanager
    def link_down(self, name: str) -> Iterator[None]:
        """No packet reaches that host."""
        link = ["ip", "-n", f"{self.prefix}c", "link", "set", f"v{name}"]
        subprocess.run([*link, "down"], check=True, timeout=20)
        try:
            yield
        finally:
            subprocess.run([*link, "up"], check=True, timeout=20)

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        """This thread, and whatever it starts, is on the network of the hosts."""
        with Path("/proc/thread-self/ns/net").open() as ours, Path(f"/run/netns/{self.prefix}c").open() as theirs:
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def alive(pid: int) -> bool:
    """True where that process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(path: Path, seconds: float = 20) -> int:
    """The process id that somebody writes into a file."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(path.read_text())
        time.sleep(0.01)
    raise TimeoutError(f"nobody wrote a process id into {path}")


def gone(*pids: int, seconds: float = 20) -> bool:
    """True where all these processes end."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def group(leader: int) -> set[int]:
    """Who is alive of a process group."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, members, *_ = path.read_text().rpartition(") ")[2].split()
            if int(members) == leader and state != "Z":
                found.add(int(path.parent.name))
    return found
