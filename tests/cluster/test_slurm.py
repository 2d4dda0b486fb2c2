"""`transport.slurm` on a real Slurm: what comes back from each node, and that a bad one costs only itself.

This Slurm is as unkind as a site may be: KillOnBadExit=1 and WaitTime=1 end steps whose tasks end one by one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import Envelope
from pytest_gpuready.model.agent_words import PROGRESS
from pytest_gpuready.parse.slurm_topology import SlurmTopology
from pytest_gpuready.transport import LostError, StoppedError
from pytest_gpuready.transport.slurm import Slurm
from tests.cluster.hosts import alive, gone, group, pid_in
from tests.cluster.slurm_cluster import SlurmCluster, missing

ROOT = Path(__file__).parents[2]
FOREVER_S = 60.0
"""A deadline that no test waits for."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Four nodes; where they cannot be started the tests fail, they are not skipped."""
    if why := missing():
        pytest.fail(why, pytrace=False)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), f"s{os.getpid() % 1_000_000}x")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def slurm(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The cluster, and the test where it answers. A test leaves no job behind."""
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    with cluster.controller():
        yield cluster
        assert cluster.is_idle()


@pytest.fixture
def transport(slurm: SlurmCluster) -> Iterator[Slurm]:
    """The transport to the four nodes; they are given back behind the test."""
    transport = slurm.slurm()
    yield transport
    transport.close()


def sh(node: str, script: str, *words: str, timeout_s: float = FOREVER_S, grace_s: float = 5.0) -> Command:
    return Command(node=node, argv=("sh", "-c", script, "sh", *words), timeout_s=timeout_s, grace_s=grace_s)


def outcomes(transport: Slurm, commands: Iterable[Command]) -> dict[str, CommandResult | TransportError]:
    """Node -> what came of its command."""
    return {command.node: outcome for command, outcome in transport.run_many(commands)}


def result(outcome: CommandResult | TransportError) -> CommandResult:
    assert isinstance(outcome, CommandResult), outcome
    return outcome


# --- what comes back --------------------------------------------------------------------------------------------------


def test_each_node_has_its_own(slurm: SlurmCluster, transport: Slurm) -> None:
    """Output, stderr and exit code are each node's own, with one command or several; a job of ours sees all GPUs."""
    names = slurm.names
    script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; echo err >&2; exit ${SLURMD_NODENAME#$1}"
    told = outcomes(transport, [sh(name, script, slurm.prefix) for name in names])
    assert {n: (result(r).stdout, result(r).stderr, result(r).exit_code) for n, r in told.items()} == {
        name: (f"{name} 0,1,2,3,4,5,6,7\n", "err\n", number) for number, name in enumerate(names, 1)
    }
    scripts = ["exit 255", "kill -9 $$", r"printf '50%%\r100%%\r\n\377x'", 'sleep 2; echo $0 "$1"']
    told = outcomes(transport, [sh(name, script, "'; $(id)\n") for name, script in zip(names, scripts, strict=True)])
    assert [result(told[name]).exit_code for name in names] == [255, -9, 0, 0]
    assert result(told[names[2]]).stdout == "50%\r100%\r\n\ufffdx"
    assert result(told[names[3]]).stdout == "sh '; $(id)\n\n"
    assert len(transport.jobs) == 1


def test_much_output_of_all_nodes_is_not_mixed(slurm: SlurmCluster, transport: Slurm) -> None:
    """Each node's stdout and stderr at once, 600 kB, in lines longer than srun's, arrive as they were."""
    script = "for i in $(seq 12); do seq -s $1 2000; done; seq -f $1-%g 20000 >&2"
    told = outcomes(transport, [sh(name, script, name) for name in slurm.names])
    for name in slurm.names:
        line = name.join(map(str, range(1, 2001))) + "\n"
        assert result(told[name]).stdout == line * 12
        assert result(told[name]).stderr == "".join(f"{name}-{number}\n" for number in range(1, 20001))


def test_deadline_and_bound_hold_on_the_node(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A command that ignores SIGTERM ends at its deadline, another at the bound of its output; the others go on."""
    transport = slurm.slurm(max_bytes=100_000)
    hung, much, *others = slurm.names
    hang = f"echo early; trap '' TERM; (trap '' TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.1; done)"
    told = outcomes(
        transport,
        [
            sh(hung, hang, timeout_s=1.5, grace_s=0.2),
            sh(much, "head -c 400000 /dev/zero; sleep 300"),
            *(sh(name, "sleep 2; echo ok") for name in others),
        ],
    )
    transport.close()
    late, cut = result(told[hung]), result(told[much])
    assert (late.stdout, late.timed_out, late.exit_code, late.unkillable) == ("early\n", True, None, "")
    assert not alive(pid_in(tmp_path / "pid"))
    assert len(cut.stdout) == 100_000
    assert "output beyond 100000 bytes was cut" in cut.stderr
    assert [result(told[name]).stdout for name in others] == ["ok\n", "ok\n"]


def test_the_agent_travels(slurm: SlurmCluster, transport: Slurm, tmp_path: Path) -> None:
    """A Python without any package runs the agent; one that is not there is one line, of its node alone."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\n[ $SLURMD_NODENAME = {slurm.names[1]} ] && exit 127\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    transport = slurm.slurm(python=str(bare))
    words = ("python", "-m", "pytest_gpuready.agent", "node")
    told = outcomes(transport, [Command(node=name, argv=words, timeout_s=FOREVER_S) for name in slurm.names[:2]])
    transport.close()
    assert msgspec.json.decode(result(told[slurm.names[0]]).stdout, type=Envelope).probe == "node"
    assert str(told[slurm.names[1]]).startswith(f"{slurm.names[1]}: expected {bare} and timeout (coreutils) there")


def test_topology_comes_from_slurm(slurm: SlurmCluster, transport: Slurm) -> None:
    """The switches above each node, from the nearest on; nobody takes a job to ask for it."""
    a, b, c, d = slurm.names
    near, far = ("leaf1", "spine"), ("leaf2", "spine")
    assert transport.topology() == SlurmTopology(kind="tree", paths={a: near, b: near, c: far, d: far})
    assert transport.jobs == ()


# --- what Slurm does not give -----------------------------------------------------------------------------------------


def test_nodes_that_slurm_does_not_give_cost_only_themselves(slurm: SlurmCluster) -> None:
    """Drained, down, reserved, unknown, no name at all: each says so in Slurm's words; the one that is left runs."""
    drained, down, reserved, fine = slurm.names
    slurm.ask("scontrol", "update", f"nodename={drained}", "state=drain", "reason=GPU 3 | Xid 79\nsee ticket")
    slurm.ask("scontrol", "update", f"nodename={down}", "state=down", "reason=no power")
    hold = ("starttime=now", "duration=60", "users=root", f"nodes={reserved}", "flags=maint")
    slurm.ask("scontrol", "create", "reservation", "reservationname=theirs", *hold)
    names = (drained, down, reserved, fine, "nobody", "-w", "a,b", "a[1-2]", "")
    try:
        transport, mine = slurm.slurm(), slurm.slurm(reservation="theirs")
        told = outcomes(transport, [sh(name, "echo ok") for name in names])
        transport.close()
        theirs = outcomes(mine, [sh(name, "echo ok") for name in (reserved, fine)])
        mine.close()
        elsewhere = outcomes(slurm.slurm(partition="small"), [sh(fine, "echo ok")])
    finally:
        slurm.ask("scontrol", "delete", "reservationname=theirs")
        for name in (drained, down):
            slurm.ask("scontrol", "update", f"nodename={name}", "state=resume")
    says = "expected a node that Slurm gives, found"
    assert f"{drained}: {says} it drained (GPU 3 | Xid 79 see ticket); see `scontrol show node" in str(told[drained])
    assert f"{down}: {says} it down (no power)" in str(told[down])
    assert f"{reserved}: {says} it reserved (theirs)" in str(told[reserved])
    assert f"nobody: {says} no node of this name" in str(told["nobody"])
    assert all("expected a node's name" in str(told[name]) for name in names[5:])
    assert result(told[fine]).stdout == "ok\n"
    assert result(theirs[reserved]).stdout == "ok\n"
    assert f"{fine}: {says} it outside reservation theirs" in str(theirs[fine])
    assert f"{fine}: {says} it in partition gpu, not in small" in str(elsewhere[fine])


def test_nodes_that_are_busy_are_not_waited_for_longer_than_asked(slurm: SlurmCluster) -> None:
    """What others use is left to them after `wait_s`, the free nodes are taken; alone it says what squeue says."""
    busy, free = slurm.names[:2]
    words = ["salloc", "--exclusive", f"--nodelist={busy}", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        assert other.stdout
        other.stdout.readline()
        lines: list[str] = []
        transport = slurm.slurm(wait_s=1.2, says=lines.append)
        told = outcomes(transport, [sh(name, "echo ok") for name in (busy, free)])
        transport.close()
        alone = outcomes(slurm.slurm(wait_s=0.2), [sh(busy, "echo ok")])
        wrong = outcomes(slurm.slurm(constraint="nosuch"), [sh(free, "echo ok")])
        other.communicate(timeout=20)
    assert f"{busy}: expected a node that Slurm gives, found it allocated after 1.2 s" in str(told[busy])
    assert result(told[free]).stdout == "ok\n"
    assert "PENDING (" in lines[0]
    assert f"{busy}: expected 1 node(s) from Slurm, found none within 0.2 s: job " in str(alone[busy])
    assert "PENDING (" in str(alone[busy])
    assert "salloc: error: Job submit/allocate failed: Invalid feature specification" in str(wrong[free])


def test_in_a_job_its_nodes_are_used_and_no_others(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_JOB_ID names the job; it stays, and what it holds of the GPUs is what commands see."""
    ours, other = slurm.names[:2]
    words = ["salloc", f"--nodelist={ours}", "--gres=gpu:3", "sh", "-c", "echo $SLURM_JOB_ID; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout
        job = holder.stdout.readline().decode().strip()
        for name, value in {"SLURM_JOB_ID": job, "SLURM_NTASKS": "7", "SLURM_UNBUFFEREDIO": "1"}.items():
            monkeypatch.setenv(name, value)
        transport = slurm.slurm()
        told = outcomes(transport, [sh(name, "echo $CUDA_VISIBLE_DEVICES") for name in (ours, other)])
        transport.close()
        assert slurm.ask("squeue", "-h", "-o", "%A %T").split() == [job, "RUNNING"]
        holder.communicate(timeout=20)
    assert result(told[ours]).stdout == "0,1,2\n"
    assert f"{other}: expected a node of job {job}, found {ours} in it" in str(told[other])


# --- what breaks meanwhile --------------------------------------------------------------------------------------------


def test_a_node_that_does_not_start_costs_only_itself(slurm: SlurmCluster, transport: Slurm, tmp_path: Path) -> None:
    """srun gives the whole step up where a slurmd is dead or says nothing, and kills the tasks of the others: they run
    all the same, once, and the next time nobody waits for such a node."""
    fine, dead, hung, well = slurm.names
    commands = [sh(name, f"echo x >>{tmp_path}/{name}; echo ok") for name in slurm.names]
    with slurm.dead_slurmd(dead), slurm.hung_slurmd(hung):
        told = outcomes(transport, commands)
        again: list[str] = []
        for command, outcome in transport.run_many(commands):
            again.append(command.node if isinstance(outcome, CommandResult) else str(outcome))
            if {fine, well} <= set(again):
                break
    for name in (dead, hung):
        assert f"{name}: expected to start by srun, found srun: error: Task launch for" in str(told[name])
        assert not (tmp_path / name).exists()
    for name in (fine, well):
        assert result(told[name]).stdout == "ok\n"
        assert (tmp_path / name).read_text() == "x\nx\n"
    # By then Slurm may know that one of them does not answer: it is refused at once, before the others begin.
    assert not [line for line in again if "expected to start by srun" in line]


def test_a_node_that_dies_costs_only_itself(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm says that one failed, the step daemon of another is gone without a word: lost, and the others go on."""
    monkeypatch.setattr("pytest_gpuready.transport.slurm.steps.SLACK_S", 0.0)
    monkeypatch.setattr("pytest_gpuready.transport.kept.SLACK_S", 0.5)
    failed, killed, *others = slurm.names
    said = f"echo early >&2; echo '{PROGRESS}{{\"heard\":1}}' >&2"
    script = f"{said}; echo $$ >{tmp_path}/$SLURMD_NODENAME; read x <{tmp_path}/go; echo ok"
    os.mkfifo(tmp_path / "go")
    heard: set[str] = set()
    transport = slurm.slurm(progress=lambda command, said: heard.add(command.node) if said else None)
    told: dict[str, CommandResult | TransportError] = {}

    def follow() -> None:
        commands = [sh(name, script, timeout_s=5 if name == killed else FOREVER_S, grace_s=0.2) for name in slurm.names]
        for command, outcome in transport.run_many(commands):
            told[command.node] = outcome

    end = time.monotonic() + 20
    thread = threading.Thread(target=follow)
    thread.start()
    pids = {name: pid_in(tmp_path / name) for name in slurm.names}
    while len(heard) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    stepd = _ancestor(pids[killed], "slurmstepd")
    # Stopped first, so that something is unread: the connection is then reset rather than closed.
    os.kill(stepd, signal.SIGSTOP)
    slurm.ask("scontrol", "update", f"nodename={failed}", "state=down", "reason=dead")
    while failed not in told and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(stepd, signal.SIGKILL)
    while killed not in told and time.monotonic() < end:
        time.sleep(0.1)
    go = os.open(tmp_path / "go", os.O_RDWR)  # never waits for a reader
    os.write(go, b"\n\n")
    thread.join(30)
    os.close(go)
    transport.close()
    slurm.ask("scontrol", "update", f"nodename={failed}", "state=resume")
    slurm.ask("scontrol", "reconfigure")  # else this Slurm counts cores of the job that lost a node as used for a while
    assert [(result(told[name]).stdout, result(told[name]).stderr) for name in others] == [("ok\n", "early\n")] * 2
    for name, found in {failed: f"srun: error: Node failure on {failed}", killed: "no word of it after"}.items():
        lost = told[name]
        assert isinstance(lost, LostError), lost
        assert f"{name}: expected to hear how 'sh' ended, found {found}" in str(lost)
        assert lost.partial.stderr == "early\n"
    assert gone(*pids.values())


def _ancestor(pid: int, name: str) -> int:
    while name not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        assert pid > 1
    return pid


def test_what_slurm_ends_is_no_result(slurm: SlurmCluster, transport: Slurm, tmp_path: Path) -> None:
    """A command that Slurm ends (a time limit, scancel) is lost with what it printed, even where it says it is well."""
    script = f"trap 'echo fine; exit 0' TERM; echo row; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done"
    told: dict[str, CommandResult | TransportError] = {}
    thread = threading.Thread(target=lambda: told.update(outcomes(transport, [sh(slurm.names[0], script)])))
    thread.start()
    pid = pid_in(tmp_path / "pid")
    slurm.ask("scancel", *transport.jobs)
    thread.join(30)
    lost = told[slurm.names[0]]
    assert isinstance(lost, LostError), lost
    assert lost.partial.stdout.startswith("row\n")
    assert lost.partial.exit_code is None
    assert gone(pid)


# --- ending it --------------------------------------------------------------------------------------------------------

CONTROLLER = """
import signal, sys
from pytest_gpuready.model import Command
from pytest_gpuready.transport.slurm import Slurm

signal.signal(signal.SIGINT, signal.default_int_handler)
transport = Slurm(python=sys.executable, patience_s=1)
grace_s, script, *nodes = sys.argv[1:]
commands = [Command(node=node, argv=("sh", "-c", script), timeout_s=60, grace_s=float(grace_s)) for node in nodes]
try:
    for command, outcome in transport.run_many(commands):
        print(repr(getattr(outcome, "stdout", str(outcome))), getattr(outcome, "exit_code", None), flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def controller(script: str, *nodes: str, grace_s: float = 0.2) -> subprocess.Popen[str]:
    """A process that runs this on these nodes, at the head of a process group as at a terminal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", CONTROLLER, str(grace_s), script, *nodes]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)


@pytest.mark.parametrize("inside", [False, True])
def test_nobody_is_left_when_the_controller_is_killed(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """SIGKILL of the controller ends its commands, those that ignore SIGTERM too, and its job; a job that is not its
    own stays."""
    holder = None
    if inside:
        words = ["salloc", "--exclusive", "--nodes=2", f"--nodelist={','.join(slurm.names[:2])}"]
        holder = subprocess.Popen(
            [*words, "sh", "-c", "echo $SLURM_JOB_ID; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert holder.stdout
        monkeypatch.setenv("SLURM_JOB_ID", holder.stdout.readline().decode().strip())
    script = f"trap '' TERM HUP; echo $$ >{tmp_path}/$SLURMD_NODENAME; while :; do sleep 0.1; done"
    process = controller(script, *slurm.names[:2])
    pids = [pid_in(tmp_path / name) for name in slurm.names[:2]]
    process.kill()
    process.communicate(timeout=20)
    assert gone(*pids)
    assert gone(*group(process.pid))
    if holder:
        assert slurm.ask("squeue", "-h", "-o", "%T").split() == ["RUNNING"]
        holder.communicate(timeout=20)


def test_nobody_waits_when_the_controller_is_killed(slurm: SlurmCluster) -> None:
    """A job that still waits for its nodes is taken back, too."""
    name = slurm.names[0]
    slurm.ask("scontrol", "create", "reservation", "reservationname=soon", "starttime=now+1minutes", "duration=60",
              "users=root", f"nodes={name}")  # fmt: skip
    try:
        process = controller("true", name)
        while not slurm.ask("squeue", "-h"):
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=20)
        assert slurm.is_idle()
    finally:
        slurm.ask("scontrol", "delete", "reservationname=soon")


def test_ctrl_c_keeps_what_is_printed_in_the_grace(slurm: SlurmCluster, tmp_path: Path) -> None:
    """At a terminal Ctrl-C reaches the whole group: what commands say in their grace comes before the interrupt."""
    file = f"{tmp_path}/$SLURMD_NODENAME"
    script = f"trap 'sleep 0.1; echo last; exit 3' TERM; echo $$ >{file}; while :; do sleep 0.05; done"
    process = controller(script, *slurm.names[:2], grace_s=20)
    pids = [pid_in(tmp_path / name) for name in slurm.names[:2]]
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=20)
    assert said.splitlines() == ["'last\\n' 3", "'last\\n' 3", "interrupted"]
    assert not any(map(alive, pids))


def test_stop_and_who_stops_to_listen(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Stopped from another thread: what runs has its grace, what waits for nodes has not begun, the next run works.
    An iteration that is given up ends what still runs."""
    transport, waiting = slurm.slurm(), slurm.slurm()
    script = f"trap 'echo last; exit 3' TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done"
    told: dict[str, CommandResult | TransportError] = {}
    slow, quick = slurm.names[:2]

    def follow(which: Slurm, *commands: Command) -> threading.Thread:
        thread = threading.Thread(target=lambda: told.update(outcomes(which, commands)))
        thread.start()
        return thread

    runs = follow(transport, sh(slow, script))
    pid_in(tmp_path / "pid")
    waits = follow(waiting, sh(slow, "true"))
    while len(slurm.ask("squeue", "-h").splitlines()) < 2:
        time.sleep(0.05)
    waiting.stop()
    waits.join(20)
    assert isinstance(told[slow], StoppedError), told[slow]
    transport.stop()
    runs.join(20)
    assert (result(told[slow]).stdout, result(told[slow]).exit_code) == ("last\n", 3)
    ended = transport.run_many([sh(slow, f"echo $$ >{tmp_path}/again; exec sleep 300"), sh(quick, "true")])
    assert next(ended)[0].node == quick
    pid = pid_in(tmp_path / "again")
    ended.close()  # type: ignore[attr-defined]
    transport.close()
    assert gone(pid)


# --- the example ------------------------------------------------------------------------------------------------------

BATCH = """#!{python}
import sys
sys.path.insert(0, {source!r})
from pytest_gpuready.model import Command
from pytest_gpuready.transport.slurm import Slurm
from pytest_gpuready.parse.hostlist import expand

suites, (level, _, transport, _, nodes, *rest) = sys.argv[1:4], sys.argv[4:]
assert (*suites, level, transport) == ("--pyargs", "pytest_gpuready.suites", "-m", "level1", "slurm"), sys.argv
asked = [Command(node=node, argv=("sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"), timeout_s=60)
         for node in expand(nodes)]
for command, outcome in Slurm(python=sys.executable).run_many(asked):
    print(command.node, outcome.stdout.split(), rest, flush=True)
sys.exit(20)
"""


def test_the_batch_example_runs_in_its_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """examples/slurm/acceptance.sbatch reaches every node of its job by srun, and ends as what it runs ends."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "pytest"
    stand_in.write_text(BATCH.format(python=sys.executable, source=str(ROOT / "src")))
    stand_in.chmod(0o755)
    folder = [f"--chdir={tmp_path}", "--output=out", "--open-mode=append", "--parsable"]
    example = str(ROOT / "examples" / "slurm" / "acceptance.sbatch")
    job = slurm.ask("sbatch", "--nodes=2", f"--export=ALL,GPUREADY_VENV={tmp_path}", *folder, example, "--more").strip()
    assert slurm.is_idle()
    said = (tmp_path / "out").read_text()
    assert "ExitCode=20:0" in slurm.ask("scontrol", "-o", "show", "job", job), said
    gpus = "0,1,2,3,4,5,6,7"
    assert sorted(said.splitlines()) == [f"{name} ['{name}', '{gpus}'] ['--more']" for name in slurm.names[:2]]
