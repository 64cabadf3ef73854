"""AutoDL's answers, in the form that its pages about the instance Pro API show."""

import hashlib
from datetime import datetime, timedelta, timezone

from pydantic import JsonValue
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.world import Thing

Json = dict[str, JsonValue]

_CHINA = timezone(timedelta(hours=8))
_GIB = 2**30
_NEVER: Json = {"Time": "0001-01-01T00:00:00Z", "Valid": False}


def envelope(code: str, told: JsonValue, msg: str = "") -> Response:
    """An answer of AutoDL: always a 200, in which `code` says what happened."""
    request_id = hashlib.md5(f"{code} {told}".encode(), usedforsecurity=False).hexdigest()
    return JSONResponse({"code": code, "data": told, "msg": msg, "request_id": request_id})


def ok(told: JsonValue = None) -> Response:
    """Return the answer to a request that was carried out."""
    return envelope("Success", told)


def failure(code: str, msg: str) -> Response:
    """Return the answer to a request that was not carried out."""
    return envelope(code, None, msg)


def page(rows: list[JsonValue], page_index: int, page_size: int, total: int) -> Json:
    """One page of a list."""
    return {
        "list": rows or None,
        "page_index": page_index,
        "page_size": page_size,
        "offset": 0,
        "max_page": -(-total // page_size),
        "result_total": total,
        "page": page_index,
    }


def shown_instance(box: Thing) -> Json:
    """A row of the list of instances."""
    facts = box.facts
    started, stopped = facts.get("started_at"), facts.get("stopped_at")
    return {
        "created_at": _instant(box.created_at),
        "uuid": box.id,
        "machine_id": "4d67438b4f",
        "machine_alias": "",
        "region_sign": facts["region"],
        "region_name": "北京B区",
        "status": box.status,
        "sub_status": "",
        "status_at": _instant(box.created_at),
        "start_mode": "gpu",
        "charge_type": "payg",
        "req_gpu_amount": facts["gpu_count"],
        "expired_at": _NEVER,
        "started_at": _time(started),
        "stopped_at": _time(stopped),
        "name": box.name,
        "timed_shutdown_at": _NEVER,
        "gpu_spec_uuid": facts["spec"],
    }


def snapshot(box: Thing, *, payg_price: int, secret: str) -> Json:
    """The details of one instance, including its root password."""
    facts = box.facts
    host, port = facts.get("host", ""), facts.get("port", 0)
    return {
        "region_sign": facts["region"],
        "payg_price": payg_price,
        "origin_pay_price": payg_price,
        "snapshot_gpu_alias_name": facts["spec"],
        "chip_corp": "nvidia",
        "cpu_arch": "x86",
        "usage_info": {
            "container_id": f"autodl-{box.id}",
            "root_fs_total_size": 30 * _GIB,
            "data_disk_total_size": 0,
            "valid": False,
        },
        "expand_system_disk_size": 30 * _GIB,
        "system_init_disk_size": 30 * _GIB,
        "ssh_command": f"ssh -p {port} root@{host}" if host else "",
        "proxy_host": host,
        "root_password": secret,
        "ssh_port": port,
        "jupyter_token": secret,
        "jupyter_domain": "",
        "service_6006_domain": "",
        "service_6006_port_protocol": "http",
        "service_6008_domain": "",
        "service_6008_port_protocol": "http",
    }


def shown_image(image: Thing) -> Json:
    """A row of the list of saved images."""
    return {
        "image_uuid": image.id,
        "name": image.name,
        "status": "finished",
        "image_size": image.facts["bytes"],
        "create_at": _instant(image.created_at),
    }


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, _CHINA).isoformat(timespec="seconds")


def _time(at: JsonValue) -> Json:
    return {"Time": _instant(float(str(at))), "Valid": True} if at else _NEVER
