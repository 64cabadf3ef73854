"""Every provider's name for a GPU leads to one GPU, and a name that could mean two is asked about."""

import re

import gpuhunt
import pytest
import vastai.data.query as vast_query

from gpu_tenant.domain.command import in_tools
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.offers import Wish
from gpu_tenant.providers.gpu_catalog import (
    CATALOG,
    described_gpus,
    is_unknown,
    known_gpu,
    wished_gpus,
)

RUNPOD = {
    "NVIDIA GeForce RTX 3070": "RTX 3070",
    "NVIDIA GeForce RTX 3080 Ti": "RTX 3080 Ti",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX 3090 Ti",
    "NVIDIA GeForce RTX 4070 Ti": "RTX 4070 Ti",
    "NVIDIA GeForce RTX 4080": "RTX 4080",
    "NVIDIA GeForce RTX 4080 SUPER": "RTX 4080 SUPER",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 5080": "RTX 5080",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA RTX A2000": "RTX A2000",
    "NVIDIA RTX A4000": "RTX A4000",
    "NVIDIA RTX A4500": "RTX A4500",
    "NVIDIA RTX A5000": "RTX A5000",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX 2000 Ada Generation": "RTX 2000 Ada",
    "NVIDIA RTX 4000 Ada Generation": "RTX 4000 Ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada",
    "NVIDIA RTX 5000 Ada Generation": "RTX 5000 Ada",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX PRO 4500 Blackwell": "RTX PRO 4500",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Max-Q",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "Tesla V100-PCIE-16GB": "V100 PCIe 16GB",
    "Tesla V100-SXM2-16GB": "V100 SXM 16GB",
    "Tesla V100-SXM2-32GB": "V100 SXM 32GB",
    "AMD Instinct MI300X OAM": "MI300X",
}
VAST = {
    "RTX 3090": "RTX 3090",
    "RTX 4070S": "RTX 4070 SUPER",
    "RTX 4070S Ti": "RTX 4070 Ti SUPER",
    "RTX 4080S": "RTX 4080 SUPER",
    "RTX 4090D": "RTX 4090D",
    "RTX 2000Ada": "RTX 2000 Ada",
    "RTX 4000Ada": "RTX 4000 Ada",
    "RTX 4500Ada": "RTX 4500 Ada",
    "RTX 5000Ada": "RTX 5000 Ada",
    "RTX 5880Ada": "RTX 5880 Ada",
    "RTX 6000Ada": "RTX 6000 Ada",
    "RTX PRO 4000": "RTX PRO 4000",
    "RTX PRO 5000": "RTX PRO 5000",
    "RTX PRO 6000": "RTX PRO 6000",
    "RTX PRO 6000 S": "RTX PRO 6000 Server",
    "RTX PRO 6000 WS": "RTX PRO 6000 Workstation",
    "RTX PRO 6000 Max-Q": "RTX PRO 6000 Max-Q",
    "A10": "A10",
    "A10g": "A10G",
    "A16": "A16",
    "A100 PCIE": "A100 PCIe 80GB",
    "A100 SXM": "A100 SXM 80GB",
    "A100 SXM4": "A100 SXM 80GB",
    "H100 PCIE": "H100 PCIe",
    "H100 SXM": "H100 SXM",
    "H100 NVL": "H100 NVL",
    "GH200 SXM": "GH200",
    "Tesla V100": "V100 SXM 16GB",
    "Tesla T4": "T4",
    "Tesla P100": "P100",
    "Tesla P40": "P40",
}


@pytest.mark.parametrize(("theirs", "ours"), [*RUNPOD.items(), *VAST.items()])
def test_a_provider_s_name_leads_to_the_canonical_one(theirs: str, ours: str) -> None:
    model = known_gpu(theirs)

    assert model is not None
    assert model.name == ours


@pytest.mark.parametrize(
    "part",
    [
        "RTX 5090 Laptop",
        "NVIDIA Z900 MIG 1g.24gb",
        "NVIDIA Z900",
        "",
    ],
)
def test_what_no_table_knows_is_not_taken_for_something_else(part: str) -> None:
    assert known_gpu(part) is None


def test_no_two_gpus_share_a_name() -> None:
    for model in CATALOG:
        assert all(known_gpu(name) is model for name in (model.name, *model.also)), model.name


@pytest.mark.parametrize(
    ("sxm", "pcie"),
    [
        ("A100 SXM 80GB", "A100 PCIe 80GB"),
        ("A100 SXM 40GB", "A100 PCIe 40GB"),
        ("H100 SXM", "H100 PCIe"),
        ("H200", "H200 NVL"),
        ("V100 SXM 16GB", "V100 PCIe 16GB"),
    ],
)
def test_the_sxm_and_the_pcie_part_are_two_gpus(sxm: str, pcie: str) -> None:
    socketed, plugged = known_gpu(sxm), known_gpu(pcie)

    assert socketed is not None
    assert plugged is not None
    assert (socketed.form, plugged.form) == ("sxm", "pcie")


