"""The state of a box, read from its Job and pods, and what took the box. All functions are pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_tenant.domain.model import BoxState, Fate
from gpu_tenant.domain.untrusted_text import cite
from gpu_tenant.providers.kubernetes.client import Shown
from gpu_tenant.providers.kubernetes.job_manifest import CONTAINER, FIRST_POD

_HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"})
"""Waiting reasons that will not go away by themselves."""
_SAID_CHARS = 300
_LIMIT = "exceed"
"""If an eviction's message has this word, the pod exceeded a limit of its own. Another pod would, too."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One Job as it is now: its state, words if the state needs them, what took it, and the pod to reach."""

    state: BoxState
    words: str | None = None
    taken: Fate | None = None
    pod: Shown | None = None
    """The pod that runs, even if it is not yet noted as the first."""


def look(job: Shown, pods: Sequence[Shown]) -> JobView:
    """Read the state of that Job's box. `pods` are the pods that the Job owns.

    Only the Job's first pod is the box: a pod that the Job started in its place has an empty disk.
    """
    first = _metadata(job).get("annotations", {}).get(FIRST_POD)
    own = next((pod for pod in pods if _metadata(pod)["uid"] == first), None)
    if first is None and pods:
        own = min(pods, key=lambda pod: str(_metadata(pod).get("creationTimestamp")))
    ended = _end_of(job)
    if own is not None:
        seen = _of_pod(own, ended)
    elif ended is not None:
        seen = ended
    elif first is not None:
        again = "; the Job started another pod, with an empty disk" if pods else ""
        seen = JobView(BoxState.BROKEN, f"its pod is gone{again}", "preempted")
    else:
        seen = _waiting_job(job)
    if _metadata(job).get("deletionTimestamp"):
        return JobView(
            BoxState.BROKEN,
            _join("it is being deleted", seen.words),
            seen.taken or "stopped_by_provider",
        )
    return seen


def has_ended(job: Shown) -> bool:
    """Whether the Job says that it has ended, so that it starts no pod any more."""
    return _end_of(job) is not None


def _of_pod(pod: Shown, ended: JobView | None) -> JobView:
    status = pod.get("status", {})
    phase, said = status.get("phase"), cite(str(status.get("message", "")), most=_SAID_CHARS)
    reason = str(status.get("reason", ""))
    taken = _fate_of(pod)
    if phase in ("Failed", "Succeeded"):
        if taken is not None:
            return JobView(BoxState.BROKEN, taken[1], taken[0])
        if reason == "DeadlineExceeded" or (ended is not None and ended.taken == "walltime"):
            return JobView(
                BoxState.BROKEN, "the deadline of its Job has passed: DeadlineExceeded", "walltime"
            )
        died = (
            _death(pod)
            or _join(cite(reason, most=_SAID_CHARS), said)
            or "its first process has ended"
        )
        also = f"; {ended.words}" if ended is not None and ended.words else ""
        return JobView(BoxState.BROKEN, f"{died}{also}", "stopped_by_provider")
    if phase == "Unknown" or reason == "NodeLost":
        return JobView(BoxState.UNKNOWN, _join("its node does not answer", said))
    if _metadata(pod).get("deletionTimestamp"):
        fate, words = taken or ("preempted", "its pod is being deleted")
        return JobView(BoxState.BROKEN, words, fate)
    if phase == "Pending":
        return _pending_view(pod)
    if phase == "Running":
        if taken is not None and taken[0] == "host_lost":
            return JobView(BoxState.UNKNOWN, taken[1])
        ready = any(_runs(shown) for shown in _containers(pod))
        return JobView(BoxState.READY if ready else BoxState.BOOTING, pod=pod)
    return JobView(
        BoxState.UNKNOWN, f"Kubernetes calls its pod {cite(str(phase), most=_SAID_CHARS)}"
    )


def _fate_of(pod: Shown) -> tuple[Fate, str] | None:
    """Return what took the pod. None unless the cluster itself says so."""
    status = pod.get("status", {})
    reason, said = (
        str(status.get("reason", "")),
        cite(str(status.get("message", "")), most=_SAID_CHARS),
    )
    told = _condition(pod, "DisruptionTarget")
    why, more = (
        (
            cite(str(told.get("reason", "")), most=_SAID_CHARS),
            cite(str(told.get("message", "")), most=_SAID_CHARS),
        )
        if told
        else ("", "")
    )
    if reason == "Evicted":
        own_fault = _LIMIT in said.casefold()
        return (
            "stopped_by_provider" if own_fault else "preempted",
            _join("it was evicted", said),
        )
    if reason in ("Preempting", "Preempted") or why == "PreemptionByScheduler":
        return ("preempted", _join("a pod of higher priority has taken its place", said or more))
    if (
        reason in ("NodeLost", "NodeShutdown", "Shutdown", "Terminated")
        or why == "DeletionByTaintManager"
    ):
        return ("host_lost", _join("its node is gone, or shut down", said or more))
    if why == "DeletionByPodGC":
        return ("host_lost", _join("its node does not exist any more", more))
    if why in ("EvictionByEvictionAPI", "TerminationByKubelet"):
        return (
            "preempted",
            _join("it was evicted, for example because its node is drained", said or more),
        )
    if reason in ("UnexpectedAdmissionError", "OutOfnvidia.com/gpu", "OutOfcpu", "OutOfmemory"):
        return ("stopped_by_provider", _join(f"its node refused it: {reason}", said))
    ready = _condition(pod, "Ready")
    if ready and ready.get("reason") == "NodeNotReady":
        return ("host_lost", "its node does not answer")
    return None


