"""STAND-IN for a worker: no GPU. It speaks the protocol, and misbehaves as it is told by BEHAVE (JSON: BDF -> word).

    fake_worker.py BDF

Words, "NAME" or "NAME@PHASE" (from phase 0 on where there is none): what it does instead of the right thing. A phase
with repeats lasts until the file UNTIL is there. Of a phase with `within` it knows enough after `least_s`, unless it is
"unsure".
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

LATE_S = 1.2


def say(line):
    os.write(1, json.dumps(line).encode() + b"\n")


class Lines:
    """Lines of stdin, with a time-out."""

    def __init__(self):
        self.tail = b""

    def next(self, timeout=None):
        """The next line; None when the time is over, {"stop": True} at the end of stdin."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self.tail:
            left = None if give_up is None else max(0.0, give_up - time.monotonic())
            if not select.select([0], [], [], left)[0]:
                return None
            piece = os.read(0, 65536)
            if not piece:
                return {"stop": True}
            self.tail += piece
        line, self.tail = self.tail.split(b"\n", 1)
        return json.loads(line)


def hang():
    """Neither answers nor ends by itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def result(phase, seconds, line, word):
    found = {"seconds": seconds, "cut": "stop" in line, "enough": "enough" in line}
    if word == "late":
        found["late_s"] = LATE_S
    if phase["kind"] == "gemm":
        side = 4096
        passes = max(1, round(700e12 * seconds / (2 * side**3)))
        rates = {"sustained_tflops": 700.0, "tflops": [700.0] * 4, "half_width": 0.001}
        counts = {"passes": passes, "checked": passes * side**2, "flop": 2.0 * side**3 * passes, "error_count": 0}
        if word in ("lie", "wrong"):
            counts["checked"] = 64
        if word == "wrong":
            where = {"pass_number": 3, "row": 1, "col": 2, "tile": 0, "bit": 1, "expected": "0x1", "found": "0x3"}
            counts |= {"error_count": 1, "errors": [where]}
        return found | rates | counts | {"format": phase["format"], "m": side, "n": side, "k": side}
    if phase["kind"] == "latency":
        return found | {"host_ns": [1190.0] * 5, "device_ns": [350.0] * 5, "steps": 1}
    rates = [4200.0] * max(1, phase.get("repeats", 1))
    return found | {"kernel": phase["kernel"], "gb_per_s": rates, "half_width": 0.001, "size_bytes": 2**30}


# Instead of an answer at the beginning of a phase, or before it is ready.
def misbehave(behaviour):
    if behaviour == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "exit":
        sys.stderr.write("cudaErrorIllegalAddress\n")
        sys.stderr.flush()
        os._exit(3)
    if behaviour == "hang":
        hang()
    if behaviour == "garbage":
        os.write(1, b"Segmentation fault \x1b[31m\n")
    if behaviour == "half":
        os.write(1, b'{"done": 0, "result": {"seco')
        os._exit(0)
    if behaviour == "flood":
        # Ends by SIGKILL; a crew that kept all of it would need 100 MB.
        for _ in range(1600):
            os.write(1, b"x" * 65536)
    if behaviour == "words":
        while True:
            say({"said": 0, "t": 0.0})
    if behaviour == "leave":
        subprocess.Popen(["sleep", "60"])
        os._exit(0)
    if behaviour == "orphan":
        # In a session of its own: killing our group does not reach it.
        subprocess.Popen(["sleep", "61"], start_new_session=True)
    if behaviour == "close":
        os.close(1)
        hang()


# Instead of an end in order.
def misbehave_at_the_end(behaviour):
    if behaviour == "stay":
        hang()
    if behaviour == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)


def main(bdf):
    word, _, at = json.loads(os.environ.get("BEHAVE", "{}")).get(bdf, "").partition("@")
    lines = Lines()
    if at == "start":
        misbehave(word)
    work = lines.next()["work"]
    if word == "problem":
        say({"problem": "no memory\non this GPU"})
        return
    claims = "0000:ff:00.0" if word == "claims" else bdf
    say({"ready": {"bdf": claims, "name": "stand-in", "formats": ["bf16"], "start_s": 0.1}})
    while True:
        line = lines.next()
        if line.get("stop"):
            misbehave_at_the_end(word)
            return
        if "enough" in line:  # of a phase that ended by itself meanwhile
            continue
        number, begin = line["begin"], line["at"]
        phase = work["phases"][number]
        behaviour = word if word and number >= int(at or 0) and at != "start" else ""
        lasts = phase.get("seconds") or 0.05
        if behaviour == "late":
            begin += LATE_S
        time.sleep(max(0.0, begin - time.monotonic()))
        misbehave(behaviour)
        if behaviour == "failed":
            say({"failed": number, "problem": "CUDA_ERROR_OUT_OF_MEMORY"})
            continue
        say({"said": number, "t": time.monotonic() - begin, "tflops": 700.0})
        if phase.get("within") and behaviour != "unsure":
            time.sleep(phase["least_s"])
            say({"said": number, "t": time.monotonic() - begin, "enough": True})
        stopped = lines.next(max(0.0, begin + lasts - time.monotonic()))
        while phase.get("repeats") and not stopped and not Path(os.environ["UNTIL"]).exists():
            stopped = lines.next(0.01)
        if stopped and word == "stay":
            hang()
        took = time.monotonic() - begin
        say({"done": number, "result": result(phase, took, stopped or {}, behaviour)})
        if stopped and "stop" in stopped:
            return


main(sys.argv[1])
