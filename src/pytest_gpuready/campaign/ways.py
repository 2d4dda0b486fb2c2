"""The transports by name, made as the site file asks for them. Each is imported when it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.campaign.progress import Progress, Screen, Shown
from pytest_gpuready.errors import InventoryError
from pytest_gpuready.inventory import Site
from pytest_gpuready.inventory.ways import KubernetesWay, SlurmWay, SshWay
from pytest_gpuready.model import Command
from pytest_gpuready.transport import Transport
from pytest_gpuready.transport.local import Local

Said = Callable[[Command, dict[str, object]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a transport is made of: the site file, all nodes of the run, the run's ticket, and the Slurm job that has
    the nodes already ("" for none)."""

    site: Site | None
    names: tuple[str, ...]
    lease: Mapping[str, str]
    job: str = ""
    says: Callable[[str], None] | None = None
    """Gets a line while one waits for the nodes."""

    def beside(self, name: str | None) -> Path | None:
        """A file that the site file names, relative to it."""
        return self.site.directory / name if self.site and name else None


def open_way(kind: str, way: Way, screen: Screen | None) -> tuple[Transport, Transport]:
    """The transport of this name, and the same with a screen on which long commands are shown.

    Raises:
        InventoryError: the site file does not say what this transport needs.
        TransportError: it is not installed here.
    """
    progress = Progress(screen) if screen else None
    if screen:
        way = dataclasses.replace(way, says=screen.line)
    bare = WAYS[kind](way, progress.said if progress else None)
    return bare, Shown(bare, progress) if progress else bare


def _local(_way: Way, said: Said | None) -> Transport:
    return Local(progress=said) if said else Local()


def _ssh(way: Way, said: Said | None) -> Transport:
    from pytest_gpuready.transport.ssh import Ssh  # noqa: PLC0415 - one node needs none of it

    asked = way.site.ssh if way.site else SshWay()
    return Ssh(
        config=way.beside(asked.config),
        topology=way.beside(asked.gateways),
        python=asked.python,
        fanout=asked.fanout,
        connect_timeout_s=asked.connect_timeout_s,
        environment=way.lease,
        progress=said,
    )


def _slurm(way: Way, said: Said | None) -> Transport:
    from pytest_gpuready.transport.slurm import Slurm  # noqa: PLC0415 - one node needs none of it

    asked = way.site.slurm if way.site else SlurmWay()
    return Slurm(
        nodes=way.names,
        job=way.job,
        partition=asked.partition,
        reservation=asked.reservation,
        constraint=asked.constraint,
        account=asked.account,
        time_limit=asked.time_limit,
        says=way.says,
        python=asked.python,
        wait_s=asked.wait_s,
        environment=way.lease,
        progress=said,
    )


def _kubernetes(way: Way, said: Said | None) -> Transport:
    from pytest_gpuready.transport.kubernetes import Kubernetes  # noqa: PLC0415 - one node needs none of it
    from pytest_gpuready.transport.kubernetes.manifests import GPU_TOLERATION  # noqa: PLC0415

    asked = way.site.kubernetes if way.site else KubernetesWay()
    if not asked.image:
        raise InventoryError("expected kubernetes: {image: ...} in the site file, found none; name the agent's image")
    return Kubernetes(
        namespace=asked.namespace,
        image=asked.image,
        context=asked.context,
        kubeconfig=str(way.beside(asked.kubeconfig) or ""),
        gpu_access=asked.gpu_access,
        python=asked.python,
        runtime_class=asked.runtime_class,
        priority_class=asked.priority_class,
        pull_secret=asked.pull_secret,
        tolerations=(GPU_TOLERATION, *asked.tolerations),
        node_selector=asked.node_selector,
        fanout=asked.fanout,
        wait_s=asked.wait_s,
        hold_s=asked.hold_s,
        environment=way.lease,
        progress=said,
    )


WAYS = {"local": _local, "ssh": _ssh, "slurm": _slurm, "kubernetes": _kubernetes}
