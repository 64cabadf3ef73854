"""`python -m evals.idle.synthesis`: traces of what cannot be recorded without a GPU, made up from what is known of such work."""

import random
import sys
from collections.abc import Callable
from typing import Any, Final

from evals.idle.traces import packed, write

Card = list[float | None]


class Box:
    """A box that is looked at once a minute; each stretch of its day is added with its label."""

    def __init__(
        self,
        name: str,
        made: str,
        *,
        cards: int = 1,
        every_s: float = 60.0,
        power: float | None = 400.0,
        driver: str = "ok",
        noise: float = 0.006,
    ) -> None:
        self.name, self.made, self.cards, self.every_s = name, made, cards, every_s
        self.power, self.driver, self.noise = power, driver, noise
        self.rows: list[list[Any]] = []
        self.labels: list[tuple[str, str, int]] = []
        self.dice = random.Random(name)  # noqa: S311

    def add(
        self,
        looks: int,
        truth: str,
        phase: str,
        alive: int,
        *,
        gpu: Callable[["Box"], list[Card]] | None = None,
        job: tuple[float, ...] = (0, 0, 0, 0, 0),
        hand: tuple[float, ...] = (0, 0, 0, 0, 0),
        net: tuple[float, float] = (0, 0),
        kind: str = "",
        dt: float | None = None,
        **marks: float,
    ) -> "Box":
        """`job` and `hand` are cores, MB/s read, written and to disk, and processes; `net` MB/s in and out."""
        for _ in range(looks):
            dt_s = (dt or self.every_s) + self.dice.uniform(-0.4, 0.6)
            row: list[Any] = [dt_s]
            spent: dict[str, float] = {}
            for group, rates in (("job", job), ("hand", hand)):
                cores, *streams, procs = rates
                shake = self.dice.lognormvariate(0, 0.15)
                # A core's worth is a core's worth: what spins does so evenly.
                cores = cores * (shake if cores not in (1.0, 2.0, 8.0) else 1.0)
                flows = [1e3 * mb * shake * dt_s for mb in streams]
                if group == "hand":  # what every image has running, whoever uses it
                    cores += self.dice.uniform(0.2, 1.8) * self.noise
                    flows = [f + self.dice.uniform(0, 3) * dt_s for f in flows]
                    procs += 5
                if kind and cores > self.noise * 2:
                    spent[kind] = spent.get(kind, 0.0) + cores * dt_s
                row += [cores * dt_s, *flows, int(procs)]
            row += [(1e3 * mb + self.dice.uniform(0.1, 2.5)) * dt_s for mb in net]
            row.append(spent)
            if self.driver == "ok":
                row += [list(card) for card in (gpu or rest())(self)]
            self.rows.append(row)
            self.labels.append((truth, phase, alive))
        self.rows[-looks][len(self.rows[0]) - 1 - (self.cards if self.driver == "ok" else 0)] |= (
            marks
        )
        return self

    def done(self) -> None:
        """The trace is on the disk."""
        header: dict[str, Any] = {
            "how": "synthetic",
            "made": self.made,
            "driver": self.driver,
            "power_max_w": self.power,
            "spans": packed(self.labels),
        }
        write(f"synthetic_{self.name}", header, self.rows)


def rest(
    mem: float = 4, job: int = 0, hand: int = 0, watts: float = 0.14
) -> Callable[[Box], list[Card]]:
    """Cards at 0 %."""

    def cards(box: Box) -> list[Card]:
        power = None if box.power is None else box.power * watts * box.dice.uniform(0.95, 1.05)
        return [[0, mem, 0, power, job, hand, 0, 0] for _ in range(box.cards)]

    return cards


