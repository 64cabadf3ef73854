"""The ledger's tables and triggers, as numbered migrations. The file's user_version counts them."""

# ruff: noqa: S608 - these strings contain no value from outside


def _append_only(*tables: str) -> str:
    """Return triggers that allow rows to be added to `tables`, but never changed or deleted."""
    return "".join(
        f"CREATE TRIGGER {table}_are_never_{done} BEFORE {verb} ON {table}"
        f" BEGIN SELECT raise(ABORT, 'law: {table} are never {done}'); END;\n"
        for table in tables
        for verb, done in (("UPDATE", "changed"), ("DELETE", "deleted"))
    )


def _never_replaced(key: str, *tables: str) -> str:
    """Return triggers against `INSERT OR REPLACE`, which fires no delete trigger."""
    return "".join(
        f"CREATE TRIGGER {table}_are_never_replaced BEFORE INSERT ON {table}"
        f" WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"
        f" BEGIN SELECT raise(ABORT, 'law: {table} are never replaced'); END;\n"
        for table in tables
    )


MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE leases(
      id TEXT PRIMARY KEY,
      provider TEXT NOT NULL,
      state TEXT NOT NULL CHECK (state IN ('intended','active','terminating','gone','void','lost')),
      terms TEXT NOT NULL,
      box_id TEXT,
      address TEXT,
      price_usd_h TEXT,
      created_at TEXT NOT NULL,
      active_at TEXT,
      ended_at TEXT,
      touched_at TEXT,
      kept_in TEXT,
      CHECK (state NOT IN ('active','terminating','gone','lost') OR box_id IS NOT NULL)
    ) STRICT;
    CREATE UNIQUE INDEX one_live_lease_a_box ON leases(provider, box_id)
      WHERE state IN ('intended','active','terminating');

    CREATE TABLE events(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      kind TEXT NOT NULL, detail TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX events_of ON events(lease_id, seq);
    CREATE TABLE sightings(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      listed TEXT NOT NULL CHECK (listed IN ('listed','omitted')), at TEXT NOT NULL) STRICT;
    CREATE INDEX sightings_of ON sightings(lease_id, seq);
    CREATE TABLE jobs(
      lease_id TEXT NOT NULL REFERENCES leases(id), id TEXT NOT NULL, record TEXT NOT NULL,
      UNIQUE (lease_id, id)) STRICT;
    CREATE TABLE seals(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      digest TEXT NOT NULL, manifest TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE evidence(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE permits(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id), box_id TEXT NOT NULL,
      ground TEXT NOT NULL CHECK (ground IN ('verified','never_used','waived')),
      detail TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE receipts(
      lease_id TEXT PRIMARY KEY REFERENCES leases(id), record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE smokes(id TEXT PRIMARY KEY, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE holds(
      lease_id TEXT PRIMARY KEY REFERENCES leases(id), purpose TEXT NOT NULL, host TEXT NOT NULL,
      pid INTEGER NOT NULL, started TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;

    CREATE TRIGGER a_lease_begins_as_an_intent BEFORE INSERT ON leases
      WHEN NEW.state <> 'intended' OR NEW.box_id IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a lease begins as an intent'); END;

    CREATE TRIGGER no_destroy_without_a_permit BEFORE UPDATE ON leases
      WHEN NEW.state IN ('terminating','gone') AND OLD.state <> NEW.state AND NOT EXISTS (
        SELECT 1 FROM permits WHERE lease_id = NEW.id AND box_id = NEW.box_id)
      BEGIN SELECT raise(ABORT, 'law: no permit is filed for this box'); END;

    CREATE TRIGGER no_end_without_a_receipt BEFORE UPDATE ON leases
      WHEN NEW.state = 'gone' AND OLD.state <> 'gone' AND NOT EXISTS (
        SELECT 1 FROM receipts WHERE lease_id = NEW.id)
      BEGIN SELECT raise(ABORT, 'law: no receipt is filed'); END;

    CREATE TRIGGER gone_is_seen_twice BEFORE INSERT ON receipts
      WHEN 2 > (SELECT count(*) FROM sightings WHERE lease_id = NEW.lease_id AND listed = 'omitted'
        AND seq > (SELECT coalesce(max(seq), 0) FROM sightings
                   WHERE lease_id = NEW.lease_id AND listed = 'listed'))
      BEGIN SELECT raise(ABORT, 'law: gone is believed when the list has omitted the box twice'); END;

    CREATE TRIGGER never_used_means_untouched BEFORE INSERT ON permits
      WHEN NEW.ground = 'never_used' AND EXISTS (
        SELECT 1 FROM leases WHERE id = NEW.lease_id AND touched_at IS NOT NULL)
      BEGIN SELECT raise(ABORT, 'law: this box was used'); END;

    CREATE TRIGGER a_lease_only_moves_on BEFORE UPDATE OF state ON leases
      WHEN OLD.state <> NEW.state AND NOT (
        (OLD.state = 'intended' AND NEW.state IN ('active','void'))
        OR (OLD.state = 'active' AND NEW.state IN ('terminating','lost'))
        OR (OLD.state = 'terminating' AND NEW.state = 'gone'))
      BEGIN SELECT raise(ABORT, 'law: a lease only moves on'); END;

    CREATE TRIGGER a_lease_keeps_its_box BEFORE UPDATE OF box_id ON leases
      WHEN OLD.box_id IS NOT NULL AND NEW.box_id IS NOT OLD.box_id
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its box'); END;

    CREATE TRIGGER used_stays_used BEFORE UPDATE OF touched_at ON leases
      WHEN OLD.touched_at IS NOT NULL AND NEW.touched_at IS NOT OLD.touched_at
      BEGIN SELECT raise(ABORT, 'law: used stays used'); END;

    CREATE TRIGGER leases_are_never_replaced BEFORE INSERT ON leases
      WHEN EXISTS (SELECT 1 FROM leases WHERE id = NEW.id)
      BEGIN SELECT raise(ABORT, 'law: leases are never replaced'); END;
    CREATE TRIGGER leases_are_never_deleted BEFORE DELETE ON leases
      BEGIN SELECT raise(ABORT, 'law: leases are never deleted'); END;
    CREATE TRIGGER a_lease_keeps_its_provider BEFORE UPDATE OF id, provider ON leases
      WHEN NEW.id IS NOT OLD.id OR NEW.provider IS NOT OLD.provider
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its provider'); END;

    """
    + _append_only("events", "permits", "receipts", "seals", "evidence", "sightings"),
    """
    CREATE TABLE deployment(id TEXT PRIMARY KEY) STRICT;
    INSERT INTO deployment VALUES (lower(hex(randomblob(3))));
    CREATE TABLE quotes(
      id TEXT PRIMARY KEY, record TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;
    CREATE TABLE rates(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      usd_h TEXT, at TEXT NOT NULL) STRICT;
    CREATE INDEX rates_of ON rates(lease_id, seq);
    INSERT INTO rates(lease_id, usd_h, at)
      SELECT id, price_usd_h, active_at FROM leases WHERE active_at IS NOT NULL;

    ALTER TABLE leases ADD COLUMN mark TEXT NOT NULL DEFAULT '';
    UPDATE leases SET mark = 'gpu-tenant:' || id;
    ALTER TABLE leases ADD COLUMN quote TEXT;
    ALTER TABLE leases ADD COLUMN ready_at TEXT;
    UPDATE leases SET ready_at = active_at;
    ALTER TABLE leases ADD COLUMN parked_at TEXT;

    CREATE TRIGGER a_lease_has_a_mark BEFORE INSERT ON leases WHEN NEW.mark = ''
      BEGIN SELECT raise(ABORT, 'law: a lease has a mark'); END;
    CREATE TRIGGER a_lease_keeps_its_mark BEFORE UPDATE OF mark ON leases
      WHEN NEW.mark IS NOT OLD.mark
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its mark'); END;
    """
    + _append_only("rates")
    + _never_replaced("seq", "events", "permits", "seals", "evidence", "sightings", "rates")
    + _never_replaced("lease_id", "receipts"),
    """
    CREATE TABLE alarms(
      seq INTEGER PRIMARY KEY, lease_id TEXT REFERENCES leases(id),
      key TEXT NOT NULL, words TEXT NOT NULL, level INTEGER NOT NULL CHECK (level IN (1, 2, 3)),
      since TEXT NOT NULL, last_seen_at TEXT NOT NULL,
      told INTEGER NOT NULL DEFAULT 0, told_at TEXT, ended_at TEXT) STRICT;
    CREATE UNIQUE INDEX one_open_alarm_a_thing ON alarms(coalesce(lease_id, ''), key)
      WHERE ended_at IS NULL;

    CREATE TRIGGER no_waiver_without_a_signature BEFORE UPDATE OF terms ON leases
      WHEN json_extract(NEW.terms, '$.on_deadline') = 'waive' AND NOT EXISTS (
        SELECT 1 FROM events WHERE lease_id = NEW.id AND kind = 'waived ahead' AND seq >
          (SELECT coalesce(max(seq), 0) FROM events WHERE lease_id = NEW.id AND kind = 'terms'))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    CREATE TRIGGER a_lease_begins_without_a_waiver BEFORE INSERT ON leases
      WHEN json_extract(NEW.terms, '$.on_deadline') = 'waive'
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    ALTER TABLE leases ADD COLUMN recovers TEXT REFERENCES leases(id);

    CREATE TRIGGER a_lease_keeps_what_it_recovers BEFORE UPDATE OF recovers ON leases
      WHEN OLD.recovers IS NOT NULL AND NEW.recovers IS NOT OLD.recovers
      BEGIN SELECT raise(ABORT, 'law: a lease keeps what it recovers'); END;
    CREATE TRIGGER alarms_are_never_deleted BEFORE DELETE ON alarms
      BEGIN SELECT raise(ABORT, 'law: alarms are never deleted'); END;
    CREATE TRIGGER an_open_alarm_only_grows_louder BEFORE UPDATE OF level ON alarms
      WHEN NEW.level < OLD.level
      BEGIN SELECT raise(ABORT, 'law: an open alarm only grows louder'); END;
    CREATE TRIGGER an_ended_alarm_stays_ended BEFORE UPDATE ON alarms
      WHEN OLD.ended_at IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: an ended alarm stays ended'); END;
    """
    + _never_replaced("seq", "alarms"),
    """
    CREATE TABLE fleets(
      seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, request TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX fleets_by_request ON fleets(request, seq);
    ALTER TABLE leases ADD COLUMN fleet TEXT REFERENCES fleets(id);
    CREATE INDEX leases_of_a_fleet ON leases(fleet) WHERE fleet IS NOT NULL;
    CREATE UNIQUE INDEX one_open_intent_a_fleet ON leases(fleet)
      WHERE fleet IS NOT NULL AND recovers IS NULL AND state = 'intended';
    CREATE TRIGGER a_lease_keeps_its_fleet BEFORE UPDATE OF fleet ON leases
      WHEN NEW.fleet IS NOT OLD.fleet
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its fleet'); END;

    ALTER TABLE holds RENAME TO holds_on_leases;
    CREATE TABLE holds(
      lease_id TEXT PRIMARY KEY, purpose TEXT NOT NULL, host TEXT NOT NULL,
      pid INTEGER NOT NULL, started TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;
    INSERT INTO holds SELECT * FROM holds_on_leases;
    DROP TABLE holds_on_leases;
    """
    + _append_only("fleets")
    + _never_replaced("id", "fleets"),
    """
    CREATE TABLE sweeps(
      id TEXT PRIMARY KEY, digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX sweeps_by_digest ON sweeps(digest);
    CREATE TABLE sweep_leases(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id),
      lease_id TEXT NOT NULL REFERENCES leases(id), at TEXT NOT NULL,
      UNIQUE (sweep_id, lease_id)) STRICT;
    CREATE INDEX sweeps_of_a_lease ON sweep_leases(lease_id);
    CREATE TABLE placements(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id), cell TEXT NOT NULL,
      lease_id TEXT NOT NULL REFERENCES leases(id), job TEXT NOT NULL, at TEXT NOT NULL,
      UNIQUE (lease_id, job)) STRICT;
    CREATE INDEX placements_of ON placements(sweep_id, cell);
    CREATE TABLE releases(
      placement INTEGER PRIMARY KEY REFERENCES placements(seq),
      why TEXT NOT NULL CHECK (why IN ('withdrawn','lost','again')), at TEXT NOT NULL) STRICT;
    CREATE TABLE reports(
      seq INTEGER PRIMARY KEY, placement INTEGER NOT NULL REFERENCES placements(seq),
      word TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX reports_of ON reports(placement, seq);
    CREATE TABLE settlements(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id),
      digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE TABLE rereads(
      placement INTEGER PRIMARY KEY REFERENCES placements(seq), at TEXT NOT NULL) STRICT;
    CREATE TABLE given_up(
      seq INTEGER PRIMARY KEY, sweep_id TEXT NOT NULL REFERENCES sweeps(id), cell TEXT NOT NULL,
      at TEXT NOT NULL, UNIQUE (sweep_id, cell)) STRICT;

    CREATE TRIGGER a_cell_is_in_one_place BEFORE INSERT ON placements
      WHEN EXISTS (SELECT 1 FROM placements p WHERE sweep_id = NEW.sweep_id AND cell = NEW.cell
        AND NOT EXISTS (SELECT 1 FROM releases WHERE placement = p.seq))
      BEGIN SELECT raise(ABORT, 'law: a cell is in one place at a time'); END;
    CREATE TRIGGER what_was_given_up_is_put_nowhere BEFORE INSERT ON placements
      WHEN EXISTS (SELECT 1 FROM given_up WHERE sweep_id = NEW.sweep_id AND cell = NEW.cell)
      BEGIN SELECT raise(ABORT, 'law: what was given up is put nowhere'); END;
    CREATE TRIGGER only_a_lost_box_loses_its_cells BEFORE INSERT ON releases
      WHEN NEW.why = 'lost' AND 'lost' <> (SELECT state FROM leases WHERE id =
        (SELECT lease_id FROM placements WHERE seq = NEW.placement))
        AND 'gone' <> (SELECT state FROM leases WHERE id =
        (SELECT lease_id FROM placements WHERE seq = NEW.placement))
      BEGIN SELECT raise(ABORT, 'law: a box that may exist keeps its cells'); END;
    CREATE TRIGGER what_ran_was_not_withdrawn BEFORE INSERT ON releases
      WHEN NEW.why = 'withdrawn' AND EXISTS (SELECT 1 FROM reports WHERE placement = NEW.placement
        AND word NOT IN ('queued','needs_env','withdrawn'))
      BEGIN SELECT raise(ABORT, 'law: what has begun is not withdrawn'); END;
    CREATE TRIGGER what_may_run_is_not_begun_again BEFORE INSERT ON releases
      WHEN NEW.why = 'again' AND NOT EXISTS (SELECT 1 FROM reports WHERE seq =
        (SELECT max(seq) FROM reports WHERE placement = NEW.placement)
        AND word IN ('finished','failed','killed','stopped','withdrawn'))
      BEGIN SELECT raise(ABORT, 'law: what may still run is not begun again'); END;
    """
    + _append_only("sweeps", "sweep_leases", "placements", "releases", "reports", "settlements")
    + _append_only("rereads", "given_up")
    + _never_replaced("id", "sweeps")
    + _never_replaced("placement", "releases", "rereads")
    + _never_replaced("seq", "sweep_leases", "placements", "reports", "settlements", "given_up"),
    """
    ALTER TABLE holds ADD COLUMN token TEXT;
    ALTER TABLE holds ADD COLUMN since TEXT;
    ALTER TABLE holds ADD COLUMN renewed_at TEXT;
    ALTER TABLE holds ADD COLUMN doubted_at TEXT;
    """,
    """
    CREATE TABLE signature_requests(
      code TEXT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, digest TEXT NOT NULL,
      asked_at TEXT NOT NULL, expires_at TEXT NOT NULL) STRICT;
    CREATE INDEX signature_requests_for ON signature_requests(kind, subject, digest);
    CREATE TABLE signature_words(
      seq INTEGER PRIMARY KEY, code TEXT NOT NULL REFERENCES signature_requests(code),
      would TEXT NOT NULL, words TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX signature_words_of ON signature_words(code, seq);
    CREATE TABLE signatures(
      seq INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE REFERENCES signature_requests(code),
      shown TEXT NOT NULL, by TEXT NOT NULL,
      form TEXT NOT NULL CHECK (form IN ('terminal','page','passkey')),
      proof TEXT, at TEXT NOT NULL, CHECK (form <> 'passkey' OR proof IS NOT NULL)) STRICT;
    CREATE TABLE signature_uses(
      code TEXT PRIMARY KEY REFERENCES signatures(code), at TEXT NOT NULL) STRICT;

    CREATE TRIGGER nobody_signs_for_what_waits_no_more BEFORE INSERT ON signatures
      WHEN NOT EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.code AND expires_at > NEW.at)
      BEGIN SELECT raise(ABORT, 'law: that waits for no signature'); END;
    """
    + _append_only("signature_requests", "signature_words", "signatures", "signature_uses")
    + _never_replaced("code", "signature_requests", "signatures", "signature_uses")
    + _never_replaced("seq", "signature_words"),
    """
    CREATE INDEX live_leases_by_quote ON leases(json_extract(quote, '$.id'))
      WHERE quote IS NOT NULL AND state IN ('intended','active','terminating');
    CREATE TRIGGER a_quote_rents_one_box BEFORE INSERT ON leases
      WHEN NEW.quote IS NOT NULL AND EXISTS (SELECT 1 FROM leases WHERE quote IS NOT NULL
        AND state IN ('intended','active','terminating')
        AND json_extract(quote, '$.id') = json_extract(NEW.quote, '$.id')
        AND (fleet IS NULL OR NEW.fleet IS NULL OR fleet <> NEW.fleet))
      BEGIN SELECT raise(ABORT, 'law: a quote rents one box'); END;
    """,
    """
    DROP TRIGGER a_lease_only_moves_on;
    CREATE TRIGGER a_lease_only_moves_on BEFORE UPDATE OF state ON leases
      WHEN OLD.state <> NEW.state AND NOT (
        (OLD.state = 'intended' AND NEW.state IN ('active','void'))
        OR (OLD.state = 'active' AND NEW.state IN ('terminating','lost'))
        OR (OLD.state = 'terminating' AND NEW.state = 'gone')
        OR (OLD.state = 'lost' AND NEW.state = 'active'))
      BEGIN SELECT raise(ABORT, 'law: a lease only moves on'); END;
    CREATE TRIGGER a_lost_lease_comes_back_with_its_box BEFORE UPDATE OF state ON leases
      WHEN OLD.state = 'lost' AND NEW.state = 'active' AND 'listed' IS NOT (
        SELECT listed FROM sightings WHERE lease_id = NEW.id ORDER BY seq DESC LIMIT 1)
      BEGIN SELECT raise(ABORT, 'law: only a box that is listed was not lost'); END;
    CREATE INDEX lost_on_a_box ON leases(provider, box_id) WHERE state = 'lost';
    """,
    """
    CREATE TABLE rehearsals(seq INTEGER PRIMARY KEY CHECK (seq = 1)) STRICT;
    CREATE TRIGGER real_leases_are_never_rehearsed BEFORE INSERT ON rehearsals
      WHEN EXISTS (SELECT 1 FROM leases)
      BEGIN SELECT raise(ABORT, 'law: a ledger with leases never becomes a rehearsal'); END;
    """
    + _append_only("rehearsals")
    + _never_replaced("seq", "rehearsals"),
    """
    CREATE TABLE askings(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      place TEXT NOT NULL, key TEXT NOT NULL, account TEXT, at TEXT NOT NULL) STRICT;
    CREATE INDEX askings_of ON askings(lease_id, seq);
    """
    + _append_only("askings")
    + _never_replaced("seq", "askings"),
    """
    CREATE TRIGGER only_a_person_waives BEFORE INSERT ON permits
      WHEN NEW.ground = 'waived' AND NOT EXISTS (
        SELECT 1 FROM signature_uses u JOIN signature_requests r ON r.code = u.code
        WHERE u.code = json_extract(NEW.detail, '$.signature')
          AND r.subject = NEW.lease_id AND r.kind IN ('waive','waive_ahead'))
      AND NOT (json_extract(NEW.detail, '$.signature') = 'waived ahead' AND EXISTS (
        SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind = 'waived ahead'
          AND json_extract(detail, '$.signature') IS NULL))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    CREATE TRIGGER only_a_person_waives_ahead_or_attests BEFORE INSERT ON events
      WHEN NEW.kind IN ('waived ahead','attested') AND NOT EXISTS (
        SELECT 1 FROM signature_uses u JOIN signature_requests r ON r.code = u.code
        WHERE u.code = json_extract(NEW.detail, '$.signature') AND r.subject = NEW.lease_id
          AND r.kind = iif(NEW.kind = 'attested', 'attest', 'waive_ahead'))
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    """,
    """
    CREATE TABLE passkeys(
      id TEXT PRIMARY KEY, public_key TEXT NOT NULL, by TEXT NOT NULL,
      signature TEXT NOT NULL UNIQUE REFERENCES signature_uses(code), at TEXT NOT NULL) STRICT;
    CREATE TABLE passkey_ends(
      seq INTEGER PRIMARY KEY, passkey TEXT NOT NULL REFERENCES passkeys(id),
      signature TEXT NOT NULL REFERENCES signature_uses(code),
      asked_at TEXT NOT NULL, ends_at TEXT NOT NULL) STRICT;
    CREATE TABLE passkey_ends_withdrawn(
      ending INTEGER PRIMARY KEY REFERENCES passkey_ends(seq),
      signature TEXT NOT NULL REFERENCES signature_uses(code), at TEXT NOT NULL) STRICT;

    CREATE TRIGGER where_there_is_a_passkey_it_signs BEFORE INSERT ON signatures
      WHEN NEW.form <> 'passkey'
      AND 'lost_passkey' <> (SELECT kind FROM signature_requests WHERE code = NEW.code)
      AND EXISTS (SELECT 1 FROM passkeys p WHERE NOT EXISTS (
        SELECT 1 FROM passkey_ends e WHERE e.passkey = p.id AND e.ends_at <= NEW.at
          AND NOT EXISTS (SELECT 1 FROM passkey_ends_withdrawn WHERE ending = e.seq)))
      BEGIN SELECT raise(ABORT, 'law: a passkey signs here'); END;
    CREATE TRIGGER a_passkey_is_signed_for BEFORE INSERT ON passkeys
      WHEN NOT EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.signature AND kind = 'passkey')
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    CREATE TRIGGER who_has_lost_a_passkey_waits_a_day BEFORE INSERT ON passkey_ends
      WHEN julianday(NEW.ends_at) - julianday(NEW.asked_at) < 0.999 AND NOT EXISTS (
        SELECT 1 FROM signatures WHERE code = NEW.signature AND form = 'passkey')
      BEGIN SELECT raise(ABORT, 'law: a passkey that is lost ends after a day'); END;
    """
    + _append_only("passkeys", "passkey_ends", "passkey_ends_withdrawn")
    + _never_replaced("id", "passkeys")
    + _never_replaced("seq", "passkey_ends")
    + _never_replaced("ending", "passkey_ends_withdrawn"),
    """
    CREATE INDEX leases_by_end ON leases(ended_at) WHERE ended_at IS NOT NULL;
    """,
    """
    CREATE TABLE seal_key(key TEXT PRIMARY KEY) STRICT;
    INSERT INTO seal_key VALUES (lower(hex(randomblob(32))));
    CREATE TABLE sent(
      lease_id TEXT NOT NULL REFERENCES leases(id), name TEXT NOT NULL, size_bytes INTEGER NOT NULL,
      sha256 TEXT NOT NULL, PRIMARY KEY (lease_id, name, size_bytes, sha256)) STRICT, WITHOUT ROWID;
    CREATE TABLE sent_before(lease_id TEXT PRIMARY KEY REFERENCES leases(id)) STRICT;
    INSERT INTO sent_before SELECT id FROM leases
      WHERE touched_at IS NOT NULL AND state IN ('active','terminating');
    CREATE TABLE scripts(sha256 TEXT PRIMARY KEY) STRICT;
    CREATE TABLE since(
      seq INTEGER PRIMARY KEY, lease_id TEXT NOT NULL REFERENCES leases(id),
      since_ns INTEGER NOT NULL) STRICT;
    CREATE INDEX since_of ON since(lease_id);
    """
    + _append_only("since"),
    # A machine that is handed back (`own`) keeps its files. A person with the provider's console can start a parked
    # box, work on it and stop it again. So a look from before the stop does not count.
    """
    CREATE TRIGGER never_used_means_looked_at BEFORE INSERT ON permits
      WHEN NEW.ground = 'never_used' AND EXISTS (
        SELECT 1 FROM leases WHERE id = NEW.lease_id AND provider <> 'own')
      AND EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind IN ('ready','marked'))
      AND NOT EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind = 'looked' AND seq >
        (SELECT coalesce(max(seq), 0) FROM events WHERE lease_id = NEW.lease_id
          AND kind IN ('ready','resumed','parked','permitted')))
      BEGIN SELECT raise(ABORT, 'law: nobody has looked whether this box was used'); END;
    """,
    # Terms from before this version say nothing about this, and are read as `keep`: nobody agreed to more.
    """
    CREATE TRIGGER only_what_was_agreed_ends_when_done BEFORE INSERT ON events
      WHEN NEW.kind = 'done' AND 'keep' = (
        SELECT coalesce(json_extract(terms, '$.when_done'), 'keep') FROM leases WHERE id = NEW.lease_id)
      BEGIN SELECT raise(ABORT, 'law: nobody agreed that this lease ends when its work is done'); END;
    """,
    # A box that was given back before it let anybody in does not count: its wish still waits.
    """
    CREATE TABLE wishes(
      id TEXT PRIMARY KEY, wish TEXT NOT NULL, provider TEXT, filed_at TEXT NOT NULL,
      ordered TEXT, asked_at TEXT, until TEXT,
      looked_at TEXT, seen TEXT NOT NULL DEFAULT '', rests TEXT NOT NULL DEFAULT '{}',
      ended_at TEXT, outcome TEXT CHECK (outcome IN ('had','given up','called off')),
      CHECK ((ordered IS NULL) = (until IS NULL) AND (ended_at IS NULL) = (outcome IS NULL))) STRICT;
    ALTER TABLE leases ADD COLUMN wish TEXT REFERENCES wishes(id);
    CREATE INDEX leases_of_a_wish ON leases(wish) WHERE wish IS NOT NULL;

    CREATE TRIGGER a_wish_rents_one_box BEFORE INSERT ON leases
      WHEN NEW.wish IS NOT NULL AND (
        NOT EXISTS (SELECT 1 FROM wishes WHERE id = NEW.wish AND until IS NOT NULL AND ended_at IS NULL)
        OR EXISTS (SELECT 1 FROM leases WHERE wish = NEW.wish AND (state IN ('intended','active','terminating')
          OR ready_at IS NOT NULL OR touched_at IS NOT NULL)))
      BEGIN SELECT raise(ABORT, 'law: a wish rents one box, while it stands'); END;
    CREATE TRIGGER a_lease_keeps_its_wish BEFORE UPDATE OF wish ON leases
      WHEN NEW.wish IS NOT OLD.wish
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its wish'); END;
    CREATE TRIGGER a_wish_keeps_its_order BEFORE UPDATE OF wish, provider, ordered, until ON wishes
      WHEN OLD.until IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a wish keeps its order'); END;
    CREATE TRIGGER a_wish_that_has_ended_stays_ended BEFORE UPDATE ON wishes
      WHEN OLD.ended_at IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a wish that has ended stays ended'); END;
    CREATE TRIGGER a_wish_that_stood_is_never_deleted BEFORE DELETE ON wishes
      WHEN OLD.until IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a wish that stood is never deleted'); END;
    """
    + _never_replaced("id", "wishes"),
    # A lease from before this version has its directory in the login home, and the directory stays there.
    """
    ALTER TABLE leases ADD COLUMN place TEXT;
    UPDATE leases SET place = '{"path":"~"}'
      WHERE ready_at IS NOT NULL OR touched_at IS NOT NULL OR EXISTS (
        SELECT 1 FROM events WHERE lease_id = leases.id AND kind IN ('ready','marking','marked'));
    CREATE TRIGGER a_lease_keeps_its_place BEFORE UPDATE OF place ON leases
      WHEN OLD.place IS NOT NULL AND NEW.place IS NOT OLD.place
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its place on its box'); END;
    """,
    """
    CREATE TABLE host_reports(
      seq INTEGER PRIMARY KEY, provider TEXT NOT NULL, host TEXT NOT NULL, what TEXT NOT NULL,
      words TEXT NOT NULL, lease_id TEXT NOT NULL REFERENCES leases(id), at TEXT NOT NULL) STRICT;
    CREATE INDEX host_reports_by_time ON host_reports(at);
    CREATE TABLE hosts_forgotten(
      seq INTEGER PRIMARY KEY, provider TEXT NOT NULL, host TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX hosts_forgotten_by_name ON hosts_forgotten(provider, host);
    """
    + _append_only("host_reports", "hosts_forgotten")
    + _never_replaced("seq", "host_reports", "hosts_forgotten"),
    # A box that was given back before anybody used it does not count: its errand may have another one.
    """
    CREATE TABLE errands(
      id TEXT PRIMARY KEY, digest TEXT NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX errands_by_digest ON errands(digest);
    CREATE TABLE errand_events(
      seq INTEGER PRIMARY KEY, errand_id TEXT NOT NULL REFERENCES errands(id),
      kind TEXT NOT NULL, detail TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX errand_events_of ON errand_events(errand_id, seq);
    ALTER TABLE leases ADD COLUMN errand TEXT REFERENCES errands(id);
    CREATE INDEX leases_of_an_errand ON leases(errand) WHERE errand IS NOT NULL;

    CREATE TRIGGER an_errand_has_one_box BEFORE INSERT ON leases
      WHEN NEW.errand IS NOT NULL AND NEW.recovers IS NULL AND (
        EXISTS (SELECT 1 FROM errand_events WHERE errand_id = NEW.errand AND kind = 'shown')
        OR EXISTS (SELECT 1 FROM leases WHERE errand = NEW.errand
          AND (state IN ('intended','active','terminating') OR touched_at IS NOT NULL)))
      BEGIN SELECT raise(ABORT, 'law: an errand has one box'); END;
    CREATE TRIGGER a_lease_keeps_its_errand BEFORE UPDATE OF errand ON leases
      WHEN NEW.errand IS NOT OLD.errand
      BEGIN SELECT raise(ABORT, 'law: a lease keeps its errand'); END;
    """
    + _append_only("errands", "errand_events")
    + _never_replaced("id", "errands")
    + _never_replaced("seq", "errand_events"),
    # No look from outside shows what is on a volume. So nothing but a person's signature ends one.
    """
    CREATE TABLE volumes(
      id TEXT PRIMARY KEY, provider TEXT NOT NULL, name TEXT NOT NULL, mark TEXT NOT NULL UNIQUE,
      region TEXT NOT NULL, size_gb INTEGER NOT NULL,
      state TEXT NOT NULL CHECK (state IN ('intended','active','ending','gone','void','lost')),
      volume_id TEXT, usd_month TEXT, created_at TEXT NOT NULL, ended_at TEXT,
      place TEXT, key TEXT, account TEXT,
      CHECK (state NOT IN ('active','ending','gone','lost') OR volume_id IS NOT NULL)) STRICT;
    CREATE UNIQUE INDEX one_live_volume_a_name ON volumes(provider, name)
      WHERE state IN ('intended','active','ending');
    CREATE TABLE volume_events(
      seq INTEGER PRIMARY KEY, volume TEXT NOT NULL REFERENCES volumes(id),
      kind TEXT NOT NULL, words TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX volume_events_of ON volume_events(volume, seq);
    CREATE TABLE volume_sightings(
      seq INTEGER PRIMARY KEY, volume TEXT NOT NULL REFERENCES volumes(id),
      listed TEXT NOT NULL CHECK (listed IN ('listed','omitted')), at TEXT NOT NULL) STRICT;
    CREATE INDEX volume_sightings_of ON volume_sightings(volume, seq);
    CREATE TABLE volume_permits(
      seq INTEGER PRIMARY KEY, volume TEXT NOT NULL REFERENCES volumes(id), volume_id TEXT NOT NULL,
      signature TEXT NOT NULL UNIQUE REFERENCES signature_uses(code), at TEXT NOT NULL) STRICT;

    CREATE TRIGGER a_volume_begins_as_an_intent BEFORE INSERT ON volumes
      WHEN NEW.state <> 'intended' OR NEW.volume_id IS NOT NULL
      BEGIN SELECT raise(ABORT, 'law: a volume begins as an intent'); END;
    CREATE TRIGGER only_a_person_gives_up_a_volume BEFORE INSERT ON volume_permits
      WHEN NOT EXISTS (SELECT 1 FROM signature_requests WHERE code = NEW.signature
        AND kind = 'volume' AND subject = NEW.volume)
      OR NEW.volume_id IS NOT (SELECT volume_id FROM volumes WHERE id = NEW.volume)
      BEGIN SELECT raise(ABORT, 'law: nobody has signed for that'); END;
    CREATE TRIGGER no_volume_ends_without_a_permit BEFORE UPDATE OF state ON volumes
      WHEN NEW.state IN ('ending','gone') AND OLD.state <> NEW.state AND NOT EXISTS (
        SELECT 1 FROM volume_permits WHERE volume = NEW.id AND volume_id = NEW.volume_id)
      BEGIN SELECT raise(ABORT, 'law: no permit is filed for this volume'); END;
    CREATE TRIGGER a_volume_in_use_is_not_ended BEFORE UPDATE OF state ON volumes
      WHEN NEW.state = 'ending' AND OLD.state <> 'ending' AND EXISTS (
        SELECT 1 FROM leases, json_each(leases.terms, '$.order.volumes') AS mount
        WHERE leases.provider = NEW.provider AND leases.state IN ('intended','active','terminating')
          AND mount.key = NEW.name)
      BEGIN SELECT raise(ABORT, 'law: a lease uses this volume'); END;
    CREATE TRIGGER a_volume_is_gone_when_seen_twice BEFORE UPDATE OF state ON volumes
      WHEN NEW.state IN ('gone','lost') AND OLD.state <> NEW.state AND 2 > (
        SELECT count(*) FROM volume_sightings WHERE volume = NEW.id AND listed = 'omitted'
        AND seq > (SELECT coalesce(max(seq), 0) FROM volume_sightings
                   WHERE volume = NEW.id AND listed = 'listed'))
      BEGIN SELECT raise(ABORT, 'law: gone is believed when the list has omitted the volume twice'); END;
    CREATE TRIGGER a_volume_only_moves_on BEFORE UPDATE OF state ON volumes
      WHEN OLD.state <> NEW.state AND NOT (
        (OLD.state = 'intended' AND NEW.state IN ('active','void'))
        OR (OLD.state = 'active' AND NEW.state IN ('ending','lost'))
        OR (OLD.state = 'ending' AND NEW.state = 'gone')
        OR (OLD.state = 'lost' AND NEW.state = 'active'))
      BEGIN SELECT raise(ABORT, 'law: a volume only moves on'); END;
    CREATE TRIGGER a_volume_stays_what_it_is BEFORE UPDATE ON volumes
      WHEN NEW.id IS NOT OLD.id OR NEW.provider IS NOT OLD.provider OR NEW.name IS NOT OLD.name
        OR NEW.mark IS NOT OLD.mark OR (OLD.volume_id IS NOT NULL AND NEW.volume_id IS NOT OLD.volume_id)
      BEGIN SELECT raise(ABORT, 'law: a volume stays what it is'); END;
    CREATE TRIGGER volumes_are_never_deleted BEFORE DELETE ON volumes
      BEGIN SELECT raise(ABORT, 'law: volumes are never deleted'); END;
    CREATE TRIGGER a_volume_is_on_one_box BEFORE INSERT ON leases
      WHEN EXISTS (
        SELECT 1 FROM json_each(NEW.terms, '$.order.volumes') AS mount
        WHERE NOT EXISTS (SELECT 1 FROM volumes WHERE provider = NEW.provider AND name = mount.key
            AND state = 'active')
        OR EXISTS (SELECT 1 FROM leases, json_each(leases.terms, '$.order.volumes') AS other
            WHERE leases.provider = NEW.provider AND leases.state IN ('intended','active','terminating')
              AND other.key = mount.key))
      BEGIN SELECT raise(ABORT, 'law: a lease has volumes that exist and that no other lease uses'); END;
    """
    + _append_only("volume_events", "volume_sightings", "volume_permits")
    + _never_replaced("id", "volumes")
    + _never_replaced("seq", "volume_events", "volume_sightings", "volume_permits"),
    # Two volumes that were made elsewhere may have the same name at their provider. `mark` stays unique, and identifies
    # our own volumes. `called` is the provider's name of a volume that was adopted.
    """
    ALTER TABLE volumes ADD COLUMN called TEXT;
    CREATE UNIQUE INDEX one_live_volume_an_id ON volumes(provider, volume_id)
      WHERE state IN ('intended','active','ending');
    DROP TRIGGER a_volume_stays_what_it_is;
    CREATE TRIGGER a_volume_stays_what_it_is BEFORE UPDATE ON volumes
      WHEN NEW.id IS NOT OLD.id OR NEW.provider IS NOT OLD.provider OR NEW.name IS NOT OLD.name
        OR NEW.mark IS NOT OLD.mark OR NEW.called IS NOT OLD.called
        OR (OLD.volume_id IS NOT NULL AND NEW.volume_id IS NOT OLD.volume_id)
      BEGIN SELECT raise(ABORT, 'law: a volume stays what it is'); END;
    """,
    # A parked box holds what was read right before its stop, as long as nobody has started it since.
    """
    CREATE TRIGGER a_parked_box_was_read_at_its_stop BEFORE INSERT ON permits
      WHEN NEW.ground = 'verified'
      AND EXISTS (SELECT 1 FROM leases WHERE id = NEW.lease_id AND parked_at IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM events r WHERE r.lease_id = NEW.lease_id AND r.kind = 'read at stop'
        AND json_extract(r.detail, '$.seal') = json_extract(NEW.detail, '$.seal')
        AND NOT EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND seq > r.seq AND kind IN
          ('resuming','resumed','runs on','parking','taken','ready','marking','marked','launched','pushed',
           'setting up','preparing','executed','logged in')))
      BEGIN SELECT raise(ABORT, 'law: nobody has read this box since it last ran'); END;
    """,
    # The disk of a volume may outlive it, and no list shows it. Only a person who has looked knows whether it is gone.
    """
    CREATE TRIGGER a_disk_that_may_stay_is_seen_gone_by_a_person BEFORE UPDATE OF state ON volumes
      WHEN NEW.state = 'gone' AND OLD.state <> 'gone'
      AND EXISTS (SELECT 1 FROM volume_events WHERE volume = NEW.id AND kind = 'may stay')
      AND NOT EXISTS (SELECT 1 FROM volume_events e JOIN signature_uses u ON u.code = e.words
        JOIN signature_requests r ON r.code = u.code
        WHERE e.volume = NEW.id AND e.kind = 'disk gone' AND r.kind = 'volume disk' AND r.subject = NEW.id)
      BEGIN SELECT raise(ABORT, 'law: nobody has seen that its disk is gone'); END;
    """,
    # What a person has declined is not rented. Only a new plan, with other quotes or another errand, can be.
    """
    CREATE TABLE answers(
      seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, said TEXT NOT NULL CHECK (said IN ('yes','no','nothing')),
      subjects TEXT NOT NULL, usd TEXT, would TEXT NOT NULL, at TEXT NOT NULL) STRICT;
    CREATE INDEX answers_of ON answers(kind, seq);
    CREATE TRIGGER what_was_declined_is_not_rented BEFORE INSERT ON leases
      WHEN EXISTS (SELECT 1 FROM answers, json_each(answers.subjects) AS named
        WHERE answers.kind = 'rent' AND answers.said = 'no'
          AND named.value IN (NEW.errand, json_extract(NEW.quote, '$.id')))
      BEGIN SELECT raise(ABORT, 'law: a person has declined this'); END;
    """
    + _append_only("answers")
    + _never_replaced("seq", "answers"),
    "ALTER TABLE leases ADD COLUMN rental_ends_at TEXT;",
    # A permit as *never used* rests on a look. It still does if the provider refused or ignored the destroy, and the
    # box was only stopped since: `leases/read_at_stop.py`.
    """
    DROP TRIGGER never_used_means_looked_at;
    CREATE TRIGGER never_used_means_looked_at BEFORE INSERT ON permits
      WHEN NEW.ground = 'never_used' AND EXISTS (
        SELECT 1 FROM leases WHERE id = NEW.lease_id AND provider <> 'own')
      AND EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind IN ('ready','marked'))
      AND NOT EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND kind = 'looked' AND seq >
        (SELECT coalesce(max(seq), 0) FROM events WHERE lease_id = NEW.lease_id
          AND kind IN ('ready','resumed','parked','permitted')))
      AND NOT EXISTS (SELECT 1 FROM events r JOIN leases l ON l.id = r.lease_id
        WHERE r.lease_id = NEW.lease_id AND r.kind = 'read at stop' AND json_extract(r.detail, '$.seal') IS NULL
        AND l.parked_at IS NOT NULL
        AND EXISTS (SELECT 1 FROM permits WHERE lease_id = NEW.lease_id AND ground = 'never_used')
        AND NOT EXISTS (SELECT 1 FROM events WHERE lease_id = NEW.lease_id AND seq > r.seq AND kind IN
          ('resuming','resumed','runs on','parking','taken','ready','marking','marked','launched','pushed',
           'setting up','preparing','executed','logged in')))
      BEGIN SELECT raise(ABORT, 'law: nobody has looked whether this box was used'); END;
    """,
)
