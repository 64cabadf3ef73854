"""A rehearsal's state outlives its process: a later start reads from the file what the earlier one had."""

from decimal import Decimal
from pathlib import Path

from gpu_tenant.emulators.faults import Tariff
from gpu_tenant.emulators.world import Logged, State, World


def asked(path: str, status: int | None = None) -> Logged:
    return Logged(at=1.0, method="GET", path=path, query='a="b"', body={"ü": [1]}, status=status)


def test_a_later_start_reads_what_was_rented_and_asked(tmp_path: Path) -> None:
    world = World(tariff=Tariff(), file=tmp_path / "state.json", time="frozen")
    world.bill(world.rent("1", "box", "one", status="running"), gpu=Decimal("0.4"))
    world.state.requests += [asked("/first", 200), asked("/second")]

    world.save()

    again = World(tariff=Tariff(), file=tmp_path / "state.json", time="frozen")
    assert again.state == State.model_validate_json(world.state.model_dump_json())
    assert [line.path for line in again.state.requests] == ["/first", "/second"]


def test_the_answer_to_a_request_that_was_written_before_is_written_too(tmp_path: Path) -> None:
    world = World(tariff=Tariff(), file=tmp_path / "state.json", time="frozen")
    world.state.requests.append(asked("/boxes"))
    world.save()

    world.state.requests[0].status = 201
    world.save()

    again = World(tariff=Tariff(), file=tmp_path / "state.json", time="frozen")
    assert again.state.requests[0].status == 201