@pytest.mark.parametrize(
    ("part", "name", "vram_gib"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 SXM 40GB MIG 1g.5gb", 5),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "H100 SXM MIG 3g.40gb", 40),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb",
            "RTX PRO 6000 Server MIG 1g.24gb",
            24,
        ),
        ("a100 mig 2g.20gb", "A100 MIG 2g.20gb", 20),
    ],
)
def test_a_slice_has_the_memory_that_its_name_says(part: str, name: str, vram_gib: int) -> None:
    model = known_gpu(part)

    assert model is not None
    assert (model.name, model.vram_gib) == (name, vram_gib)


# What a machine has


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("RTX 4090", ("RTX 4090", 1)),
        ("rtx4090:2", ("RTX 4090", 2)),
        ("h100-sxm: 8", ("H100 SXM", 8)),
        ("A100 SXM4 40GB:4", ("A100 SXM 40GB", 4)),
        ("geforce rtx 4070 ti super", ("RTX 4070 Ti SUPER", 1)),
        ("H200:8", ("H200", 8)),
    ],
)
def test_a_machine_s_gpus_are_described_as_people_write_them(
    words: str, meant: tuple[str, int]
) -> None:
    assert described_gpus(words) == meant


@pytest.mark.parametrize(
    ("words", "both"),
    [
        ("A100", ("A100 SXM 80GB", "A100 PCIe 40GB")),
        ("a100 80gb", ("A100 SXM 80GB", "A100 PCIe 80GB")),
        ("A100-40GB", ("A100 SXM 40GB", "A100 PCIe 40GB")),
        ("H100:8", ("H100 SXM", "H100 NVL")),
        ("NVIDIA H100 80GB", ("H100 SXM", "H100 PCIe")),
        ("Tesla V100", ("V100 SXM 32GB", "V100 PCIe 16GB")),
    ],
)
def test_a_machine_is_not_described_by_a_name_of_several_gpus(
    words: str, both: tuple[str, str]
) -> None:
    with pytest.raises(BadRequest, match="several forms") as told:
        described_gpus(words)

    assert all(name in told.value.remedy for name in both)


def test_the_names_that_are_offered_instead_can_be_used() -> None:
    for words in ("A100", "A100 80GB", "A100 40GB", "H100", "H100 80GB", "V100"):
        with pytest.raises(BadRequest) as told:
            described_gpus(words)
        named = re.split(r", | or ", told.value.remedy.removeprefix("say which: "))
        assert [described_gpus(name)[0] for name in named] == named


@pytest.mark.parametrize(("typo", "near"), [("RTX 409O", "RTX 4090"), ("H10 SXM", "H100 SXM")])
def test_a_machine_s_gpu_that_nobody_knows_is_refused_with_the_nearest_names(
    typo: str, near: str
) -> None:
    with pytest.raises(BadRequest, match="no GPU is known as") as told:
        described_gpus(typo)

    assert near in told.value.remedy


def test_a_gpu_that_is_near_to_none_is_refused_with_the_form() -> None:
    with pytest.raises(BadRequest) as told:
        described_gpus("%%%")

    assert "RTX 4090" in told.value.remedy


@pytest.mark.parametrize("words", ["RTX 4090:", "RTX 4090:0", "RTX 4090:-1", "RTX 4090:two"])
def test_a_count_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(BadRequest, match="no count"):
        described_gpus(words)
    with pytest.raises(BadRequest, match="no count"):
        wished_gpus(words)


# What a person wishes for


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rtx4090:2", ("RTX 4090", 2)),
        ("4090", ("RTX 4090", 1)),
        ("H100:8", ("H100 SXM / H100 PCIe / H100 NVL", 8)),
        ("A100 80GB", ("A100 SXM 80GB / A100 PCIe 80GB", 1)),
        ("H200", ("H200 / H200 NVL", 1)),
        ("4060 Ti", ("RTX 4060 Ti / RTX 4060 Ti 16GB", 1)),
        ("RTX 4090|rtx 3090", ("RTX 4090 | RTX 3090", 1)),
        ("H100:4 | A100 SXM 80GB:4", ("H100 SXM / H100 PCIe / H100 NVL | A100 SXM 80GB", 4)),
        ("Z900 Ultra:2", ("Z900 Ultra", 2)),
        ("Z900 / Ultra", ("Z900 Ultra", 1)),
    ],
)
def test_a_wish_is_for_any_form_and_the_alternatives_are_in_order(
    words: str, meant: tuple[str, int]
) -> None:
    assert wished_gpus(words) == meant


def test_the_place_of_a_gpu_in_a_wish_is_that_of_its_alternative() -> None:
    gpu, count = wished_gpus("H100 | A100 80GB | Z900")
    wish = Wish(gpu=gpu, gpu_count=count)

    places = [
        wish.preference(name)
        for name in ("H100 NVL", "H100 SXM", "A100 PCIe 80GB", "z900", "A100 SXM 40GB", "H200")
    ]

    assert places == [0, 0, 1, 2, None, None]
    assert wish.gpus[:2] == ("H100 SXM", "H100 PCIe")
    assert (Wish().gpus, Wish().preference("anything")) == ((), 0)


