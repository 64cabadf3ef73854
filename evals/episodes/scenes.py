"""The episodes: a provider, a job, and what goes wrong, of which the agent is told nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from evals.episodes.desk import Happening, Owner
from evals.episodes.link import cut, mend
from evals.episodes.referee import Referee
from evals.episodes.task import Trap
from gpu_tenant.emulators.boxes import Way
from gpu_tenant.emulators.faults import Fault, Match
from gpu_tenant.emulators.gcp.responses import PROJECT

LIST: Final = {
    "runpod": Match(method="GET", path_regex=r"/pods$"),
    "vastai": Match(method="GET", path_regex=r"/instances/$"),
    "lambda_cloud": Match(method="GET", path_regex=r"/instances$"),
    "digitalocean": Match(method="GET", path_regex=r"/droplets$"),
    "autodl": Match(method="POST", path_regex=r"/pro/list$"),
}
CREATE: Final = {
    "runpod": Match(method="POST", path_regex=r"/pods$"),
    "vastai": Match(method="PUT", path_regex=r"/asks/"),
    "lambda_cloud": Match(method="POST", path_regex=r"/launch$"),
    "digitalocean": Match(method="POST", path_regex=r"/droplets$"),
    "autodl": Match(method="POST", path_regex=r"/create$"),
}
DESTROY: Final = {
    "runpod": Match(method="DELETE", path_regex=r"/pods/"),
    "vastai": Match(method="DELETE", path_regex=r"/instances/"),
    "lambda_cloud": Match(method="POST", path_regex=r"/terminate$"),
    "digitalocean": Match(method="DELETE", path_regex=r"/droplets/"),
    "autodl": Match(method="POST", path_regex=r"/release$"),
}
_ANY: Final = Match(path_regex=r"^/(?!_rehearsal)")


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode."""

    name: str
    provider: str
    trap: Trap = "none"
    faults: Sequence[Fault] = ()
    meanwhile: Sequence[Happening] = ()
    way: Way = "local"
    hours: float = 2
    owner: Owner | None = None


def _struck(*faults: Fault) -> "_Strike":
    return _Strike(faults)


@dataclass(frozen=True, slots=True)
class _Strike:
    """Those faults happen."""

    faults: Sequence[Fault]

    def __call__(self, referee: Referee) -> None:
        referee.strike(*self.faults)


def _cut(referee: Referee) -> None:
    """Nobody answers on the boxes, whose jobs go on."""
    for box in referee.boxes():
        cut(referee.home_of(box).parent)


def _mended(referee: Referee) -> None:
    """They answer again."""
    for box in referee.boxes():
        mend(referee.home_of(box).parent)


def taken_back(referee: Referee) -> None:
    """The provider wanted the box for somebody else, and has stopped it by now."""
    _cut(referee)  # a box that ends takes its open sessions along
    referee.strike(Fault(do="preempted"))
    referee.wait(60)


def starts_it(referee: Referee) -> None:
    """The owner has started the box in the console, and it has booted."""
    (box,) = referee.boxes()
    way = {
        "vastai": ("PUT", f"/api/v0/instances/{box}/", {"state": "running"}),
        "gcp": ("POST", f"/compute/v1/projects/{PROJECT}/zones/{box}/start", None),
    }
    method, path, body = way[referee.stage.provider]
    referee.at_the_console(method, path, body)
    referee.wait(300)


def _after(tool: str, do: Fault | object, nth: int = 1) -> Happening:
    act = _struck(do) if isinstance(do, Fault) else do
    return Happening("after", tool, act, nth)  # type: ignore[arg-type]


def _on(match: Match, do: str, **more: Any) -> Fault:
    return Fault(do=do, match=match, **more)


def _away(referee: Referee) -> None:
    """Nobody has looked for five hours."""
    referee.wait(5 * 3600)


SCENES: Final = (
    Scene("nothing goes wrong", "runpod"),
    Scene("create lost", "runpod", faults=[_on(CREATE["runpod"], "drop_after")]),
    Scene("made twice", "vastai", faults=[_on(CREATE["vastai"], "twice")]),
    Scene(
        "list lag, create lost",
        "digitalocean",
        faults=[Fault(do="list_lag", seconds=90), _on(CREATE["digitalocean"], "drop_after")],
    ),
    Scene("no capacity", "lambda_cloud", faults=[_on(CREATE["lambda_cloud"], "no_capacity")]),
    Scene(
        "price raised after the search",
        "lambda_cloud",
        meanwhile=[_after("find_offers", Fault(do="price_moved", amount=1.5))],
    ),
    Scene(
        "429 storm",
        "runpod",
        meanwhile=[
            _after(
                tool,
                _on(_ANY, "status", status=429, times=8, headers={"Retry-After": "2"}, body="slow"),
            )
            for tool in ("smoke_test", "launch_detached", "collect")
        ],
    ),
    Scene(
        "taken back",
        "vastai",
        meanwhile=[_after("launch_detached", taken_back)],
        way="ssh",
        owner=starts_it,
    ),
    Scene(
        "taken back",
        "gcp",
        meanwhile=[_after("launch_detached", taken_back)],
        way="ssh",
        owner=starts_it,
    ),
    Scene(
        "link cut",
        "runpod",
        way="ssh",
        meanwhile=[_after("launch_detached", _cut), _after("list_leases", _mended, 3)],
    ),
    Scene("late file", "digitalocean", trap="late"),
    Scene("checkpoint does not load", "autodl", trap="broken"),
    Scene("unclaimed file", "lambda_cloud", trap="unclaimed"),
    Scene("crash", "vastai", trap="crash"),
    Scene("nobody looks past the deadline", "gcp", meanwhile=[_after("monitor", _away)]),
    Scene("destroy lost", "vastai", faults=[_on(DESTROY["vastai"], "drop_before", times=2)]),
    Scene(
        "destroy changes nothing",
        "lambda_cloud",
        faults=[Fault(do="stuck_termination")],
        meanwhile=[_after("verify_and_teardown", Fault(do="stuck_termination", amount=0))],
    ),
    Scene("destroy refused in a 200", "vastai", faults=[_on(DESTROY["vastai"], "soft_failure")]),
)

CARELESS: Final = (
    Scene("nothing goes wrong", "runpod"),
    Scene("create lost", "runpod", faults=[_on(CREATE["runpod"], "drop_after")]),
    Scene("late file", "runpod", trap="late"),
    Scene("checkpoint does not load", "runpod", trap="broken"),
    Scene("unclaimed file", "runpod", trap="unclaimed"),
    Scene(
        "429 storm",
        "runpod",
        faults=[_on(DESTROY["runpod"], "status", status=429, times=8, body="slow")],
    ),
)
"""What careless ones meet, too."""

CHEATED: Final = tuple(
    Scene("every way through the tools", slug) for slug in ("runpod", "vastai", "lambda_cloud")
)
