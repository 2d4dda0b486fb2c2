"""Text of a plug-in for runs whose node is recorded and whose `dcgmi` is a stand-in that really runs here.

It sits at the transport's seam: DCGM commands go to the local transport, everything else is answered by the recording.
Host name and boot id of this machine are written over by the recorded ones, or the two would be two machines.
"""

MIXED = """
import dataclasses
import json
import os
import pytest_gpuready.campaign.reach
from pytest_gpuready.agent.__main__ import boot_id
from pytest_gpuready.transport import Interrupted
from pytest_gpuready.transport.local import Local
from pytest_gpuready.transport.replay import Replay

class Mixed(Replay):
    def __init__(self, directory):
        super().__init__(directory)
        self._local = Local()

    def run(self, command):
        if "around" not in command.argv:
            return super().run(command)
        at_most = float(os.environ.get("TEST_DEADLINE_S", "60"))
        try:
            result = self._local.run(dataclasses.replace(command, timeout_s=at_most))
        except Interrupted as stop:
            raise Interrupted(self._ours(stop.result, command)) from None
        return self._ours(result, command)

    def _ours(self, result, command):
        recorded = self._results[command.node, tuple(command.argv[:3]) + ("node",)][0].stdout
        said = json.loads(recorded)
        ours = f'"host":{json.dumps(os.uname().nodename)}'
        stdout = result.stdout.replace(boot_id(), said["boot_id"])
        stdout = stdout.replace(ours, f'"host":{json.dumps(said["host"])}', 1)
        return dataclasses.replace(result, command=command, stdout=stdout)

pytest_gpuready.campaign.reach.Replay = Mixed
"""