def busy(
    low: float,
    high: float,
    *,
    mem: float = 30000,
    watts: float = 0.8,
    memory: float = 0.5,
    zero: float = 0.0,
    who: tuple[int, int, int, int] = (1, 0, 0, 0),
    idle_cards: int = 0,
) -> Callable[[Box], list[Card]]:
    """Cards between `low` and `high` %, seen at 0 % in a share `zero` of the looks; `memory` is its use, of the card's."""

    def cards(box: Box) -> list[Card]:
        found: list[Card] = []
        for number in range(box.cards):
            resting = number >= box.cards - idle_cards
            util = 0.0 if resting or box.dice.random() < zero else box.dice.uniform(low, high)
            share = 0.14 + (watts - 0.14) * (util / max(high, 1)) * box.dice.uniform(0.9, 1.05)
            found.append(
                [
                    round(util),
                    4 if resting else mem,
                    round(util * memory),
                    None if box.power is None else box.power * share,
                    *((0, 0, 0, 0) if resting else who),
                ]
            )
        return found

    return cards


def spinning(
    mem: float = 30000,
    *,
    watts: float = 0.3,
    who: tuple[int, int, int, int] = (1, 0, 0, 0),
    seen: str = "all",
    dead: int = 0,
) -> Callable[[Box], list[Card]]:
    """Cards at 100 % that do nothing: a kernel waits for one that never comes."""

    def cards(box: Box) -> list[Card]:
        power = None if box.power is None else box.power * watts * box.dice.uniform(0.97, 1.03)
        memory = 0 if seen == "all" else None
        spun: list[Card] = [[100, mem, memory, power, *who] for _ in range(box.cards - dead)]
        return spun + [[0, 4, memory, power and power / 2, 0, 0, 0, 0] for _ in range(dead)]

    return cards


def unsaid(card: Callable[[Box], list[Card]], *cells: int) -> Callable[[Box], list[Card]]:
    """The same, where the driver says [N/A] to some cells."""
    return lambda box: [[None if n in cells else c for n, c in enumerate(one)] for one in card(box)]


PIP: Final = (0.6, 1.0, 6.0, 6.0, 2)
TRAIN: Final = (1.3, 0.02, 0.004, 0.002, 6)
HELD: Final = (0.0, 0, 0, 0, 6)