def _death(pod: Shown) -> str | None:
    """Return in words how the box's first process ended. None if it has not ended."""
    for shown in _containers(pod):
        ended = shown.get("state", {}).get("terminated")
        if ended:
            reason, code = (
                cite(str(ended.get("reason", "")), most=_SAID_CHARS),
                ended.get("exitCode"),
            )
            if reason == "OOMKilled":
                return "it needed more memory than its limit, so all of it was killed: OOMKilled"
            return f"its first process ended with {code}: {reason or 'no reason was given'}"
    return None


def _pending_view(pod: Shown) -> JobView:
    placed = _condition(pod, "PodScheduled")
    if placed and placed.get("status") == "False":
        said = cite(str(placed.get("message", "")), most=_SAID_CHARS)
        return JobView(
            BoxState.BOOTING,
            _join(
                f"it waits for a place, and costs nothing: {cite(str(placed.get('reason')), most=_SAID_CHARS)}",
                said,
            ),
        )
    for shown in _containers(pod):
        waits = shown.get("state", {}).get("waiting")
        if waits:
            reason, said = (
                cite(str(waits.get("reason", "")), most=_SAID_CHARS),
                cite(str(waits.get("message", "")), most=_SAID_CHARS),
            )
            state = BoxState.BROKEN if reason in _HOPELESS else BoxState.BOOTING
            return JobView(state, _join(_IMAGE.get(reason, reason) or "it starts", said))
    return JobView(BoxState.BOOTING)


_IMAGE = {
    "ErrImagePull": "its image cannot be pulled: ErrImagePull",
    "ImagePullBackOff": "its image cannot be pulled, and is tried again: ImagePullBackOff",
    "InvalidImageName": "its image has an invalid name: InvalidImageName",
    "ContainerCreating": "",
}


def _end_of(job: Shown) -> JobView | None:
    """Return what the Job itself says about its end. None while it has not ended."""
    failed = _condition(job, "Failed") or _condition(job, "FailureTarget")
    if failed and failed.get("status") == "True":
        reason, said = (
            cite(str(failed.get("reason", "")), most=_SAID_CHARS),
            cite(str(failed.get("message", "")), most=_SAID_CHARS),
        )
        if reason == "DeadlineExceeded":
            return JobView(
                BoxState.BROKEN, "the deadline of its Job has passed: DeadlineExceeded", "walltime"
            )
        return JobView(
            BoxState.BROKEN, _join(f"its Job has failed: {reason}", said), "stopped_by_provider"
        )
    complete = _condition(job, "Complete")
    if complete and complete.get("status") == "True":
        return JobView(
            BoxState.BROKEN, "its first process has ended by itself", "stopped_by_provider"
        )
    return None


def _waiting_job(job: Shown) -> JobView:
    held = _condition(job, "Suspended")
    queue = _metadata(job).get("labels", {}).get("kueue.x-k8s.io/queue-name")
    if (held and held.get("status") == "True") or job.get("spec", {}).get("suspend"):
        return JobView(BoxState.BOOTING, f"it waits in the queue {queue or 'of this cluster'}")
    return JobView(BoxState.BOOTING)


def _containers(pod: Shown) -> Iterator[Mapping[str, Any]]:
    for shown in pod.get("status", {}).get("containerStatuses", []) or []:
        if shown.get("name") == CONTAINER:
            yield shown


def _runs(shown: Mapping[str, Any]) -> bool:
    return "running" in shown.get("state", {})


def _condition(thing: Shown, kind: str) -> Mapping[str, Any] | None:
    told = thing.get("status", {}).get("conditions", []) or []
    return next((each for each in told if each.get("type") == kind), None)


def _metadata(thing: Shown) -> Mapping[str, Any]:
    found: Mapping[str, Any] = thing.get("metadata", {})
    return found


def _join(*said: str | None) -> str:
    return ": ".join(part for part in said if part)
