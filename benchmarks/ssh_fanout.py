"""What the ssh transport costs beside plain `clush`: `python benchmarks/ssh_fanout.py [RUNS] [TARGETS...]`.

Both run `hostname` on so many targets, all of them one sshd of our own on 127.0.0.2 and up: nodes, controller and both
ends of every connection share this machine, so what is printed is all the work there is, and the ratio the worst that
there can be. They run in turns, a fresh process and a fresh sshd each, with the same ssh_config and fan-out; printed
are medians of wall time and of CPU time (everybody's, sshd and what it starts included), for ssh's own choice of key
exchange and for the cheapest. Needs root (the sshd is on a network of its own), sshd, ip and
`pip install 'pytest-gpuready[ssh]'`.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PORT = 22722
FANOUT = 64

OURS = """
import pathlib, sys
from pytest_gpuready.model import Command
from pytest_gpuready.transport.ssh import Ssh

transport = Ssh(config=pathlib.Path(sys.argv[1]), fanout=int(sys.argv[2]), python=sys.executable)
commands = [Command(node=name, argv=("hostname",), timeout_s=60) for name in sys.argv[3:]]
print(sum(getattr(outcome, "exit_code", None) == 0 for _, outcome in transport.run_many(commands)))
"""


def prepare(folder: Path, kex: str) -> None:
    """Keys and settings of both sides."""
    for key in ("id", "hostkey"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)  # noqa: S607
    (folder / "sshd_config").write_text(
        f"Port {PORT}\nHostKey {folder}/hostkey\nAuthorizedKeysFile {folder}/id.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPidFile none\nMaxStartups 500\nUseDNS no\nSetEnv SHLVL=5\n"
    )
    (folder / "ssh_config").write_text(
        f"Host *\n  Port {PORT}\n  IdentityFile {folder}/id\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n{kex}"
    )


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """An sshd that lets us in by key on every loopback address."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None:
        raise SystemExit("expected sshd on the PATH, found none; install openssh-server")
    process = subprocess.Popen([sshd, "-D", "-f", folder / "sshd_config", "-E", folder / "log"])
    try:
        time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(10)


def spent(folder: Path, words: list[str], reached: int) -> tuple[float, float]:
    """Wall and CPU seconds of a process that has to reach so many targets."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with server(folder):
        begin = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = done.stdout.splitlines()
    found = int(lines[0]) if lines[0].isdigit() else len(lines)
    if found != reached:
        raise SystemExit(f"expected {reached} targets, found {found}: {done.stderr[-300:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(folder: Path, targets: int, runs: int) -> str:
    """One line of the result."""
    config = folder / "ssh_config"
    names = [f"127.0.0.{number}" for number in range(2, 2 + targets)]
    options = ["-o", f"-F {config}", "-f", str(FANOUT), "-w", ",".join(names)]
    clush = [sys.executable, "-m", "ClusterShell.CLI.Clush", "-L", "-q", *options, "hostname"]
    ours = [sys.executable, "-c", OURS, str(config), str(FANOUT), *names]
    pairs = [(spent(folder, clush, targets), spent(folder, ours, targets)) for _ in range(runs)]
    line = f"{targets:4} targets:"
    for kind, name in enumerate(("wall", "CPU")):
        plain, kept = (statistics.median(pair[who][kind] for pair in pairs) for who in (0, 1))
        more = 1000 * (kept - plain) / targets
        line += f" {name}: clush {plain:.2f} s, ours {kept:.2f} s, ratio {kept / plain:.2f}, {more:+.1f} ms a target;"
    return line


def main() -> None:
    """Print the comparison."""
    if os.environ.get("SSH_FANOUT_NETWORK") != "own":
        enter = 'ip link set lo up && exec "$@"'
        words = ["unshare", "--net", "sh", "-c", enter, "sh", sys.executable, *sys.argv]
        os.execvpe(words[0], words, {**os.environ, "SSH_FANOUT_NETWORK": "own"})  # noqa: S606 - a list of words
    runs, *targets = map(int, sys.argv[1:] or ["5"])
    for kex in ("", "  KexAlgorithms curve25519-sha256\n"):
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name), kex)
            print(kex.split()[-1] if kex else "key exchange as ssh chooses it", flush=True)
            for count in targets or (64, 128):
                print(compare(Path(name), count, runs), flush=True)


if __name__ == "__main__":
    main()
