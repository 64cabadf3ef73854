"""A rehearsal's stand-in for `nvidia-smi`. It prints what is written in `gpus.json` beside it.

It is data for parsers. No GPU is there, and each name says so. It runs as a program of its own in the
boxes of a rehearsal, and nowhere else.
"""

import json
import os
import sys
from typing import Any

IDLE_MHZ, MOST_MHZ = 345, 1980


def main(words: "list[str]") -> int:
    """Answer like `nvidia-smi`, as far as its options are known here. Return the exit status."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpus.json")
    with open(beside, encoding="utf-8") as file:
        box = json.load(file)
    options = dict(word.partition("=")[::2] for word in words)
    if not box["gpus"]:
        print("No devices were found")
        return 6
    if "--query-gpu" in options:
        return _table(options, [_fields(box, n, gpu) for n, gpu in enumerate(box["gpus"])])
    for name in ("--query-compute-apps", "--query-apps"):
        if name in options:
            return _table({**options, "--query-gpu": options[name]}, list(_apps(box)))
    if words == ["rehearsed-load"]:
        print(json.dumps(box["load"]))
        return 0
    if "-L" in words or "--list-gpus" in words:
        for n, gpu in enumerate(box["gpus"]):
            print(f"GPU {n}: {gpu['name']} (UUID: {_uuid(n)})")
            for index, mib in enumerate(gpu["slices_mib"]):
                print(f"  MIG {mib // 1024}gb Device {index}: (UUID: MIG-{n:04x}-{index:04x})")
        return 0
    if set(words) >= {"-q", "-x"}:
        print(_report(box))
        return 0
    if not words:
        print(f"NVIDIA-SMI {box['driver']}  CUDA Version: {box['cuda']}")
        for n, gpu in enumerate(box["gpus"]):
            print(f"| {n}  {gpu['name']}  {_used_mib(gpu)}MiB / {gpu['total_mib']}MiB |")
        return 0
    print("Invalid combination of input arguments: a rehearsal's nvidia-smi does not know it")
    return 2


def _uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"


def _bus(index: int) -> str:
    return f"00000000:{0x1B + index:02X}:00.0"


def _used_mib(gpu: "dict[str, Any]") -> int:
    return 4 + sum(int(other["used_mib"]) for other in gpu["neighbours"])


def _fields(box: "dict[str, Any]", index: int, gpu: "dict[str, Any]") -> "dict[str, Any]":
    busy = bool(gpu["neighbours"])
    return {
        "index": index,
        "count": len(box["gpus"]),
        "name": gpu["name"],
        "gpu_name": gpu["name"],
        "uuid": _uuid(index),
        "gpu_uuid": _uuid(index),
        "pci.bus_id": _bus(index),
        "gpu_bus_id": _bus(index),
        "driver_version": box["driver"],
        "memory.total": (gpu["total_mib"], "MiB"),
        "memory.used": (_used_mib(gpu), "MiB"),
        "memory.free": (gpu["total_mib"] - _used_mib(gpu), "MiB"),
        "utilization.gpu": (97 if busy else 0, "%"),
        "utilization.memory": (40 if busy else 0, "%"),
        "temperature.gpu": 88 if gpu["held_down"] else 34,
        "power.draw": (310.0 if busy else 70.0, "W"),
        "power.limit": (700.0, "W"),
        "clocks.sm": (IDLE_MHZ, "MHz"),
        "clocks.max.sm": (MOST_MHZ, "MHz"),
        "clocks_throttle_reasons.active": "0x0000000000000068" if gpu["held_down"] else "0x1",
        "pcie.link.gen.current": 1,
        "pcie.link.gen.max": 4,
        "pcie.link.width.current": gpu["lanes"],
        "pcie.link.width.max": 16,
        "ecc.errors.uncorrected.volatile.total": gpu["ecc_uncorrected"],
    }


def _apps(box: "dict[str, Any]") -> "list[dict[str, Any]]":
    return [
        {
            "gpu_uuid": _uuid(n),
            "gpu_bus_id": _bus(n),
            "gpu_name": gpu["name"],
            "pid": other["pid"],
            "process_name": other["name"],
            "used_memory": (other["used_mib"], "MiB"),
            "used_gpu_memory": (other["used_mib"], "MiB"),
        }
        for n, gpu in enumerate(box["gpus"])
        for other in gpu["neighbours"]
    ]


def _table(options: "dict[str, str]", rows: "list[dict[str, Any]]") -> int:
    columns = options["--query-gpu"].split(",")
    style = options.get("--format", "csv").split(",")
    known = _fields({"gpus": [], "driver": ""}, 0, EMPTY)
    known.update(_apps({"gpus": [{**EMPTY, "neighbours": [NOBODY]}]})[0])
    for column in columns:
        if column not in known:
            print(f'Field "{column}" is not a valid field to query.\n')
            return 2
    if "noheader" not in style:
        print(", ".join(columns))
    for row in rows:
        print(", ".join(_cell(row.get(column, "[N/A]"), style) for column in columns))
    return 0


def _cell(value: object, style: "list[str]") -> str:
    if isinstance(value, tuple):
        return str(value[0]) if "nounits" in style else f"{value[0]} {value[1]}"
    return str(value)


EMPTY = {
    "name": "",
    "total_mib": 0,
    "lanes": 0,
    "ecc_uncorrected": 0,
    "held_down": [],
    "neighbours": [],
}
NOBODY = {"pid": 0, "name": "", "used_mib": 0}


def _report(box: "dict[str, Any]") -> str:
    told = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        "  <!-- a rehearsal's stand-in printed this: no GPU is there -->",
        f"  <driver_version>{box['driver']}</driver_version>",
        f"  <cuda_version>{box['cuda']}</cuda_version>",
        f"  <attached_gpus>{len(box['gpus'])}</attached_gpus>",
    ]
    for index, gpu in enumerate(box["gpus"]):
        told += _describe(index, gpu)
    return "\n".join([*told, "</nvidia_smi_log>"])


def _describe(index: int, gpu: "dict[str, Any]") -> "list[str]":
    reasons = {"gpu_idle": not gpu["held_down"], "sw_power_cap": False, "hw_slowdown": False}
    reasons.update(dict.fromkeys(("hw_thermal_slowdown", "hw_power_brake_slowdown"), False))
    reasons.update({"sw_thermal_slowdown": False, **dict.fromkeys(gpu["held_down"], True)})
    held = "".join(
        f"<clocks_event_reason_{name}>{'Active' if on else 'Not Active'}</clocks_event_reason_{name}>"
        for name, on in reasons.items()
    )
    name, total, mig = gpu["name"], gpu["total_mib"], gpu["slices_mib"]
    others = "".join(
        f"<process_info><pid>{other['pid']}</pid><type>C</type>"
        f"<process_name>{other['name']}</process_name>"
        f"<used_memory>{other['used_mib']} MiB</used_memory></process_info>"
        for other in gpu["neighbours"]
    )
    slices = "".join(
        f"<mig_device><index>{n}</index><fb_memory_usage><total>{mib} MiB</total>"
        f"<used>0 MiB</used><free>{mib} MiB</free></fb_memory_usage></mig_device>"
        for n, mib in enumerate(mig)
    )
    return [
        f'  <gpu id="{_bus(index)}">',
        f"    <product_name>{name}</product_name>",
        f"    <uuid>{_uuid(index)}</uuid>",
        f"    <minor_number>{index}</minor_number>",
        f"    <mig_mode><current_mig>{'Enabled' if mig else 'Disabled'}</current_mig></mig_mode>",
        f"    <mig_devices>{slices or 'None'}</mig_devices>",
        f"    <pci><pci_bus_id>{_bus(index)}</pci_bus_id><pci_gpu_link_info><pcie_gen>"
        "<max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>"
        f"<link_widths><max_link_width>16x</max_link_width>"
        f"<current_link_width>{gpu['lanes']}x</current_link_width></link_widths></pci_gpu_link_info></pci>",
        f"    <clocks_event_reasons>{held}</clocks_event_reasons>",
        f"    <fb_memory_usage><total>{total} MiB</total><reserved>0 MiB</reserved>"
        f"<used>{_used_mib(gpu)} MiB</used><free>{total - _used_mib(gpu)} MiB</free></fb_memory_usage>",
        "    <ecc_errors><volatile><dram_correctable>0</dram_correctable>"
        f"<dram_uncorrectable>{gpu['ecc_uncorrected']}</dram_uncorrectable></volatile></ecc_errors>",
        "    <remapped_rows><remapped_row_pending>No</remapped_row_pending>"
        "<remapped_row_failure>No</remapped_row_failure></remapped_rows>",
        f"    <temperature><gpu_temp>{88 if gpu['held_down'] else 34} C</gpu_temp>"
        "<gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold></temperature>",
        f"    <clocks><sm_clock>{IDLE_MHZ} MHz</sm_clock></clocks>",
        f"    <processes>{others}</processes>",
        "  </gpu>",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
