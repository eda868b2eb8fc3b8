-- The statements of the log. `queries.py` finds each by its name.
-- A file that was edited by hand may have text where bytes belong: it is read as bytes, and fails verification.
-- Events are rows of `appends`, several in a row; those of older versions are rows of `events`, whose count is NULL.

-- Most files have no events of older versions, and then `read` has all. Else `read_with_old` has them.
-- name: has_any_old_events
SELECT EXISTS (SELECT 1 FROM events)

-- name: read
SELECT CAST(seq AS INTEGER), CAST(count AS INTEGER), CAST(bodies AS BLOB), CAST(hashes AS BLOB) FROM appends
WHERE run = (SELECT number FROM runs WHERE run_id = ?1) AND seq >= coalesce(
    (SELECT max(seq) FROM appends WHERE run = (SELECT number FROM runs WHERE run_id = ?1) AND seq <= ?2 + 1), 0
)
ORDER BY seq LIMIT ?3

-- name: read_with_old
WITH named AS (SELECT number FROM runs WHERE run_id = ?1)
SELECT seq, NULL, CAST(body AS BLOB), CAST(hash AS BLOB) FROM events
WHERE run = (SELECT number FROM named) AND seq > ?2
UNION ALL
SELECT CAST(seq AS INTEGER), CAST(count AS INTEGER), CAST(bodies AS BLOB), CAST(hashes AS BLOB) FROM appends
WHERE run = (SELECT number FROM named) AND seq >= coalesce(
    (SELECT max(seq) FROM appends WHERE run = (SELECT number FROM named) AND seq <= ?2 + 1), 0
)
ORDER BY 1 LIMIT ?3

-- name: run_ids
SELECT run_id FROM runs ORDER BY number

-- name: list_runs
SELECT run_id,
    coalesce(first.seq, old_first.seq), CAST(first.count AS INTEGER),
    CAST(coalesce(first.bodies, old_first.body) AS BLOB), CAST(coalesce(first.hashes, old_first.hash) AS BLOB),
    CAST(coalesce(last.seq, old_last.seq) AS INTEGER), CAST(last.count AS INTEGER),
    CAST(coalesce(last.bodies, old_last.body) AS BLOB), CAST(coalesce(last.hashes, old_last.hash) AS BLOB)
FROM runs
LEFT JOIN appends AS first ON first.run = number AND first.seq = 0
LEFT JOIN appends AS last ON last.run = number AND last.seq = (SELECT max(seq) FROM appends WHERE run = number)
LEFT JOIN events AS old_first ON first.run IS NULL AND old_first.run = number AND old_first.seq = 0
LEFT JOIN events AS old_last
    ON last.run IS NULL AND old_last.run = number AND old_last.seq = (SELECT max(seq) FROM events WHERE run = number)
WHERE coalesce(first.run, old_first.run) IS NOT NULL AND coalesce(last.run, old_last.run) IS NOT NULL
ORDER BY number DESC LIMIT ?

-- Events are only ever added, by one writer at a time: a position says when an event became durable.
-- name: feed
SELECT events.rowid, run_id, seq, NULL, CAST(body AS BLOB), CAST(hash AS BLOB)
FROM events CROSS JOIN runs ON number = run WHERE events.rowid > ?1
UNION ALL
SELECT position, run_id, CAST(seq AS INTEGER), CAST(count AS INTEGER), CAST(bodies AS BLOB), CAST(hashes AS BLOB)
FROM appends CROSS JOIN runs ON number = run
WHERE position >= coalesce((SELECT max(position) FROM appends WHERE position <= ?1 + 1), 0)
ORDER BY 1 LIMIT ?2

-- name: feed_position
SELECT coalesce(
    (SELECT position + count - 1 FROM appends ORDER BY position DESC LIMIT 1), (SELECT max(rowid) FROM events), 0
)

-- name: load_head
SELECT
    coalesce(number, 0),
    coalesce(
        (SELECT seq + count FROM appends WHERE run = number ORDER BY seq DESC LIMIT 1),
        (SELECT max(seq) + 1 FROM events WHERE run = number),
        (SELECT next_seq FROM removed_runs WHERE run = number),
        0
    ),
    coalesce((SELECT token FROM claims WHERE run_id = ?1 AND pid <> 0), 0)
FROM (SELECT (SELECT number FROM runs WHERE run_id = ?1) AS number)

-- name: find_run
SELECT number FROM runs WHERE run_id = ?

-- name: add_run
INSERT INTO runs (run_id) VALUES (?)

-- name: add_append
INSERT INTO appends (position, run, seq, count, bodies, hashes) VALUES (?, ?, ?, ?, ?, ?)

-- name: old_events
SELECT rowid, run, seq, body, hash FROM events WHERE rowid > ? ORDER BY rowid LIMIT ?

-- name: remove_old_events
DELETE FROM events WHERE rowid BETWEEN ? AND ?

-- name: count_old_events
SELECT count(*) FROM events

-- name: load_lease
SELECT token, host, boot, pid, started FROM claims WHERE run_id = ?

-- name: acquire_lease
INSERT OR REPLACE INTO claims (run_id, token, host, boot, pid, started) VALUES (?, ?, ?, ?, ?, ?)

-- name: release_lease
UPDATE claims SET pid = 0 WHERE run_id = ? AND token = ?

-- name: list_leases
SELECT run_id, token, host, boot, pid, started FROM claims WHERE pid != 0