@pytest.mark.parametrize("words", ["RTX 4090:2 | RTX 3090", "A100:8 | H100:4"])
def test_alternatives_with_different_counts_are_refused_with_what_to_write(words: str) -> None:
    with pytest.raises(BadRequest, match="differ in their counts") as told:
        wished_gpus(words)

    (instead,) = re.findall(r"`(.*)`", told.value.remedy)
    assert wished_gpus(instead)[1] > 1


@pytest.mark.parametrize("words", ["", " ", "RTX 4090 |", "| RTX 4090", ":2"])
def test_an_alternative_without_a_name_is_refused(words: str) -> None:
    with pytest.raises(BadRequest, match="names no GPU"):
        wished_gpus(words)


@pytest.mark.parametrize("words", ["24GB", "24 gb", "24GiB vram", "24G:2", "RTX 4090|24GB card"])
def test_an_amount_of_memory_is_no_gpu_and_what_to_write_is_told(words: str) -> None:
    with pytest.raises(BadRequest, match="is an amount of memory, and no GPU") as told:
        wished_gpus(words)

    assert in_tools(told.value.remedy) == "leave the name out, and say `vram_gib=24`"


def test_words_are_unknown_only_if_no_table_has_any_of_their_gpus() -> None:
    assert [is_unknown(x) for x in ("Z900", "Z900|Z800", "Z900|A100", "4090")] == [
        True,
        True,
        False,
        False,
    ]


GOOGLE = (
    "nvidia-tesla-t4",
    "nvidia-l4",
    "nvidia-tesla-v100",
    "nvidia-tesla-a100",
    "nvidia-a100-80gb",
    "nvidia-h100-80gb",
    "nvidia-h100-mega-80gb",
    "nvidia-h200-141gb",
    "nvidia-b200",
    "nvidia-rtx-pro-6000",
)
CHINESE = ("H20", "H800", "A800", "L20", "RTX 4090D", "4090-48G", "H20-96GB", "vGPU-32GB")
NOT_GPUS = re.compile(r"(v\d|Gaudi|n\d|p\d|tt-)")
"""Accelerators in somebody else's table that no CUDA or ROCm program runs on."""


def theirs() -> dict[str, list[str]]:
    """Names of GPUs as they stand in lists of vendors and in somebody else's table."""
    vast = [v for k, v in vars(vast_query).items() if isinstance(v, str) and k[0].isupper()]
    table = [gpu.name for gpu in gpuhunt.KNOWN_ACCELERATORS if not NOT_GPUS.match(gpu.name)]
    return {
        "runpod": list(RUNPOD),
        "vastai": [name for name in vast if name not in ("", "float")],
        "gcp": list(GOOGLE),
        "chinese": list(CHINESE),
        "gpuhunt": table,
    }


UNKNOWN = {"Tesla K20c", "RTX 4090 Ti", "RTX 5090 Ti", "RTX PRO 4000 Mobile", "MI308X"}
"""Names that no table here has. They are passed on to the providers as they stand."""


def test_every_gpu_that_is_sold_can_be_wished_for() -> None:
    names = [name for each in theirs().values() for name in each]

    meant = {name: wished_gpus(f"{name}:2") for name in names}

    assert len(meant) > 200
    passed_on = {
        name
        for name, (gpu, _) in meant.items()
        if any(known_gpu(form) is None for form in gpu.split(" / "))
    }
    assert passed_on == UNKNOWN
    assert all(count == 2 for _, count in meant.values())


# Somebody else's table


COUNTED_OTHERWISE = {
    "GB300": 270,
    "MI325X": 288,  # as it was announced; AMD sells it with 256
    "B300": 270,  # theirs is what providers write; the driver shows 275040 MiB, which is 268.6 GiB
}
SHARED_NAMES = {"V100", "RTX2060", "RTX3050", "RTX3060", "RTX4060Ti", "RTX5060Ti"}
"""Names that stand for several GPUs there, as for some providers."""


def test_memory_sizes_agree_with_somebody_else_s_table() -> None:
    theirs = {gpu.name: gpu.memory for gpu in gpuhunt.KNOWN_ACCELERATORS}
    both = {name: model for name in theirs if (model := known_gpu(name))}

    differ = {
        name: theirs[name]
        for name, model in both.items()
        if model.vram_gib != theirs[name] and name not in SHARED_NAMES
    }

    assert len(both) > 35, "the tables still speak of the same GPUs"
    assert differ == COUNTED_OTHERWISE


def test_every_size_of_a_shared_name_is_in_the_catalog() -> None:
    for name in ("A100", "H100", "V100"):
        theirs = {gpu.memory for gpu in gpuhunt.KNOWN_ACCELERATORS if gpu.name == name}
        ours = {model.vram_gib for model in CATALOG if model.name.startswith(f"{name} ")}

        assert theirs
        assert theirs <= ours
