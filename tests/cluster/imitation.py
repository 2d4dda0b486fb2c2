"""A cluster of four GPU nodes that is none: hosts as in `hosts`, each with hardware of its own as the agent sees it.

Every host is a bare-metal machine to whoever looks from inside: its own sysfs (PCI bus, system serial), /proc/driver,
CPU description, boot id, kernel log, /run/lock and driver libraries, whose GPUs are called "stand-in". What the agent
reads there is all true of that host, so level 1 of the profile h200-sxm holds on each; what a fault changes it changes
on one.

How it is done: in the mount namespace of a host a few mounts lie over what the kernel shows, from files in the host's
folder. /sys is a tree of that folder whose other entries are links to the real one. Files are written in place, never
replaced, for a mount is of one file. `python3` is a name of the host's own: some faults put a script in its place.

A fault is a context manager and gone when it is left. Two faults that replace `python3` (`killed_agent`,
`other_protocol`, `at=2`) do not go together on one host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.transport.ssh import Ssh
from tests.cluster.hosts import Hosts, gone
from tests.fake_nvml import stand_in_driver as driver

HERE = Path(__file__).parent
PYTHON = Path(sys.executable).resolve()
"""The interpreter without its virtual environment: the agent brings what it needs, as on a node."""

OWN = {"": ("bus", "class", "devices"), "bus": ("pci",), "class": ("dmi",), "devices": ()}
"""Folders of /sys that a host has itself, by the folder they lie in; the rest are links to the kernel's."""

NVML, LOG, BOOT_ID = "nvml", "kmsg", "boot_id"
"""Files of a host: what its NVML answers, its kernel log, its boot id."""

AGENT = 'case "$*" in *pytest_gpuready.agent*) ;; *) exec {python} "$@" ;; esac\n'
TURN = """exec 9>{folder}/turn
flock 9
commands=$(($(cat {folder}/commands) + 1))
echo $commands >{folder}/commands
[ $commands -ne {at} ] || cp -r {folder}/later/. {folder}
exec {{python}} "$@"
"""
"""An agent command at a time, and before one of them the changes that wait."""

