"""ClusterShell's engine in a thread of its own: starts one ssh a node, hears all of them, lets none of them wait long.

ClusterShell knows no deadline that keeps what was printed, no bound on it and no end of the remote command; that is the
keeper's work on the node. Here each node has the deadlines that hold where no keeper answers, and the bound on what
comes from a node that is none. ClusterShell reads lines and loses what stands before a lone carriage return: a keeper's
lines have none.
"""

from __future__ import annotations

import importlib
import logging
import math
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport.engine import KILL_S, Threaded
from pytest_gpuready.transport.kept import INTERRUPTED, LINE_BYTES, SLACK_S, Kept, Request

TICK_S = 0.1
LINGER_S = 2.0
"""How long ssh may stay when the node has said the end of the command."""

ALIVE_S = 1.0
"""How often `progress` hears that a command still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How nodes are reached. `topology` is ClusterShell's file of gateways, None where all are reached directly."""

    ssh: str
    options: tuple[str, ...]
    connect_timeout_s: float
    login_timeout_s: float
    fanout: int
    topology: Path | None


class FanOut(Threaded):
    """Commands on many nodes; `ended` holds them as they end, None behind the last."""

    def __init__(
        self, route: Route, kept: Sequence[Kept], progress: Callable[[Command, dict[str, object]], None]
    ) -> None:
        super().__init__("gpuready-ssh")
        self._route = route
        self._nodes = {each.command.node: each for each in kept}
        self._progress = progress
        self._told = self._killed = False
        self._alive_at = time.monotonic() + ALIVE_S
        self._active: dict[str, Kept] = {}
        self._clients: dict[str, Any] = {}
        self._workers: list[Any] = []
        self._task: Any = None

    @property
    def running(self) -> tuple[Command, ...]:
        """What runs now."""
        return tuple(each.command for each in list(self._active.values()))

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # Ctrl-C reaches everybody at the terminal: an ssh that dies of it could not bring what is said in the grace.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        why = "the fan-out ended before it"
        try:
            groups: dict[int, list[Kept]] = {}
            for each in self._nodes.values():
                groups.setdefault(id(each.request), []).append(each)
            # A gateway writes what it gets for stdin to the newest command that it runs: one command after the other.
            batches = [[group] for group in groups.values()] if self._route.topology else [list(groups.values())]
            for batch in batches:
                if self._stop_at is None and self._kill_at is None:
                    self._run(batch)
        except TransportError as error:
            why = str(error)
        except Exception as error:
            # Whatever breaks in the engine is a broken transport: it may not end as nodes that nobody hears of.
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            for each in self._nodes.values():
                self._end(each, None, INTERRUPTED if self._stop_at or self._kill_at else why)
            self.ended.put(None)

    def _run(self, groups: list[list[Kept]]) -> None:
        route = self._route
        task = self._task = importlib.import_module("ClusterShell.Task").task_self()
        try:
            task.set_info("ssh_path", route.ssh)
            task.set_info("ssh_options", shlex.join(route.options))
            task.set_info("connect_timeout", math.ceil(route.connect_timeout_s))
            task.set_info("fanout", route.fanout)
            for name in ("stdout_msgtree", "stderr_msgtree"):
                task.set_default(name, False)
            task.set_default("auto_tree", True)  # else tree=True below is ignored
            if route.topology:
                task.load_topology(str(route.topology))
            most_s = 0.0
            for group in groups:
                most_s = max(most_s, self._schedule(task, group))
            task.timer(TICK_S, handler=self, interval=TICK_S, autoclose=True)
            task.resume(most_s if route.topology else None)
        except TimeoutError:
            pass  # a gateway that hangs; its nodes are told from the others by having no end
        except importlib.import_module("ClusterShell.Topology").TopologyError as error:
            raise TransportError(
                f"expected a topology in {route.topology} that starts at this host, found {error}; correct it"
            ) from error
        finally:
            task.abort(kill=True)

    def _schedule(self, task: Any, group: list[Kept]) -> float:
        """Give one command to the engine. Returns by when a tree of gateways must have brought all its answers."""
        request: Request = group[0].request
        names = [each.command.node for each in group]
        budget_s = self._route.connect_timeout_s + self._route.login_timeout_s + request.budget_s
        worker = task.shell(
            request.line,
            nodes=",".join(names),
            handler=self,
            stderr=True,
            stdin=True,
            timeout=budget_s if self._route.topology else None,
            tree=self._route.topology is not None,
        )
        worker.write(request.stdin)
        self._workers.append(worker)
        if not self._route.topology:
            self._clients |= {client.key: client for client in worker._engine_clients()}
        waves = math.ceil(len(names) / self._route.fanout)
        return budget_s * waves + 2 * self._route.connect_timeout_s + SLACK_S

    def _end(self, each: Kept, code: int | None, why: str = "") -> None:
        """Hand over what came of one node, once."""
        if each.done:
            return
        each.done = True
        self._active.pop(each.command.node, None)
        outcome: CommandResult | TransportError = each.outcome(code, why)
        self.ended.put((each.command, outcome))

    def _give_up(self, each: Kept, why: str) -> None:
        """End one node here; the keeper there, if there is one, sees the end of its stdin."""
        self._end(each, None, why)
        client = self._clients.get(each.command.node)
        if client is not None:
            client.abort()

    def _tick(self) -> None:
        now = time.monotonic()
        self._obey(now)
        login_s = self._route.connect_timeout_s + self._route.login_timeout_s
        for each in list(self._active.values()):
            assert each.picked_at is not None
            client = self._clients.get(each.command.node)
            if client is not None and any(len(s.rbuf) > LINE_BYTES for s in client.streams.values()):
                each.garbled = each.garbled or f"a line of more than {LINE_BYTES} bytes"
            if each.garbled:
                self._give_up(each, each.garbled)
            elif each.ended_at is not None and now > each.ended_at + LINGER_S:
                self._give_up(each, "")  # all is said; somebody else there holds the connection
            elif self._route.topology:
                continue  # a gateway says when it has begun, not when the node has
            elif not each.running and now > each.picked_at + login_s:
                self._give_up(each, f"no login within {login_s:g} s")
            elif now > each.picked_at + login_s + each.request.budget_s:
                self._give_up(each, "no word of it after its deadline")
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_S
            for each in list(self._active.values()):
                if each.running:
                    self._progress(each.command, {})

    def _obey(self, now: float) -> None:
        """Do what `stop` and `kill` ask for."""
        if self._stop_at is None and self._kill_at is None:
            return
        if not self._told:
            self._told = True
            # First those that have not begun: the end of another would make the engine begin with them.
            for each in [each for each in self._nodes.values() if each.picked_at is None]:
                self._give_up(each, INTERRUPTED)
            self._write(b"stop\n")
        if self._kill_at is not None and not self._killed:
            self._killed = True
            self._write(b"kill\n")
        grace_s = max((each.command.grace_s for each in self._active.values()), default=0.0)
        over = self._kill_at is not None and now > self._kill_at + KILL_S
        if over or (self._stop_at is not None and now > self._stop_at + grace_s + SLACK_S + KILL_S):
            for each in list(self._active.values()):
                self._give_up(each, INTERRUPTED)
        if self._route.topology:
            self._task.abort()

    def _write(self, what: bytes) -> None:
        if not self._route.topology:
            for worker in self._workers:
                worker.write(what)

    # --- what ClusterShell calls --------------------------------------------------------------------------------------

    def ev_start(self, worker: Any) -> None:
        """Nothing to do: nodes are picked up one by one."""

    def ev_pickup(self, worker: Any, node: str) -> None:
        """The engine starts the ssh to a node."""
        each = self._nodes[node]
        each.pick()
        if not each.done:
            self._active[node] = each

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        """A line from a node."""
        each = self._nodes.get(node)  # a gateway speaks for itself, too
        if each is not None and not each.done:
            each.hear(msg, aside=sname != "stdout")

    def ev_written(self, worker: Any, node: str, sname: str, size: int) -> None:
        """Nothing to do."""

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        """The ssh to a node has ended."""
        self._end(self._nodes[node], rc)

    def ev_close(self, worker: Any, timedout: bool) -> None:
        """All nodes of a command have ended, or a gateway has given up on them."""
        if timedout:
            for node in list(worker.iter_keys_timeout()):
                self._end(self._nodes[node], None, "no word of it after its deadline")

    def ev_timer(self, timer: Any) -> None:
        """Time has passed."""
        self._tick()

    def _ev_routing(self, worker: Any, arg: Any) -> None:
        """A gateway could not be reached; the engine takes another way."""


logging.getLogger("ClusterShell").addHandler(logging.NullHandler())  # else what it warns of lands on the terminal
