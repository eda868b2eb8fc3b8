-- The statements of the log. `queries.py` finds each by its name.
-- A file that was edited by hand may have text where bytes belong: it is read as bytes, and fails verification.

-- name: read
SELECT seq, CAST(body AS BLOB), CAST(hash AS BLOB) FROM events
WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND seq > ? ORDER BY seq LIMIT ?

-- name: run_ids
SELECT run_id FROM runs ORDER BY number

-- name: list_runs
SELECT run_id, first.seq, CAST(first.body AS BLOB), CAST(first.hash AS BLOB),
    CAST(last.seq AS INTEGER), CAST(last.body AS BLOB), CAST(last.hash AS BLOB)
FROM runs
CROSS JOIN events AS first ON first.run = number AND first.seq = 0
CROSS JOIN events AS last ON last.run = number AND last.seq = (SELECT max(seq) FROM events WHERE run = number)
ORDER BY number DESC LIMIT ?

-- Events are only ever added, by one writer at a time: the number of a row says when it became durable.
-- name: feed
SELECT events.rowid, run_id, seq, CAST(body AS BLOB), CAST(hash AS BLOB)
FROM events CROSS JOIN runs ON number = run WHERE events.rowid > ? ORDER BY events.rowid LIMIT ?

-- name: feed_position
SELECT coalesce(max(rowid), 0) FROM events

-- name: load_head
SELECT
    coalesce(number, 0),
    (SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run = number),
    coalesce((SELECT token FROM claims WHERE run_id = ?1 AND pid <> 0), 0)
FROM (SELECT (SELECT number FROM runs WHERE run_id = ?1) AS number)

-- name: find_run
SELECT number FROM runs WHERE run_id = ?

-- name: add_run
INSERT INTO runs (run_id) VALUES (?)

-- name: add_event
INSERT INTO events (run, seq, body, hash) VALUES (?, ?, ?, ?)

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

-- name: ack_command
DELETE FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = ?) AND key = ?

-- name: load_snapshot
SELECT seq, hash, state FROM snapshots WHERE run_id = ?

-- name: save_snapshot
INSERT OR REPLACE INTO snapshots (run_id, seq, hash, state) VALUES (?, ?, ?, ?)

-- name: effect_claims
SELECT number, run_id, call_id, at FROM effects WHERE effect = ? ORDER BY number DESC LIMIT ?

-- Only a call that knows every claim of other calls can claim.
-- name: claim_effect
INSERT INTO effects (effect, run_id, call_id, at) SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (
    SELECT 1 FROM effects WHERE effect = ?1 AND number > ?5 AND (run_id, call_id) <> (?2, ?3)
)