-- name: enqueue_command
INSERT OR IGNORE INTO notes (run, key, body) VALUES (?, ?, ?)

-- name: queued_commands
SELECT key, CAST(body AS BLOB) FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) ORDER BY rowid

-- name: queued_commands_of
SELECT run_id, notes.key, CAST(notes.body AS BLOB) FROM json_each(?) AS wanted
CROSS JOIN runs ON run_id = wanted.value CROSS JOIN notes ON run = number ORDER BY notes.rowid

-- name: has_commands
SELECT EXISTS (SELECT 1 FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?))

-- name: has_command
SELECT EXISTS (SELECT 1 FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND key = ?)

-- name: ack_command
DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND key = ?

-- name: has_snapshot
SELECT 1 FROM snapshots WHERE run_id = ?

-- name: load_snapshot
SELECT seq, hash, CAST(state AS BLOB), form FROM snapshots WHERE run_id = ?

-- name: save_snapshot
INSERT OR REPLACE INTO snapshots (run_id, seq, hash, state, form) VALUES (?, ?, ?, ?, 1)

-- name: effect_claims
SELECT number, run_id, call_id, at FROM effects WHERE effect = ? ORDER BY number DESC LIMIT ?

-- Only a call that knows every claim of other calls can claim.
-- name: claim_effect
INSERT INTO effects (effect, run_id, call_id, at) SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (
    SELECT 1 FROM effects WHERE effect = ?1 AND number > ?5 AND (run_id, call_id) <> (?2, ?3)
)

-- name: load_places
SELECT run, position, seq, count, CAST(hashes AS BLOB) FROM appends
WHERE run = (SELECT number FROM runs WHERE run_id = ?) ORDER BY seq

-- name: has_old_events
SELECT EXISTS (SELECT 1 FROM events WHERE run = ?)

-- name: add_removed
INSERT INTO removed_runs (run, next_seq, record, erasure)
VALUES (?1, ?2, ?3, CASE WHEN ?4 THEN (SELECT coalesce(max(erasure), 0) + 1 FROM removed_runs WHERE erasure IS NOT NULL) END)

-- name: update_removed
UPDATE removed_runs SET record = ?2, erasure = coalesce(
    erasure, CASE WHEN ?3 THEN (SELECT coalesce(max(erasure), 0) + 1 FROM removed_runs WHERE erasure IS NOT NULL) END
)
WHERE run = ?1

-- name: find_removed
SELECT run, CAST(record AS BLOB) FROM removed_runs WHERE run = (SELECT number FROM runs WHERE run_id = ?)

-- name: list_removed
SELECT CAST(record AS BLOB) FROM removed_runs ORDER BY run

-- name: archived_runs
SELECT run, CAST(record AS BLOB) FROM removed_runs WHERE erasure IS NULL AND run > ? ORDER BY run LIMIT ?

-- name: erased_runs
SELECT erasure, CAST(record AS BLOB) FROM removed_runs WHERE erasure > ? ORDER BY erasure LIMIT ?

-- name: child_run_ids
SELECT run_id FROM runs WHERE run_id > ?1 || '.' AND run_id < ?1 || '/' ORDER BY run_id

-- Jumps from run to run, so runs that were removed cost nothing.
-- name: oldest_runs
WITH RECURSIVE present (run) AS (
    SELECT min(run) FROM (
        SELECT min(run) AS run FROM appends WHERE run > ?1 UNION ALL SELECT min(run) FROM events WHERE run > ?1
    )
    UNION ALL
    SELECT coalesce(
        min((SELECT min(run) FROM appends WHERE run > present.run), (SELECT min(run) FROM events WHERE run > present.run)),
        (SELECT min(run) FROM appends WHERE run > present.run), (SELECT min(run) FROM events WHERE run > present.run)
    )
    FROM present WHERE run IS NOT NULL LIMIT ?2
)
SELECT number, run_id,
    coalesce(first.seq, old_first.seq), CAST(first.count AS INTEGER),
    CAST(coalesce(first.bodies, old_first.body) AS BLOB), CAST(coalesce(first.hashes, old_first.hash) AS BLOB),
    CAST(coalesce(last.seq, old_last.seq) AS INTEGER), CAST(last.count AS INTEGER),
    CAST(coalesce(last.bodies, old_last.body) AS BLOB), CAST(coalesce(last.hashes, old_last.hash) AS BLOB)
FROM present
CROSS JOIN runs ON number = present.run
LEFT JOIN appends AS first ON first.run = number AND first.seq = 0
LEFT JOIN appends AS last ON last.run = number AND last.seq = (SELECT max(seq) FROM appends WHERE run = number)
LEFT JOIN events AS old_first ON first.run IS NULL AND old_first.run = number AND old_first.seq = 0
LEFT JOIN events AS old_last
    ON last.run IS NULL AND old_last.run = number AND old_last.seq = (SELECT max(seq) FROM events WHERE run = number)
WHERE coalesce(first.run, old_first.run) IS NOT NULL AND coalesce(last.run, old_last.run) IS NOT NULL
ORDER BY number

-- The journal has what was erased until it is overwritten.
-- name: empty_journal
PRAGMA wal_checkpoint(TRUNCATE)

-- name: forget_removed
DELETE FROM removed_runs WHERE run = ?

-- name: remove_appends
DELETE FROM appends WHERE run = ?

-- name: remove_commands
DELETE FROM notes WHERE run = ?

-- name: remove_snapshot
DELETE FROM snapshots WHERE run_id = ?
