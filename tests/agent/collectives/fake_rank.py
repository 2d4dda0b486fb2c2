"""STAND-IN for a rank: no GPU and no NCCL. It speaks the protocol, and misbehaves as BEHAVE says (JSON: BDF -> word).

    fake_rank.py BDF

Words, "NAME" or "NAME@STEP" ("NAME@start", "NAME@join" before there are steps): what it does instead of the right
thing. What it says of time is 1 ms a MiB and 10 us at least. Everything NCCL_* it sees goes to the file ENVIRONMENT.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

IN_PLACE = ("all_reduce", "all_gather", "reduce_scatter")
FUNCTIONS = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}


def say(line):
    os.write(1, json.dumps(line).encode() + b"\n")


def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def log(text):
    if "log" not in STATE and "NCCL_DEBUG_FILE" in os.environ:
        STATE["log"] = os.open(os.environ["NCCL_DEBUG_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if "log" in STATE:
        line = f"node01:{os.getpid()}:{os.getpid()} [0] NCCL {text}\n"
        os.write(STATE["log"], line.encode())


STATE = {}


def misbehave(word):
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "exit":
        sys.stderr.write("terminate called\n")
        sys.stderr.flush()
        os._exit(3)
    if word == "hang":
        hang()
    if word == "garbage":
        os.write(1, b"Segmentation fault \x1b[31m\n")
        hang()
    if word == "flood":
        os.write(1, b"x" * 400000)
        hang()
    if word == "problem":
        log("WARN Cuda failure 'an illegal memory access was encountered'")
        say({"problem": "all_reduce of 2 elements: expected ncclSuccess, found UnhandledCudaError (1)\nand more"})
        os._exit(1)
    if word == "waits":
        time.sleep(STATE.get("patience_s", 0.1))
        say({"problem": "the check: expected an end within 1 s, found it still under way", "waits": True})
        os._exit(1)
    if word == "segment":
        made = Path(f"/dev/shm/nccl-gpuready{os.getpid()}")
        made.write_text("x")
        os.utime(made, (1, 1))
        os._exit(3)


def result(step, word, rank, width):
    time_us = max(10.0, step["asked_bytes"] / 2**20 * 1000) * (1 + rank / 100)
    half = {"time_us": time_us, "wrong": 0}
    found = {"size_bytes": step["asked_bytes"], "out_of_place": half}
    found["times_us"] = [time_us + at for at in range(step["iterations"])]
    if step["op"] in IN_PLACE:
        found["in_place"] = dict(half)
    if word == "wrong":
        found["out_of_place"]["wrong"] = 3
        where = {"op": step["op"], "size_bytes": step["asked_bytes"], "in_place": False}
        found["wrong"] = [{**where, "count": 3, "first_index": 7, "expected": "12", "found": "nan"}]
    if word == "lie":
        found["out_of_place"]["time_us"] = -1.0
    if word == "silent_wrong":
        found["out_of_place"]["wrong"] = 3
    if word == "few":
        found["times_us"] = found["times_us"][1:]
    return found


def note_environment():
    if "ENVIRONMENT" in os.environ:
        with Path(os.environ["ENVIRONMENT"]).open("a") as kept:
            kept.write(json.dumps({n: v for n, v in os.environ.items() if n.startswith("NCCL_")}) + "\n")


def here_of(bdf, word, makes_id):
    return {
        "bdf": "0000:ff:00.0" if word == "claims" else bdf,
        "name": "stand-in",
        "pid": os.getpid(),
        "nccl_version": "2.28.9" if word == "old" else "2.32.3",
        "packages": {},
        "start_s": 0.1,
        "id": "ab" * 128 if makes_id else "",
    }


def main(bdf):
    word, _, at = json.loads(os.environ.get("BEHAVE", "{}")).get(bdf, "").partition("@")
    note_environment()
    lines = os.fdopen(0, "rb", buffering=0)
    rank = 0
    while text := lines.readline():
        line = json.loads(text)
        if "work" in line:
            if at == "start":
                misbehave(word)
            rank = line["work"]["rank"]
            say({"here": here_of(bdf, word, line["work"]["makes_id"])})
        elif "join" in line:
            assert line["join"] == "ab" * 128
            log("INFO NCCL version 2.32.3+cuda13.0")
            if at == "join":
                misbehave(word)
            free = 2**30 + 2 * 2**20 if word == "small" else 100 * 2**30
            say({"joined": {"init_s": 0.2, "free_bytes": free}})
        elif "largest" in line:
            say({"allocated": line["largest"]})
        elif "step" in line:
            step = line["step"]
            STATE["patience_s"] = step["patience_s"]
            log("INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}")
            if step["op"] in FUNCTIONS:
                size = step["asked_bytes"]
                log(f"INFO {FUNCTIONS[step['op']]}: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}")
            say({"said": step["number"], "stage": "warm-up"})
            mine = word if at.isdigit() and step["number"] == int(at) else ""
            misbehave(mine)
            if "STEP_S" in os.environ:
                time.sleep(float(os.environ["STEP_S"]))
            say({"done": step["number"], "result": result(step, mine, rank, 4)})
        elif line.get("stop"):
            if word == "stay":
                hang()
            return


main(sys.argv[1])
