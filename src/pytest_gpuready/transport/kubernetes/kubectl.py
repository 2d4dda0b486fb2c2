"""`kubectl`, called with a list of words under a deadline, and what its complaints mean in one line.

kubectl is taken as it is: no plug-in, no preferences of the person (KUBECTL_KUBERC), answers as JSON. Its complaints
have no form that a program could read; those that people meet are known here by their fixed words, and any other is
shown as it stands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from pytest_gpuready.errors import TransportError
from pytest_gpuready.transport.kept import shown

CALL_S = 60.0
"""By when a call other than exec has ended; the request itself is given up a little before."""

ENVIRONMENT = {"LC_ALL": "C", "KUBECTL_KUBERC": "false"}

_TODO = (
    (r"\(Forbidden\).*exceeded quota", "raise the quota of the namespace, or name fewer nodes"),
    (r"\(Forbidden\)|is forbidden", "give the account this right, see docs/kubernetes.md"),
    (r"logged in to the server|\(Unauthorized\)|getting credentials", "renew your login to the cluster"),
    (r"namespaces? \"[^\"]*\" not found", "make the namespace first, see docs/kubernetes.md"),
    (r"serviceaccount .*not found", "make the service accounts first, see docs/kubernetes.md"),
    (r"strict decoding error|unknown field", "expected Kubernetes 1.29 or later"),
    (r"context .* does not exist|no context exists", "correct the context, see `kubectl config get-contexts`"),
    (r"error loading config file|stat .*no such file", "correct the kubeconfig"),
    (r"was refused|Unable to connect to the server|couldn't get current server API|i/o timeout|TLS handshake", ""),
    (r"pods? \"?[^\"]*\"? not found|pod does not exist|completed pod|container not found", "see what ended the pod"),
    (r"error dialing backend|no preferred addresses", "see whether the node is up and its kubelet answers"),
    (
        r"executable file not found|failed to run command|no such file or directory",
        "put Python 3 and timeout (coreutils) into the image",
    ),
)
_NOT_SAID = re.compile(r"^(Defaulted container|Warning: |W\d{4} |I\d{4} )")
_PREFIX = re.compile(r"^(Error from server:? ?|error: |Unable to use a TTY.*|E\d{4} [\d:.]+ +\d+ \S+\] )")
_SEE = "see that `kubectl get nodes` works"


class KubectlError(TransportError):
    """kubectl could not do what was asked. The text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """The program and the cluster that it speaks to. Empty `context` and `kubeconfig` are the person's own."""

    program: str
    namespace: str
    context: str = ""
    kubeconfig: str = ""

    def words(self, *words: str) -> list[str]:
        """The whole command line."""
        to = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        if self.context:
            to.append(f"--context={self.context}")
        return [self.program, *to, f"--namespace={self.namespace}", *words]

    def call(self, *words: str, stdin: str = "", timeout_s: float = CALL_S) -> tuple[str, str]:
        """What it prints, and the warnings beside it as one line.

        Raises:
            KubectlError: it cannot be started, did not end in time or exited with another code than 0.
        """
        verb = " ".join(words[:2])
        request_s = max(1, int(timeout_s * 0.8))
        try:
            done = subprocess.run(
                self.words(*words, f"--request-timeout={request_s}s"),
                input=stdin.encode(),
                capture_output=True,
                timeout=timeout_s,
                check=False,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(
                f"kubectl {verb}: expected an answer within {timeout_s:g} s, found none; {_SEE}"
            ) from error
        except OSError as error:
            raise KubectlError(f"kubectl: expected to start {self.program}, found {error.strerror}") from error
        if done.returncode:
            found, todo = complaint(done.stderr) or (f"exit code {done.returncode}", _SEE)
            raise KubectlError(f"kubectl {verb}: expected an answer of the cluster, found {found}; {todo}")
        warned = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("Warning: ")]
        return done.stdout.decode("utf-8", "replace"), shown(" ".join(warned).removeprefix("Warning: ").encode())


def find(named: str) -> str:
    """The path of kubectl.

    Raises:
        TransportError: there is none.
    """
    path = shutil.which(named)
    if path is None:
        raise TransportError(f"expected {named} for the kubernetes transport, found none; install it or correct PATH")
    return path


def complaint(stderr: bytes) -> tuple[str, str] | None:
    """What kubectl complains of and what to do about it; None where it says nothing."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [line for line in lines if not _NOT_SAID.match(line)]
    if not lines:
        return None
    # What is wrong stands last; before it a client that tries again repeats itself.
    known = (line for line in reversed(lines) if any(re.search(pattern, line) for pattern, _ in _TODO))
    said = next(known, lines[-1])
    todo = next((todo or _SEE for pattern, todo in _TODO if re.search(pattern, said)), _SEE)
    return shown(_PREFIX.sub("", said).encode()), todo