TOGETHER = """>{begun}/$(hostname)
tries=0
until [ $(ls {begun} | wc -l) -eq {all} ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || {{ echo "others were not asked" >&2; exit 1; }}
    sleep 0.05
done
exec {{python}} "$@"
"""
"""An agent command waits for one on every other host."""

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Imitation(Hosts):
    """`gpus` a host; libraries are built in `built` once for all runs of the tests."""

    built: Path
    gpus: int = 2

    # --- what there is ------------------------------------------------------------------------------------------------

    def ssh(self, **other: object) -> Ssh:
        """The transport to these hosts, with the Python that each calls python3."""
        return super().ssh(**{"python": "python3", **other})

    @property
    def equipped_python(self) -> Path:
        """Each host's interpreter with the host's own variables, for what does not come through its sshd."""
        return self.folder / "bin" / "equipped-python"

    def start(self) -> None:
        """Start them; about half a second."""
        bin_ = self.folder / "bin"
        bin_.mkdir()
        libraries = driver.built(self.built)
        for number, name in enumerate(self.names):
            folder = self.folder / name
            for inner in ("bin", "kernel", "proc-driver/nvidia", "lock"):
                (folder / inner).mkdir(parents=True)
            (folder / "lock").chmod(0o1777)
            (folder / "bin" / "python3").symlink_to(PYTHON)
            equipped = folder / "bin" / self.equipped_python.name
            equipped.write_text(f'#!/bin/sh\nset -a\n. {folder}/env\nexec python3 "$@"\n')
            equipped.chmod(0o755)
            shutil.copytree(libraries, folder / "lib", symlinks=True)
            _write_sysfs(folder / "sys", number, self.gpus)
            version = f"NVRM version: stand-in for the kernel module  {driver.VERSION}  Mon Nov 30 00:00:00 UTC 2026\n"
            for file, text in {
                "proc-driver/nvidia/version": version,
                "cpuinfo": _bare_metal(Path("/proc/cpuinfo").read_text()),
                NVML: "".join(f"{key}={value}\n" for key, value in self.values(number).items()),
                BOOT_ID: f"{number:08d}-0000-4000-8000-000000000001\n",
                LOG: _log("Linux version 6.8.0 (stand-in)", "nvidia: loading out-of-tree module taints kernel."),
                "env": f"PATH={bin_}:{SYSTEM_PATH}\nLD_LIBRARY_PATH={folder}/lib\nFAKE_NVML={folder}/{NVML}\n",
                "overlay.sh": OVERLAY.format(folder=folder, bin=bin_),
            }.items():
                (folder / file).write_text(text)
        self.script("start", "4", self.prefix)

    def values(self, number: int) -> dict[str, str]:
        """What NVML says on the host of this number, in the words of the stand-in library."""
        values = driver.healthy(self.gpus)
        for gpu in range(self.gpus):
            values[f"gpu.{gpu}.busid"] = f"0000{_bdf(number, gpu).upper()}"
            values[f"gpu.{gpu}.uuid"] = f"GPU-0000000{number}-0000-4000-8000-{gpu:012d}"
            values[f"gpu.{gpu}.serial"] = f"16500000{number:02d}{gpu:03d}"
        return values

    def bdf(self, name: str, gpu: int) -> str:
        """Where that GPU of that host is on the PCI bus; no two of the cluster are at the same address."""
        return _bdf(self.names.index(name), gpu)

    def shell(self, name: str, script: str, *words: str) -> str:
        """What a script prints on the host, run there without ssh.

        Raises: RuntimeError where it fails.
        """
        holder = (self.folder / name / "holder").read_text().strip()
        inside = ["nsenter", "-t", holder, "--net", "--uts", "--mount", "sh", "-euc", script, "sh", *words]
        path = {**os.environ, "PATH": SYSTEM_PATH}
        done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False, env=path)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def all_at_once(self) -> Iterator[None]:
        """No agent command goes on before every host has been given one; where one of them is not, they fail."""
        begun = self.folder / "begun"
        begun.mkdir()
        try:
            with contextlib.ExitStack() as waiting:
                for name in self.names:
                    waiting.enter_context(self._python(name, AGENT + TOGETHER.format(begun=begun, all=len(self.names))))
                yield
        finally:
            shutil.rmtree(begun)

    # --- faults of the hardware ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changed(self, name: str, files: Mapping[str, str], *, at: int = 1) -> Iterator[None]:
        """Files of the host's folder have other contents; with `at`, from its second (third, ..) agent command on.

        Until then they wait, and agent commands of this host come one after the other.
        """
        folder = self.folder / name
        before = {file: (folder / file).read_text() for file in files}
        waiting: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        where = folder
        if at > 1:
            where = folder / "later"
            (folder / "commands").write_text("0\n")
            waiting = self._python(name, AGENT + TURN.format(folder=folder, at=at))
        for file, text in files.items():
            (where / file).parent.mkdir(parents=True, exist_ok=True)
            (where / file).write_text(text)
        try:
            with waiting:
                yield
        finally:
            shutil.rmtree(folder / "later", ignore_errors=True)
            for file, text in before.items():
                (folder / file).write_text(text)

    @contextlib.contextmanager
    def lost_gpu(self, name: str, gpu: int, *, at: int = 1) -> Iterator[None]:
        """The GPU has fallen off the bus: NVML, sysfs and the kernel log (Xid 79) say so."""
        place = self.bdf(name, gpu)[:-2]
        line = f"NVRM: Xid (PCI:{place}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        files = {
            NVML: self._more(name, NVML, f"gpu.{gpu}.lost=1\n"),
            LOG: self._logged(name, line),
            self._device(name, gpu, "current_link_speed"): "Unknown\n",
            self._device(name, gpu, "current_link_width"): "63\n",
        }
        with self.changed(name, files, at=at):
            yield

    @contextlib.contextmanager
    def narrow_link(self, name: str, gpu: int, width: int = 8) -> Iterator[None]:
        """The PCIe link of the GPU has trained to fewer lanes: sysfs and NVML say so."""
        files = {
            NVML: self._more(name, NVML, f"gpu.{gpu}.pcie.width={width}\n"),
            self._device(name, gpu, "current_link_width"): f"{width}\n",
        }
        with self.changed(name, files):
            yield

    @contextlib.contextmanager
    def ecc_errors(self, name: str, gpu: int, count: int = 3) -> Iterator[None]:
        """So many uncorrected errors since the driver was loaded, and so in the life of the board."""
        more = "".join(f"gpu.{gpu}.eccerrors.1.{counter}={count}\n" for counter in (0, 1))
        with self.changed(name, {NVML: self._more(name, NVML, more)}):
            yield

    @contextlib.contextmanager
    def hung_driver(self, name: str) -> Iterator[None]:
        """NVML does not come back from its first call."""
        with self.changed(name, {NVML: self._more(name, NVML, "hang=1\n")}):
            yield

    @contextlib.contextmanager
    def rebooted(self, name: str, *, at: int = 2) -> Iterator[None]:
        """The host is on another boot from its second agent command on."""
        with self.changed(name, {BOOT_ID: f"{self.names.index(name):08d}-0000-4000-8000-000000000002\n"}, at=at):
            yield

    # --- faults of the machine ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def other_name(self, name: str, other: str) -> Iterator[None]:
        """Who is reached under this name calls itself otherwise."""
        self.shell(name, 'hostname "$1"', other)
        try:
            yield
        finally:
            self.shell(name, 'hostname "$1"', name)

    @contextlib.contextmanager
    def wrong_clock(self, name: str, seconds: int) -> Iterator[None]:
        """The time of day is off by so much for all that is run by ssh.

        It touches less than one would think: neither keeper nor agent looks at the time of day. Deadlines, windows and
        samples are in time that only counts, when a command began is the controller's time, and the kernel log is in
        seconds since boot.
        """
        library = driver.preload(self.built, HERE / "wrong_clock.c")
        shutil.copy(library, self.folder / name / "lib")
        preload = f"LD_PRELOAD={self.folder / name / 'lib' / library.name} CLOCK_OFF_S={seconds} "
        config = self.folder / name / "sshd_config"
        before = config.read_text()
        config.write_text(before.replace("SetEnv ", f"SetEnv {preload}"))
        self._restart(name)
        try:
            yield
        finally:
            config.write_text(before)
            self._restart(name)

    @contextlib.contextmanager
    def full_disk(self, name: str) -> Iterator[None]:
        """Not a byte more fits into /tmp, /var/tmp, /dev/shm and /run/lock."""
        full = "mount -t tmpfs -o size=16k full {0}; head -c 100000 /dev/zero >{0}/full 2>&- || test -s {0}/full"
        with self._over_tmp(name, full, *TEMPORARY, "/run/lock"):
            yield

    @contextlib.contextmanager
    def read_only_tmp(self, name: str) -> Iterator[None]:
        """Nothing can be written in /tmp, /var/tmp and /dev/shm."""
        with self._over_tmp(name, "mount --bind {0} {0}; mount -o remount,bind,ro {0}", *TEMPORARY):
            yield

    # --- faults of the agent ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def killed_agent(self, name: str) -> Iterator[None]:
        """Somebody kills (SIGKILL) the agent while it waits for NVML; the other documents are not disturbed."""
        kill = f'case "$*" in *" nvml") (sleep 0.3; exec kill -9 $$) & ;; esac\nexec {PYTHON} "$@"\n'
        with self.hung_driver(name), self._python(name, AGENT + kill):
            yield

    @contextlib.contextmanager
    def other_protocol(self, name: str, version: int = 2) -> Iterator[None]:
        """The agent's documents are of another version of the protocol."""
        edit = f's/^{{"gpuready_agent":[0-9]*/{{"gpuready_agent":{version}/'
        with self._python(name, f"{AGENT}{PYTHON} \"$@\" | sed '{edit}'\n"):
            yield

    # --- how ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _python(self, name: str, script: str) -> Iterator[None]:
        """The host's python3 is a script."""
        python = self.folder / name / "bin" / "python3"
        python.unlink()
        python.write_text("#!/bin/sh\n" + script.replace("{python}", str(PYTHON)))
        python.chmod(0o755)
        try:
            yield
        finally:
            python.unlink()
            python.symlink_to(PYTHON)

    @contextlib.contextmanager
    def _over_tmp(self, name: str, mount: str, *places: str) -> Iterator[None]:
        """Something lies over these places, and the cluster's own folder, which may be in one of them, over that."""
        keep = f"exec 9<{self.folder}"
        back = f"mkdir -p {self.folder} 2>&- || :; mount -c --rbind /proc/self/fd/9 {self.folder}"
        self.shell(name, "; ".join((keep, *map(mount.format, places), back)))
        try:
            yield
        finally:
            self.shell(name, "; ".join(f"umount -R -l {place}" for place in (self.folder, *places)))

    def _restart(self, name: str) -> None:
        pid = self.pid_of_sshd(name)
        os.kill(pid, signal.SIGTERM)
        if not gone(pid):
            raise RuntimeError(f"{name}: sshd did not end")
        self.script("sshd", name)

    def _more(self, name: str, file: str, text: str) -> str:
        return (self.folder / name / file).read_text() + text

    def _logged(self, name: str, line: str) -> str:
        before = (self.folder / name / LOG).read_text()
        return before + _log(line, first=before.count("\n"))

    def _device(self, name: str, gpu: int, attribute: str) -> str:
        path = (self.folder / name / "sys/bus/pci/devices" / self.bdf(name, gpu)).resolve()
        return str((path / attribute).relative_to((self.folder / name).resolve()))


