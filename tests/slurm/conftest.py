"""A cluster for all tests of a worker, and somebody who works on its login node."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from slurm.cluster import Cluster

from gpu_tenant.app import known_platforms, open_tenancy
from gpu_tenant.domain.model import Profile
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.cards import Card
from gpu_tenant.service import Tenancy

TRAIN = """\
import json, os, signal, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory

out = Path(*sys.argv[2:] or ["out"])
out.mkdir(parents=True, exist_ok=True)
kept = out / "checkpoint.json"
step = json.loads(kept.read_text())["step"] if kept.exists() else 0
begun = step


def save(*asked):
    kept.with_suffix(".new").write_text(json.dumps({"step": step, "seed": os.environ.get("SEED")}))
    kept.with_suffix(".new").rename(kept)
    if asked:
        print("saved at", step, flush=True)
        sys.exit(1)


signal.signal(signal.SIGTERM, save)
step += 1
print("begins at", begun, "in job", os.environ["SLURM_JOB_ID"], flush=True)
while not (Path(sys.argv[1]) / "enough").exists():
    step += 1
    time.sleep(0.05)
save()
print("done", flush=True)
"""
"""Works until it finds a file named `enough`, and goes on from where it was asked to save.

Once it has said where it begins, a signal finds it at a later step, and saves that."""


@dataclass(frozen=True)
class Site:
    """A person's home on the cluster, their work tree, and what they told the program of it."""

    root: Path
    cluster: Cluster

    @property
    def home(self) -> Path:
        """The home that login node and compute node share."""
        return self.root / "home"

    @property
    def state(self) -> Path:
        """The state directory of the program."""
        return self.root / "state"

    @property
    def tree(self) -> Path:
        """The work tree."""
        return self.root / "tree"

    @property
    def command(self) -> str:
        """The job's own command."""
        return f"python3 train.py {self.tree}"

    def configured(self, **more: object) -> None:
        """The owner's word on the cluster is in the configuration."""
        said = {"rate_usd_h": "0.5", "grace_s": 15, **more}
        lines = [f"{name} = {value!r}".replace("'", '"') for name, value in said.items()]
        lines += ['gpus = {a100 = "A100 SXM 80GB"}']
        self.state.mkdir(exist_ok=True)
        text = "\n".join(["[slurm]", *lines, ""]).replace('"0.5"', "0.5")
        (self.state / "config.toml").write_text(text, encoding="utf-8")

    def enough(self) -> None:
        """The job ends by itself."""
        (self.tree / "enough").touch()

    def last_of(self, lease: str) -> Path:
        """The lease's directory in the shared home."""
        return self.home / "gpu-tenant" / lease


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Short, because a socket lies in it.
    with Cluster(tmp_path_factory.mktemp("slurm", numbered=True).resolve()) as up:
        yield up


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Outside of /tmp, which no job of a site shares with its login node."""
    with TemporaryDirectory(prefix="slurm-", dir="/var/lib", ignore_cleanup_errors=True) as made:
        yield Path(made)


def platforms(home: Home | None = None) -> Mapping[str, Profile]:
    """As they are, but that nothing is accounted for in /tmp: all tests share it, and each seal would read it."""
    known = dict(known_platforms(home))
    kept = tuple(path for path in known["slurm"].accounted_paths if path != "/tmp")
    assert kept != known["slurm"].accounted_paths
    return {**known, "slurm": known["slurm"].model_copy(update={"accounted_paths": kept})}


@pytest.fixture
def here(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Somebody on the login node, which is this computer."""
    made = Site(tmp_path.resolve(), cluster)
    for directory in (made.home, made.tree):
        directory.mkdir()
    (made.tree / "train.py").write_text(TRAIN, encoding="utf-8")
    made.configured()
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("GPU_TENANT_HOME", str(made.state))
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    monkeypatch.setattr("gpu_tenant.app.known_platforms", platforms)
    yield made
    cluster.end_jobs()


@pytest.fixture
async def tenancy(here: Site) -> AsyncIterator[Tenancy]:
    opened = open_tenancy(os.environ)
    yield opened
    await opened.aclose()


async def allocated(tenancy: Tenancy, *, partition: str = "low", **more: object) -> Card:
    """A lease on one GPU of that partition, which has let us in."""
    found = await tenancy.find_offers(
        gpu="A100 SXM 80GB", hours=0.5, provider="slurm", interruptible="either"
    )
    (quote,) = [offer.quote for offer in found.offers if offer.region == partition]
    assert quote
    card: Card = await tenancy.provision(quotes=[quote], hours=0.5, smoke="none", **more)  # type: ignore[arg-type]
    return card