def written() -> list[Box]:
    """Every made-up trace, with its labels."""
    b: list[Box] = []

    def box(*words: Any, **more: Any) -> Box:
        b.append(Box(*words, **more))
        return b[-1]

    box("train_95", "installs by hand, loads, trains at 95 %, ends; then nobody comes").add(
        4, "busy", "setup", 0, hand=PIP, net=(5, 0.1), kind="setup"
    ).add(2, "busy", "data", 1, gpu=rest(500, 1), job=(3, 120, 0.1, 90, 6)).add(
        22, "busy", "training", 1, gpu=busy(88, 100), job=TRAIN, kind="training"
    ).add(14, "idle", "idle", 0)
    box(
        "train_input_bound",
        "training that waits for its workers: 20 % on average, most looks see 0 %",
    ).add(
        36,
        "busy",
        "training",
        1,
        gpu=busy(10, 70, zero=0.5, watts=0.35),
        job=(5.5, 60, 0.01, 40, 9),
        kind="training",
    ).add(6, "idle", "idle", 0)
    box("train_small_8pct", "a small model: 3 to 14 %, one core").add(
        34,
        "busy",
        "training",
        1,
        gpu=busy(3, 14, mem=1800, watts=0.2, memory=0.2),
        job=(1.02, 0.3, 0.002, 0, 2),
        kind="training",
    ).add(8, "idle", "idle", 0)
    box(
        "train_2pct_by_hand", "a tiny model started in a shell: 0 to 4 %, one core, no job declared"
    ).add(
        30,
        "busy",
        "training",
        0,
        gpu=busy(0, 4, mem=900, watts=0.17, memory=0.1, who=(0, 1, 0, 0)),
        hand=(1.0, 0.05, 0.001, 0, 1),
    ).add(12, "idle", "idle", 0)
    box("four_cards_one_idle", "three of four cards train", cards=4).add(
        30,
        "busy",
        "training",
        1,
        gpu=busy(80, 100, idle_cards=1),
        job=(4.1, 20, 0.01, 10, 20),
        kind="training",
    ).add(8, "idle", "idle", 0)
    box(
        "in_memory",
        "data in GPU memory, a line of log every ten minutes: nothing is read, next to nothing written",
    ).add(40, "busy", "training", 1, gpu=busy(96, 100), job=(1.0, 0.0, 0.00001, 0, 2))
    box(
        "in_memory_no_power",
        "the same where the driver tells neither power nor memory use",
        power=None,
    ).add(40, "busy", "training", 1, gpu=unsaid(busy(93, 100), 2), job=(1.0, 0.0, 0.00002, 0, 2))
    box(
        "small_kernels", "a recurrent net of small kernels: 90 to 100 % at a third of the power"
    ).add(
        34,
        "busy",
        "training",
        1,
        gpu=busy(90, 100, watts=0.33, memory=0.04),
        job=(1.02, 0.05, 0.0003, 0, 2),
    ).add(6, "idle", "idle", 0)
    box(
        "hung_nccl",
        "two ranks train, then wait in a collective for good: 100 %, a core each, no bytes",
        cards=2,
    ).add(
        12, "busy", "training", 1, gpu=busy(85, 100), job=(2.6, 30, 0.01, 20, 14), kind="training"
    ).add(28, "suspicious", "suspicious", 1, gpu=spinning(), job=(2.0, 0, 0, 0, 14))
    box(
        "hung_nccl_no_power",
        "the same where the driver tells neither power nor memory use",
        cards=2,
        power=None,
    ).add(
        12,
        "busy",
        "training",
        1,
        gpu=unsaid(busy(85, 100), 2),
        job=(2.6, 30, 0.01, 20, 14),
        kind="training",
    ).add(32, "suspicious", "suspicious", 1, gpu=spinning(seen="little"), job=(2.0, 0, 0, 0, 14))
    box("hung_nccl_wandb", "the same with a metrics thread that goes on reporting", cards=2).add(
        12, "busy", "training", 1, gpu=busy(85, 100), job=(2.6, 30, 0.02, 20, 16), kind="training"
    ).add(
        28,
        "suspicious",
        "suspicious",
        1,
        gpu=spinning(),
        job=(2.03, 0.006, 0.0004, 0.0002, 16),
        net=(0.0005, 0.002),
    )
    box("hung_nccl_rank_died", "eight ranks; one dies, seven spin", cards=8, power=700.0).add(
        10,
        "busy",
        "training",
        1,
        gpu=busy(90, 100, mem=70000),
        job=(11, 200, 0.05, 100, 60),
        net=(900, 900),
        kind="training",
    ).add(
        26,
        "suspicious",
        "suspicious",
        1,
        gpu=spinning(70000, watts=0.2, dead=1),
        job=(7.0, 0, 0, 0, 50),
    )
    box("hung_nccl_blocking", "ranks that wait without spinning on the CPU", cards=2).add(
        12, "busy", "training", 1, gpu=busy(85, 100), job=(2.6, 30, 0.01, 20, 14), kind="training"
    ).add(26, "suspicious", "suspicious", 1, gpu=spinning(), job=(0.02, 0, 0, 0, 14))
    box(
        "orphan_kernel", "the job ended; a kernel nobody owns keeps the card at 100 % with 0 MiB"
    ).add(10, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN, kind="training").add(
        30, "suspicious", "suspicious", 0, gpu=spinning(0, who=(0, 0, 0, 0))
    )
    box(
        "orphan_kernel_from_start",
        "a fresh box whose card is at 100 % with 0 MiB and no process; then an install",
    ).add(20, "suspicious", "suspicious", 0, gpu=spinning(0, watts=0.4, who=(0, 0, 0, 0))).add(
        10,
        "busy",
        "setup",
        0,
        gpu=spinning(0, watts=0.4, who=(0, 0, 0, 0)),
        hand=PIP,
        net=(5, 0.1),
        kind="setup",
    )
    box(
        "neighbour_on_card", "somebody outside the container computes on the card; we do nothing"
    ).add(30, "suspicious", "suspicious", 0, gpu=busy(60, 100, mem=22000, who=(0, 0, 0, 1)))
    box(
        "another_user",
        "another user of the machine trains on the card, we do nothing: it is owned, and not ours",
    ).add(30, "busy", "training", 0, gpu=busy(80, 100, who=(0, 0, 1, 0)))
    box(
        "pip_40_minutes",
        "40 minutes of pip: downloads, builds of wheels on one core, unpacking; no job is launched yet",
    ).add(8, "busy", "setup", 0, hand=(0.25, 3, 9, 9, 2), net=(9, 0.1), kind="setup").add(
        16, "busy", "setup", 0, hand=(1.02, 0.6, 0.2, 0.1, 5), kind="setup"
    ).add(6, "busy", "setup", 0, hand=(0.06, 0.3, 0.9, 0.8, 2), net=(0.8, 0.02), kind="setup").add(
        10, "busy", "setup", 0, hand=(0.5, 12, 20, 30, 2), kind="setup"
    ).add(10, "idle", "idle", 0)
    box(
        "build_extension",
        "nvcc builds attention kernels on eight cores for half an hour, within the job",
    ).add(30, "busy", "setup", 1, job=(7.6, 3, 1, 0.5, 20), kind="setup").add(
        10, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN, kind="training"
    )
    box(
        "conda_solve",
        "conda solves for 15 minutes on one core, then downloads and links; then the person is away",
    ).add(15, "busy", "setup", 0, hand=(1.0, 0.01, 0.0005, 0, 1), kind="setup").add(
        5, "busy", "setup", 0, hand=(0.6, 8, 25, 20, 2), net=(12, 0.2), kind="setup"
    ).add(14, "idle", "idle", 0)
    box("apt_install", "apt fetches and configures packages").add(
        4, "busy", "setup", 0, hand=(0.15, 1, 1, 1, 3), net=(0.9, 0.02), kind="setup"
    ).add(6, "busy", "setup", 0, hand=(0.7, 6, 4, 9, 6), kind="setup").add(12, "idle", "idle", 0)
    box("hf_download_30mb", "weights arrive at 30 MB/s, then training begins").add(
        20, "busy", "data", 1, job=(0.3, 0.5, 30, 30, 2), net=(30, 0.3), kind="data"
    ).add(12, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN, kind="training")
    slow = box("download_with_stalls", "1 MB/s with stalls of two minutes, as through a bad mirror")
    for _ in range(5):
        slow.add(5, "busy", "data", 1, job=(0.02, 0.02, 1, 1, 1), net=(1, 0.02), kind="data")
        slow.add(2, "busy", "data", 1, job=(0.001, 0, 0, 0, 1), net=(0, 0))
    slow.add(8, "idle", "idle", 0)
    box("tokenise", "16 cores tokenise a corpus, the GPU waits").add(
        30, "busy", "data", 1, job=(15.5, 50, 30, 40, 17), kind="data"
    ).add(8, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN, kind="training")
    box("preprocess_one_core", "a single-core script by hand, GPU at 0 %").add(
        30, "busy", "data", 0, hand=(1.0, 2, 0.4, 0.5, 1)
    ).add(10, "idle", "idle", 0)
    flush = box(
        "checkpoint_flush",
        "two minutes of checkpoint to a local disk after every eight of training",
    )
    for _ in range(4):
        flush.add(8, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN, kind="training")
        flush.add(
            2,
            "busy",
            "flush",
            1,
            gpu=rest(30000, 1, watts=0.2),
            job=(0.9, 1, 700, 700, 6),
            kind="training",
        )
    slow = box(
        "checkpoint_to_slow_store",
        "eight minutes of checkpoint to a network disk: 25 MB/s, hardly any CPU",
    )
    for _ in range(2):
        slow.add(10, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN)
        slow.add(
            8,
            "busy",
            "flush",
            1,
            gpu=rest(30000, 1, watts=0.2),
            job=(0.05, 0.1, 25, 25, 6),
            net=(0.2, 26),
        )
    slow.add(8, "idle", "idle", 0)
    box(
        "accumulation_valleys",
        "gradient accumulation with an optimiser on the CPU: looks see 98 % or 0 %",
        every_s=30.0,
    ).add(
        44,
        "busy",
        "training",
        1,
        gpu=busy(95, 100, zero=0.45),
        job=(3.0, 0.1, 0.003, 0, 4),
        kind="training",
    )
    both = box(
        "evaluation_between",
        "eight minutes of training, three of evaluation in the same process, in turn",
    )
    for _ in range(4):
        both.add(8, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN, kind="training")
        both.add(
            3,
            "busy",
            "evaluation",
            1,
            gpu=busy(25, 55, watts=0.4),
            job=(1.1, 4, 0.0005, 2, 6),
            kind="training",
        )
    box(
        "evaluation_job", "a job of its own that evaluates: the GPU at 30 to 60 %, nothing written"
    ).add(
        28,
        "busy",
        "evaluation",
        1,
        gpu=busy(30, 60, watts=0.5),
        job=(1.2, 5, 0.002, 3, 4),
        kind="evaluation",
    ).add(8, "idle", "idle", 0)
    human = box(
        "waiting_for_a_human", "experiments by hand in a shell, with the person away in between"
    )
    for n, away in ((8, 14), (5, 16), (6, 9)):
        human.add(
            n,
            "busy",
            "training",
            0,
            gpu=busy(70, 100, who=(0, 1, 0, 0)),
            hand=(1.2, 1, 0.01, 0.5, 3),
        )
        human.add(away, "idle", "idle", 0)
    box("finished_an_hour_ago", "the job ended, the meter runs").add(
        4, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN
    ).add(60, "idle", "idle", 0)
    retry = box(
        "sleep_between_retries",
        "a job that fails in a minute and sleeps for 20 before it tries again",
    )
    for _ in range(3):
        retry.add(1, "busy", "setup", 1, gpu=rest(600, 1), job=(0.5, 2, 0.01, 1, 3))
        retry.add(15, "idle", "idle", 1, job=(0, 0, 0, 0, 2))
    box("jupyter_holds_20gb", "a kernel that holds 20 GB and does nothing, after one cell").add(
        6,
        "busy",
        "training",
        0,
        gpu=busy(60, 95, mem=20000, who=(0, 1, 0, 0)),
        hand=(1.1, 0.1, 0.01, 0, 2),
    ).add(38, "idle", "idle", 0, gpu=rest(20000, 0, 1, watts=0.2), hand=(0.01, 0.002, 0.001, 0, 3))
    box("vllm_no_requests", "a server loads its weights, and nobody asks it anything").add(
        4,
        "busy",
        "data",
        1,
        gpu=rest(40000, 2, watts=0.2),
        job=(1.4, 700, 0.01, 600, 9),
        kind="evaluation",
    ).add(
        38,
        "idle",
        "idle",
        1,
        gpu=rest(72000, 2, watts=0.24),
        job=(0.045, 0.004, 0.0004, 0, 9),
        kind="evaluation",
    )
    rare = box(
        "vllm_rare_requests",
        "a server with a request of 20 s every 8 minutes: what lies between is idle",
    )
    for _ in range(5):
        rare.add(
            1,
            "busy",
            "evaluation",
            1,
            gpu=busy(80, 99, zero=0.6, mem=72000, who=(2, 0, 0, 0)),
            job=(0.45, 0.02, 0.004, 0, 9),
            net=(0.002, 0.004),
            kind="evaluation",
        )
        rare.add(
            7,
            "idle",
            "idle",
            1,
            gpu=rest(72000, 2, watts=0.24),
            job=(0.045, 0.004, 0.0004, 0, 9),
            kind="evaluation",
        )
    box("vllm_steady", "a server with steady traffic").add(
        30,
        "busy",
        "evaluation",
        1,
        gpu=busy(55, 97, mem=72000, who=(2, 0, 0, 0)),
        job=(1.9, 0.1, 0.05, 0, 9),
        net=(0.05, 0.2),
        kind="evaluation",
    ).add(
        8,
        "idle",
        "idle",
        1,
        gpu=rest(72000, 2, watts=0.24),
        job=(0.045, 0.004, 0.0004, 0, 9),
        kind="evaluation",
    )
    box(
        "server_that_polls",
        "a server whose scheduler polls at a full core while nobody asks it anything",
    ).add(
        3,
        "busy",
        "data",
        1,
        gpu=rest(40000, 2, watts=0.2),
        job=(1.4, 700, 0.01, 600, 9),
        kind="evaluation",
    ).add(
        36,
        "idle",
        "idle",
        1,
        gpu=rest(72000, 2, watts=0.24),
        job=(1.0, 0.0002, 0.0001, 0, 9),
        kind="evaluation",
    )
    box("tensorboard_left", "training ended, tensorboard goes on reloading").add(
        6, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN, hand=(0.03, 0.1, 0, 0, 2)
    ).add(34, "idle", "idle", 0, hand=(0.025, 0.09, 0.0002, 0, 2))
    box(
        "slow_nfs",
        "data comes from a network disk at 0.6 MB/s, hardly any CPU; then the server dies and all hangs",
    ).add(
        22, "busy", "data", 1, gpu=rest(600, 1), job=(0.025, 0.6, 0.001, 0, 3), net=(0.65, 0.01)
    ).add(18, "idle", "idle", 1, gpu=rest(600, 1), job=(0, 0, 0, 0, 3))
    box("loader_deadlock", "training, then the workers deadlock: memory held, 0 %, no CPU").add(
        10, "busy", "training", 1, gpu=busy(85, 100), job=(3, 30, 0.01, 20, 9), kind="training"
    ).add(28, "idle", "idle", 1, gpu=rest(30000, 1, watts=0.2), job=(0.003, 0, 0, 0, 9))
    box("waits_for_peer", "rank 0 waits for a node that never joins").add(
        2, "busy", "setup", 1, gpu=rest(600, 1), job=(1.1, 20, 0.01, 10, 3)
    ).add(
        28,
        "idle",
        "idle",
        1,
        gpu=rest(900, 1, watts=0.18),
        job=(0.008, 0.0005, 0.0003, 0, 3),
        net=(0.0005, 0.0005),
    )
    box("whole_day", "install, tokenise, train, flush, evaluate, and then nothing").add(
        6, "busy", "setup", 0, hand=PIP, net=(6, 0.1), kind="setup"
    ).add(6, "busy", "data", 1, job=(7.5, 30, 20, 30, 9), kind="data").add(
        14, "busy", "training", 1, gpu=busy(88, 100), job=TRAIN, kind="training"
    ).add(
        3,
        "busy",
        "flush",
        1,
        gpu=rest(30000, 1, watts=0.2),
        job=(0.4, 0.5, 300, 300, 6),
        kind="training",
    ).add(
        5,
        "busy",
        "evaluation",
        1,
        gpu=busy(30, 60, watts=0.5),
        job=(1.2, 5, 0.002, 3, 4),
        kind="evaluation",
    ).add(16, "idle", "idle", 0)
    box("mig_slice", "a slice of a card: the driver tells no utilisation", power=None).add(
        26,
        "busy",
        "training",
        1,
        gpu=unsaid(busy(80, 99, mem=8000), 0, 2),
        job=(1.05, 0.2, 0.003, 0.1, 3),
    ).add(12, "idle", "idle", 0, gpu=unsaid(rest(10), 0, 2))
    box("driver_silent_job_stuck", "the driver hangs, and with it the job", driver="silent").add(
        26, "suspicious", "suspicious", 1, job=(0, 0, 0, 0, 4)
    )
    box(
        "driver_silent_at_work", "nvidia-smi hangs for us while the job goes on", driver="silent"
    ).add(24, "busy", "training", 1, job=(2.3, 30, 0.02, 20, 8), kind="training").add(
        10, "idle", "idle", 0
    )
    box("laptop_asleep", "idle, then two hours in which nobody looked, then idle").add(
        16, "idle", "idle", 0
    ).add(1, "unknown", "unknown", 0, dt=7200).add(18, "idle", "idle", 0)
    box("asleep_while_it_trained", "training, and hours in which nobody looked").add(
        8, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN
    ).add(1, "unknown", "unknown", 1, gpu=busy(85, 100), job=TRAIN, dt=10800).add(
        8, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN
    ).add(8, "idle", "idle", 0)
    box(
        "clock_jumps", "the clock is set five hours on, then three back; the work goes on, and ends"
    ).add(10, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN).add(
        8, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN, clock_s=18000
    ).add(8, "idle", "idle", 0).add(8, "idle", "idle", 0, clock_s=-10800)
    box("reboot", "training, a restart of the box, nothing after it").add(
        12, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN
    ).add(1, "unknown", "unknown", 0, reboot=1).add(20, "idle", "idle", 0)
    box(
        "many_nodes",
        "one of several nodes: the network carries the gradients",
        cards=8,
        power=700.0,
    ).add(
        26,
        "busy",
        "training",
        1,
        gpu=busy(80, 100, mem=70000),
        job=(14, 200, 0.05, 100, 80),
        net=(1200, 1200),
        kind="training",
    ).add(6, "idle", "idle", 0)
    box(
        "simulation_on_cpu", "reinforcement learning: simulators on 20 cores, the GPU at 0 to 9 %"
    ).add(
        30,
        "busy",
        "training",
        1,
        gpu=busy(0, 9, mem=3000, watts=0.2, zero=0.4),
        job=(20, 0.2, 0.02, 0, 34),
        kind="training",
    ).add(8, "idle", "idle", 0)
    box(
        "noisy_image",
        "an idle box whose image runs sync and metrics daemons, and whose port is knocked at",
        noise=0.04,
    ).add(40, "idle", "idle", 0, hand=(0.01, 0.03, 0.003, 0.002, 6), net=(0.006, 0.006))
    box("host_network", "an idle container that sees its host's network, which is busy").add(
        36, "idle", "idle", 0, net=(31, 12)
    )
    box("push_then_nobody", "files are pushed to the box at 12 MB/s, and nothing is started").add(
        10, "busy", "data", 0, hand=(0.25, 12, 12, 12, 2), net=(12.5, 0.2)
    ).add(22, "idle", "idle", 0)
    box(
        "collect_after_the_end",
        "the job ended; what it wrote is hashed and leaves the box at 40 MB/s; then nothing",
    ).add(8, "busy", "training", 1, gpu=busy(85, 100), job=TRAIN).add(
        4, "busy", "flush", 0, hand=(0.9, 400, 0.001, 300, 1)
    ).add(9, "busy", "flush", 0, hand=(0.3, 40, 40, 20, 2), net=(0.4, 41)).add(
        14, "idle", "idle", 0
    )
    box(
        "graph_compile",
        "torch.compile: ten minutes on eight cores with the GPU at 0 %, then training",
    ).add(
        10,
        "busy",
        "setup",
        1,
        gpu=rest(5000, 1, watts=0.2),
        job=(8.0, 2, 0.5, 0.3, 40),
        kind="training",
    ).add(14, "busy", "training", 1, gpu=busy(90, 100), job=TRAIN, kind="training")
    box("watch_nvidia_smi", "a person left `watch -n 1 nvidia-smi` on").add(
        34, "idle", "idle", 0, hand=(0.06, 0.1, 0.005, 0, 4)
    )
    box(
        "batch_inference_by_hand", "a person's batch inference in tmux, no job declared; then done"
    ).add(
        24,
        "busy",
        "evaluation",
        0,
        gpu=busy(50, 90, who=(0, 1, 0, 0)),
        hand=(1.3, 2, 0.05, 1, 2),
        kind="evaluation",
    ).add(12, "idle", "idle", 0)
    box("pids_of_the_host", "training in a container whose driver lists the host's numbers").add(
        24, "busy", "training", 1, gpu=busy(85, 100, who=(1, 0, 0, 1)), job=TRAIN
    ).add(10, "idle", "idle", 0)
    return b


def main() -> int:
    """The exit status, when every trace is on the disk."""
    for one in written():
        one.done()
    return 0


if __name__ == "__main__":
    sys.exit(main())
