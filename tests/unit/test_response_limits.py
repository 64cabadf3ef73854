"""A provider that drips, swells or never ends is given up in time, with what it said in the meantime let go."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from arranged import HandClock

from gpu_tenant.artifacts.stores.rclone import RcloneStore
from gpu_tenant.domain.errors import ProviderSilent, StoreTrouble
from gpu_tenant.domain.ports import Credential
from gpu_tenant.providers.gcp.client import GcpClient as GoogleCalls
from gpu_tenant.providers.http_client import Wire
from gpu_tenant.providers.kubernetes.client import KubernetesClient as KubernetesCalls
from gpu_tenant.providers.response_limits import Aside, Bounds, Leafing, await_list

SMALL = Bounds(call_s=1, list_s=1, answer_bytes=1 << 20, pages=20)
PATIENT = Bounds(call_s=60, list_s=60, answer_bytes=1 << 20, pages=20)
"""For clients that are imported at their first call."""
SWOLLEN = gzip.compress(bytes(64 << 20))


class Slow(ThreadingHTTPServer):
    """What its `way` says: `drips` blanks without end, `swells` when unpacked, or `pages` for ever."""

    daemon_threads = True

    def __init__(self, way: str) -> None:
        super().__init__(("127.0.0.1", 0), Desk)
        self.way = way
        self.asked = 0
        self.closed = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Desk(BaseHTTPRequestHandler):
    server: Slow

    def _any(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.server.way == "swells":
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(SWOLLEN)))
            self.end_headers()
            self.wfile.write(SWOLLEN)
        elif self.server.way == "pages":
            body = json.dumps(
                {
                    "pods": [],
                    "items": [],
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"continue": f"c{self.server.asked}"},
                    "nextPageToken": f"c{self.server.asked}",
                }
            ).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_header("Content-Length", "1000000000")
            self.end_headers()
            while not self.server.closed.wait(0.1):  # that is how slow it is
                self.wfile.write(b" ")
                self.wfile.flush()

    do_GET = do_POST = do_DELETE = _any

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def provider(way: str) -> Iterator[Slow]:
    with Slow(way) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closed.set()
            server.shutdown()
            thread.join()


def wired(server: Slow) -> Wire:
    return Wire(title="Tiny", base_url=server.url, credential=None, clock=HandClock(), bounds=SMALL)


def google(server: Slow, bounds: Bounds = PATIENT) -> GoogleCalls:
    project = Credential(source="env:P", read=lambda: "p")
    return GoogleCalls(endpoint=server.url, credential=project, clock=HandClock(), bounds=bounds)


def kubernetes(server: Slow, tmp_path: Path, bounds: Bounds = PATIENT) -> KubernetesCalls:
    kubeconfig = f"{tmp_path}/kubeconfig"
    entry = {"cluster": "c", "user": "u"}
    with Path(kubeconfig).open("w", encoding="utf-8") as file:
        json.dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": entry}],
            },
            file,
        )
    return KubernetesCalls("x", kubeconfig, bounds=bounds)


async def test_an_answer_that_drips_is_given_up_when_the_time_of_a_call_is_over() -> None:
    with provider("drips") as server:
        with pytest.raises(ProviderSilent, match="did not complete its answer"):
            await wired(server).get("/boxes")

        assert server.asked == 1


async def test_an_answer_that_swells_when_it_is_unpacked_is_not_taken_in() -> None:
    with provider("swells") as server, pytest.raises(ProviderSilent, match="larger than 1 MiB"):
        await wired(server).get("/boxes")


async def test_googles_client_is_given_up_when_its_answer_drips() -> None:
    with provider("drips") as server, pytest.raises(ProviderSilent, match="did not answer"):
        await google(server, SMALL).ask("Instances", "list", {"zone": "z"}, often="once")


async def test_googles_client_does_not_take_in_what_swells() -> None:
    with provider("swells") as server, pytest.raises(ProviderSilent, match="larger than 1 MiB"):
        await google(server).ask("Instances", "list", {"zone": "z"}, often="once")


async def test_googles_pages_are_not_followed_for_ever() -> None:
    with provider("pages") as server:
        with pytest.raises(ProviderSilent, match=r"more than 20 pages|took longer"):
            await google(server).pages("Images")

        assert server.asked <= 20


async def test_the_client_of_a_cluster_is_given_up_when_its_answer_drips(tmp_path: Path) -> None:
    with provider("drips") as server, pytest.raises(ProviderSilent, match="did not answer"):
        await kubernetes(server, tmp_path, SMALL).ask("CoreV1Api", "list_pod_for_all_namespaces")


async def test_the_client_of_a_cluster_does_not_take_in_what_swells(tmp_path: Path) -> None:
    with provider("swells") as server, pytest.raises(ProviderSilent, match="larger than 1 MiB"):
        await kubernetes(server, tmp_path).ask("CoreV1Api", "list_pod_for_all_namespaces")


async def test_a_clusters_pages_are_not_followed_for_ever(tmp_path: Path) -> None:
    with provider("pages") as server:
        with pytest.raises(ProviderSilent, match=r"more than 20 pages|took longer"):
            await kubernetes(server, tmp_path).pages("CoreV1Api", "list_pod_for_all_namespaces")

        assert server.asked <= 20


async def test_pages_end_by_their_number_their_size_and_their_time() -> None:
    by_number = Leafing("a list", Bounds(pages=3))
    by_number.turn()
    by_number.turn()
    with pytest.raises(ProviderSilent, match="more than 3 pages"):
        by_number.turn()
    with pytest.raises(ProviderSilent, match="larger than 1 MiB"):
        Leafing("a list", Bounds(list_bytes=1 << 20)).turn(2 << 20)
    by_time = Leafing("a list", Bounds(list_s=-1))
    with pytest.raises(ProviderSilent, match="took longer"):
        by_time.turn()


async def test_a_list_that_never_comes_is_given_up() -> None:
    with pytest.raises(ProviderSilent, match="did not come"):
        await await_list(asyncio.Event().wait(), "the list", Bounds(list_s=0.05))


async def test_calls_that_hang_do_not_pile_up_without_end() -> None:
    release = threading.Event()
    aside = Aside("Tiny", Bounds(call_s=0.02))
    try:
        for _ in range(8):
            with pytest.raises(ProviderSilent, match="did not answer"):
                await aside.do(release.wait, "list")
        before = threading.active_count()

        with pytest.raises(ProviderSilent, match="8 earlier calls hang"):
            await aside.do(release.wait, "list")

        assert threading.active_count() == before
    finally:
        release.set()


async def test_a_call_aside_gives_what_it_returned_and_raises_what_it_raised() -> None:
    aside = Aside("Tiny")

    assert await aside.do(lambda: 7, "seven") == 7
    with pytest.raises(ZeroDivisionError):
        await aside.do(lambda: 1 // 0, "nothing")


@pytest.mark.parametrize(
    ("does", "told"),
    [("sleep 60", "did not end within 1 s"), ("cat /dev/zero", "said more than 1 MiB")],
)
async def test_a_store_that_hangs_or_never_stops_talking_is_given_up(
    tmp_path: Path, does: str, told: str
) -> None:
    program = tmp_path / "rclone"
    program.write_text(f"#!/bin/sh\nexec {does}\n")
    program.chmod(0o700)
    store = RcloneStore(
        "r:x", words="the store", bounds=SMALL, environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )

    with pytest.raises(StoreTrouble, match=told):
        await store.names("d")