OVERLAY = """set -e
mount --rbind /sys {folder}/kernel
mount --bind {folder}/sys /sys
mount --bind {folder}/proc-driver /proc/driver
mount --bind {folder}/cpuinfo /proc/cpuinfo
mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id
mount --bind {folder}/kmsg /dev/kmsg
mount --bind {folder}/lock /run/lock
mount --bind {folder}/bin {bin}
"""


def _bdf(number: int, gpu: int) -> str:
    return f"0000:{0x19 + 16 * gpu + number:02x}:00.0"


def _write_sysfs(tree: Path, number: int, gpus: int) -> None:
    """The PCI bus and the identity of a host; whatever else /sys has is the kernel's."""
    for folder, own in OWN.items():
        (tree / folder).mkdir(parents=True, exist_ok=True)
        for entry in Path("/sys", folder).iterdir():
            is_bus = folder == "devices" and entry.name.startswith("pci")
            if entry.name not in own and not is_bus:
                (tree / folder / entry.name).symlink_to(tree.parent / "kernel" / folder / entry.name)
    _attributes(
        tree / "class/dmi/id",
        sys_vendor="Stand-in",
        product_name="Eight-GPU server",
        product_serial=f"STANDIN{number:04d}",
    )
    listed = tree / "bus/pci/devices"
    listed.mkdir(parents=True)
    for gpu in range(gpus):
        bus = 0x19 + 16 * gpu + number
        above = [f"0000:{bus - 4:02x}:01.0", f"0000:{bus - 3:02x}:00.0", f"0000:{bus - 2:02x}:00.0"]
        device = tree / "devices" / f"pci0000:{bus - 4:02x}"
        for bridge in above:
            device /= bridge
            _pci_device(device, class_="0x060400", vendor="0x8086", device="0x352a")
        device /= _bdf(number, gpu)
        _pci_device(device, class_="0x030200", vendor="0x10de", device="0x2335")
        for path in (device, *list(device.parents)[: len(above)]):
            (listed / path.name).symlink_to(os.path.relpath(path, listed))


def _pci_device(folder: Path, *, class_: str, vendor: str, device: str) -> None:
    _attributes(
        folder,
        **{"class": class_},
        vendor=vendor,
        device=device,
        numa_node="0",
        current_link_speed="32.0 GT/s PCIe",
        max_link_speed="32.0 GT/s PCIe",
        current_link_width="16",
        max_link_width="16",
    )


def _attributes(folder: Path, **values: str) -> None:
    folder.mkdir(parents=True)
    for attribute, value in values.items():
        (folder / attribute).write_text(f"{value}\n")


def _bare_metal(cpuinfo: str) -> str:
    """A description of the CPUs without the flag of a virtual machine."""
    return cpuinfo.replace(" hypervisor", "")


def _log(*lines: str, first: int = 0) -> str:
    """Records of the kernel log as /dev/kmsg gives them, a second each."""
    return "".join(f"6,{at},{at}000000,-;{line}\n" for at, line in enumerate(lines, first))
