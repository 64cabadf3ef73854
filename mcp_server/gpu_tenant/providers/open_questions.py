"""What only a real account can answer about a provider: `providers/<slug>/questions.json`."""

from pathlib import Path

from pydantic import Field, TypeAdapter

from gpu_tenant.domain.record import Record


class Question(Record):
    """One open question."""

    id: str
    asks: str
    by: str | None = Field(description="the check of a pilot that answers it; None: none does")


_QUESTIONS: TypeAdapter[tuple[Question, ...]] = TypeAdapter(tuple[Question, ...])


def questions_of(provider: str) -> tuple[Question, ...]:
    """Return the open questions about that provider. Empty if there are none."""
    file = Path(__file__).parent / provider / "questions.json"
    return _QUESTIONS.validate_json(file.read_bytes()) if file.is_file() else ()
