"""Where a test must run, a skip is a failure."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import slow
from hypothesis import HealthCheck, settings
from parts import not_run

if TYPE_CHECKING:
    from kube.cluster import Cluster

# Every box of a test is this computer: nothing that a test starts may switch it off.
os.environ["GPU_TENANT_NO_POWEROFF"] = "1"
# The interpreter itself before any program that looks for it: it starts thousands of times.
_PYTHON = Path(shutil.which("python3") or "")
if (_PYTHON.parent.parent / "pyvenv.cfg").exists() or not _PYTHON.samefile(sys.executable):
    os.environ["PATH"] = os.pathsep.join((f"{sys.base_prefix}/bin", os.environ["PATH"]))
# What is imported is compiled once, and not by each of thousands of programs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A busy machine is slow to draw an input, which says nothing of the program.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# A run in the background ignores Ctrl-C, and so would every program that a test sends it to.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """A real Kubernetes of this worker's own."""
    from kube.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("kube")) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test has failed, with the reason it gave for skipping."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where everything must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """What a test takes is written down where somebody asks for that."""
    if directory := os.environ.get(slow.MEASURED_IN):
        return (yield from slow.measured(item, nextitem, directory))
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """The last lines say what this machine could not run, and which command brings it."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", ()) if reporter else ()
    if skipped and not hasattr(session.config, "workerinput"):
        for line in not_run([report.longrepr[2] for report in skipped]):
            reporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What thousands of tests are made of stays until the end: nobody looks through it for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what forks at every step, while the process is small; then the long tests of which most
    is waiting, so that others work meanwhile; then what takes longest, so that no worker is left
    alone with it at the end."""
    order = ("crash", "death", "slurm", "week", "over", "market", "storm", "preemption", "kube")
    order += ("e2e", "fuzz", "browser", "contract", "evals", "scripts")
    last = len(order)
    slow.mark(items)
    items.sort(
        key=lambda item: next((n for n, part in enumerate(order) if part in item.path.parts), last)
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing that a test started outlives the run: guards hold a deadline a day away."""
    factory = getattr(config, "_tmp_path_factory", None)
    ours = os.fsencode(str(factory.getbasetemp())) if factory else None
    for entry in Path("/proc").glob("[0-9]*") if ours else ():
        try:
            home = next(
                (
                    v
                    for v in (entry / "environ").read_bytes().split(b"\0")
                    if v.startswith(b"HOME=")
                ),
                b"",
            )
            if home.startswith(b"HOME=" + ours) and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue
