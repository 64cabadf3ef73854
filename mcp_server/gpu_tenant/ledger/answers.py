"""What people answered when they were asked whether money may be spent, or a box be taken over."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpu_tenant.ledger.database import Row, moment
from gpu_tenant.ledger.events import Timeline

Said = Literal["yes", "no", "nothing"]
"""`nothing`: the question was closed, or not answered. That is no yes."""


class PersonsAnswer(NamedTuple):
    """One answer of a person."""

    at: datetime
    said: Said
    subjects: frozenset[str]
    usd: Decimal | None
    """The sum that the question named. None if it named none."""


class AnswerTable(Timeline):
    """The part of the ledger that knows what people have agreed to, and what they have declined."""

    def note_answer(
        self,
        kind: str,
        said: Said,
        subjects: Sequence[str],
        *,
        usd: Decimal | None,
        would: str,
        at: datetime,
    ) -> None:
        """Record what a person has answered to one question. `subjects` name what it was about, such as quotes."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO answers(kind, said, subjects, usd, would, at) VALUES (?,?,?,?,?,?)",
                (
                    kind,
                    said,
                    json.dumps(list(subjects)),
                    None if usd is None else str(usd),
                    would,
                    at.isoformat(),
                ),
            )

    def answers(self, kind: str, *, since: datetime | None = None) -> list[PersonsAnswer]:
        """Return the answers to questions of that kind, oldest first."""
        return self._read(
            _answer,
            "SELECT * FROM answers WHERE kind=?1 AND (?2 IS NULL OR at >= ?2) ORDER BY seq",
            kind,
            None if since is None else since.isoformat(),
        )

    def declined(self, subjects: Iterable[str]) -> bool:
        """Whether a person has declined a plan with one of these subjects. It can never be carried out then."""
        return bool(
            self._read(
                lambda row: True,
                "SELECT 1 FROM answers, json_each(answers.subjects) AS named WHERE said='no'"
                " AND kind='rent' AND named.value IN (SELECT value FROM json_each(?)) LIMIT 1",
                json.dumps(list(subjects)),
            )
        )


def _answer(row: Row) -> PersonsAnswer:
    return PersonsAnswer(
        at=moment(row["at"]),
        said=row["said"],
        subjects=frozenset(json.loads(row["subjects"])),
        usd=None if row["usd"] is None else Decimal(row["usd"]),
    )
