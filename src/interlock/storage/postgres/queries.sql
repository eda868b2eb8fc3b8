-- The statements of the log in Postgres. `queries.py` finds each by its name.

-- Every transaction of the log is one statement, so a client that stops cannot hold a lock.
-- A row of the run is changed only where its next event and its token are the expected ones.

-- name: append_one
WITH head AS (
    UPDATE runs SET next_seq = next_seq + %(count)s,
        state = coalesce(%(state)s, state), is_woken = is_woken OR %(is_woken)s,
        wake_at = least(wake_at, to_timestamp(%(wake_at)s::float8)), touched_at = clock_timestamp(),
        indexed_seq = indexed_seq + %(count)s, updated_at = coalesce(%(updated_at)s, updated_at)
    WHERE run_id = %(run_id)s AND next_seq = %(seq)s AND token = %(token)s RETURNING number
)
INSERT INTO appends (run, seq, count, position, bodies, hashes)
SELECT number, %(seq)s, %(count)s,
    (pg_current_xact_id()::text::bigint + (SELECT transaction_offset FROM positions)) << 20,
    %(bodies)b, %(hashes)b
FROM head RETURNING 1

-- The beginning of `append_many` and `append_listed`, which end with `appended`. A holder is a process that acquires the
-- lease with this append. The parent of a run that is over is due with that event: whichever process ended it, and
-- whatever becomes of that process, the parent is looked at.
-- name: appending
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(
        %(run_ids)s::text[], %(seqs)s::bigint[], %(counts)s::bigint[], %(tokens)s::bigint[],
        %(states)s::smallint[], %(woken)s::boolean[], %(wake_ats)s::float8[], %(parents)s::text[],
        %(updated_ats)s::bigint[], %(indexed)s::boolean[], %(holders)s::bigint[], %(released)s::boolean[]
    ) AS w (run_id, seq, count, token, state, is_woken, wake_at, parent, updated_at, is_indexed, holder, is_released)
),
ending AS MATERIALIZED (
    SELECT coalesce(wanted.parent, runs.parent) AS parent FROM wanted LEFT JOIN runs USING (run_id)
    WHERE wanted.state = 2
),
new AS (
    INSERT INTO runs (
        run_id, next_seq, state, is_woken, wake_at, parent, indexed_seq, updated_at, token, last_token, holder, queue
    )
    SELECT run_id, count, coalesce(state, 0), is_woken, to_timestamp(wake_at), parent, count, coalesce(updated_at, 0),
        (holder IS NOT NULL)::integer, (holder IS NOT NULL)::integer, holder,
        (SELECT above.queue FROM runs AS above WHERE above.run_id = wanted.parent)
    FROM wanted
    WHERE seq = 0 AND token = 0
    ON CONFLICT DO NOTHING RETURNING run_id, number, token
),
head AS (
    UPDATE runs SET next_seq = runs.next_seq + wanted.count,
        token = CASE
            WHEN wanted.is_released THEN 0 WHEN wanted.holder IS NULL THEN runs.token ELSE runs.last_token + 1
        END,
        last_token = runs.last_token + (wanted.holder IS NOT NULL)::integer,
        holder = CASE WHEN NOT wanted.is_released THEN coalesce(wanted.holder, runs.holder) END,
        state = coalesce(wanted.state, runs.state), is_woken = runs.is_woken OR wanted.is_woken,
        wake_at = least(
            runs.wake_at, to_timestamp(wanted.wake_at),
            CASE WHEN runs.run_id IN (SELECT ending.parent FROM ending) THEN clock_timestamp() END
        ),
        parent = coalesce(wanted.parent, runs.parent), touched_at = clock_timestamp(),
        indexed_seq = CASE WHEN is_indexed THEN runs.next_seq ELSE runs.indexed_seq END + wanted.count,
        updated_at = coalesce(wanted.updated_at, runs.updated_at),
        queue = coalesce(runs.queue, (SELECT above.queue FROM runs AS above WHERE above.run_id = wanted.parent))
    FROM wanted
    WHERE runs.run_id = wanted.run_id AND runs.next_seq = wanted.seq AND runs.token = wanted.token
    RETURNING runs.run_id, runs.number, runs.token
),
writable AS (SELECT run_id, number, token FROM new UNION ALL SELECT run_id, number, token FROM head),
due AS (
    UPDATE runs SET wake_at = least(wake_at, clock_timestamp())
    WHERE run_id IN (SELECT ending.parent FROM ending) AND run_id NOT IN (SELECT writable.run_id FROM writable)
        AND state < 2 AND queue IS NOT NULL
),
base AS (
    SELECT (pg_current_xact_id()::text::bigint + transaction_offset) << 20 AS position FROM positions
),
written AS (
    INSERT INTO appends (run, seq, count, position, bodies, hashes)
    SELECT number, r.seq, r.count, base.position + r.place, r.bodies, r.hashes
    FROM unnest(
        %(row_run_ids)s::text[], %(row_seqs)s::bigint[], %(row_counts)s::integer[], %(places)s::bigint[],
        %(bodies)b::bytea[], %(hashes)b::bytea[]
    ) AS r (run_id, seq, count, place, bodies, hashes)
    JOIN writable USING (run_id), base
)

-- The rows of lists of `append_listed`. `is_indexed`: those that are given know all events of the run, also those of this
-- append. A question that is asked here has its place in this transaction as its number.
-- name: listing
listed AS (
    INSERT INTO indexed_runs AS known (number, state, status, agent, requester, created_by, parent, framework, kind, inside, task, message, created_at,
        open_questions, forked_from, code, input_tokens, output_tokens, cost_nanos, titles, begun, damaged_at, words)
    SELECT number, state, status, agent, requester, created_by, parent, framework, kind, inside, task, message, created_at,
        open_questions, forked_from, code, input_tokens, output_tokens, cost_nanos, titles, begun, damaged_at, words
    FROM json_to_recordset(%(indexed_runs)s) AS r (
        run_id text, state text, status text, agent text, requester text, created_by text, parent text,
        framework text, kind text, inside smallint, task text, message text, created_at bigint, open_questions bigint,
        forked_from text, code text, input_tokens bigint, output_tokens bigint, cost_nanos bigint, titles text, begun boolean,
        damaged_at bigint, words text
    )
    JOIN writable USING (run_id)
    ON CONFLICT (number) DO UPDATE SET
        state = CASE WHEN known.is_closed THEN known.state ELSE excluded.state END,
        status = CASE WHEN known.is_closed THEN known.status ELSE excluded.status END,
        message = CASE WHEN known.is_marked THEN known.message ELSE excluded.message END,
        damaged_at = CASE WHEN known.is_marked THEN known.damaged_at ELSE excluded.damaged_at END,
        open_questions = CASE WHEN known.is_marked THEN 0 ELSE excluded.open_questions END,
        agent = excluded.agent, requester = excluded.requester, created_by = excluded.created_by,
        parent = excluded.parent, framework = excluded.framework, kind = excluded.kind, inside = excluded.inside,
        task = excluded.task, created_at = excluded.created_at, begun = excluded.begun, words = excluded.words,
        forked_from = excluded.forked_from, code = excluded.code, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
        cost_nanos = excluded.cost_nanos, titles = excluded.titles
),
asked AS (
    INSERT INTO indexed_actions (number, run, action_id, state, status, agent, requester, created_by, call_id, tool,
        capability, title, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by, rules, words,
        numbers)
    SELECT CASE WHEN a.number < 1 << 20 THEN base.position ELSE 0 END + a.number, writable.number, action_id, state, status, agent, requester, created_by, call_id,
        tool, capability, title, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by,
        rules, words, numbers
    FROM json_to_recordset(%(asked)s) AS a (
        number bigint, run_id text, action_id text, state text, status text, agent text, requester text,
        created_by text, call_id text, tool text, capability text, title text, kind text, payload_hash text, risk text,
        asked_at bigint, expires_at bigint, asked_seq bigint, decided_at bigint, decided_by text, rules text, words text,
        numbers text
    )
    JOIN writable USING (run_id), base
),
answered AS (
    UPDATE indexed_actions AS known SET state = a.state, status = a.status, decided_at = a.decided_at,
        decided_by = a.decided_by
    FROM json_to_recordset(%(answered)s) AS a (
        run_id text, action_id text, state text, status text, decided_at bigint, decided_by text
    )
    JOIN writable USING (run_id)
    WHERE run = writable.number AND known.action_id = a.action_id
)

-- name: appended
SELECT run_id, token FROM writable

-- The rows of a run in lists, and those of its questions that an event may still change, or all. None where the rows do
-- not know all events.
-- name: load_indexed_run
SELECT runs.number, indexed_seq = next_seq, to_json(indexed_runs), (
    SELECT json_agg(indexed_actions) FROM indexed_actions
    WHERE run = runs.number AND (state IN ('pending', 'approved') OR %(are_all)s)
)
FROM runs LEFT JOIN indexed_runs USING (number) WHERE run_id = %(run_id)s AND next_seq > 0

-- name: load_head
SELECT next_seq, token, holder FROM runs WHERE run_id = %s

-- name: find_append
SELECT seq, count, bodies, hashes FROM appends
WHERE run = (SELECT number FROM runs WHERE run_id = %(run_id)s) AND seq <= %(seq)s ORDER BY seq DESC LIMIT 1

-- name: read
SELECT seq, count, bodies, hashes FROM appends
WHERE run = (SELECT number FROM runs WHERE run_id = %(run_id)s) AND seq >= coalesce(
    (
        SELECT max(seq) FROM appends
        WHERE run = (SELECT number FROM runs WHERE run_id = %(run_id)s) AND seq <= %(after_seq)s::bigint + 1
    ), 0
)
ORDER BY seq LIMIT %(limit)s

-- name: load
WITH named AS (SELECT number FROM runs WHERE run_id = %(run_id)s),
snapshot AS (SELECT seq, state, hash FROM snapshots WHERE run_id = %(run_id)s)
(
    SELECT 0 AS kind, seq, 0 AS count, state, hash FROM snapshot
)
UNION ALL
(
    SELECT 1, seq, count, bodies, hashes FROM appends
    WHERE run = (SELECT number FROM named) AND seq >= coalesce(
        (
            SELECT max(seq) FROM appends
            WHERE run = (SELECT number FROM named) AND seq <= coalesce((SELECT seq FROM snapshot), 0)
        ), 0
    )
    ORDER BY seq LIMIT %(limit)s
)
ORDER BY 1, 2

-- name: run_ids
SELECT run_id FROM runs WHERE next_seq > 0 ORDER BY number

-- name: list_runs
SELECT run_id, first.seq, first.count, first.bodies, first.hashes, last.seq, last.count, last.bodies, last.hashes
FROM runs
JOIN appends AS first ON first.run = number AND first.seq = 0
CROSS JOIN LATERAL (SELECT * FROM appends WHERE run = number ORDER BY seq DESC LIMIT 1) AS last
ORDER BY number DESC LIMIT %s

-- The first position that an append may still be written at, and the end of all. Asked before the statement that reads,
-- which sees every append that was finished by then. Transactions of other programs do not matter.
-- name: horizon
WITH snapshot AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next, transaction_offset FROM positions
)
SELECT
    (transaction_offset + least(next, (
        SELECT min(next - ((next - backend_xid::text::bigint) & 4294967295)) FROM pg_stat_activity
        WHERE backend_xid IS NOT NULL AND datname = current_database() AND application_name = 'interlock-writer'
            AND ((next - backend_xid::text::bigint) & 4294967295) < 2147483648
    ))) << 20,
    (transaction_offset + next) << 20
FROM snapshot

-- name: feed
SELECT position, run_id, seq, count, bodies, hashes FROM appends JOIN runs ON number = run
WHERE position >= coalesce((SELECT max(position) FROM appends WHERE position <= %(after)s::bigint + 1), 0)
    AND position + count - 1 > %(after)s
    AND position < %(horizon)s
ORDER BY position LIMIT %(limit)s

-- name: feed_position
SELECT position + count - 1 FROM appends
WHERE position < %s ORDER BY position DESC LIMIT 1

-- A process whose beat cannot be seen here began after this statement: it is alive. The rows of lists are those of before
-- it: they are returned only where nothing was appended since.
-- name: acquire
INSERT INTO runs AS held (run_id, token, last_token, holder) VALUES (%(run_id)s, 1, 1, %(process)s)
ON CONFLICT (run_id) DO UPDATE SET token = held.last_token + 1, last_token = held.last_token + 1, holder = %(process)s
WHERE %(force)s OR held.token = 0 OR EXISTS (
    SELECT 1 FROM processes
    WHERE id = held.holder AND beat_at <= clock_timestamp() - lease_seconds * interval '1 second'
)
RETURNING token, (
    SELECT to_json(indexed_runs) FROM runs JOIN indexed_runs USING (number)
    WHERE number = held.number AND next_seq = held.next_seq AND indexed_seq = next_seq
), (
    SELECT json_agg(indexed_actions) FROM indexed_actions
    WHERE run = held.number AND indexed_actions.state IN ('pending', 'approved')
)

-- A run that was started or answered under the lease is woken: no worker could have it before. The job that is queued
-- already is locked, so that no worker takes it, and looks, before this is finished. A parent that waits for a child run
-- which ended elsewhere is woken, too.
-- name: release
WITH freed AS (
    UPDATE runs SET token = 0, holder = NULL, touched_at = clock_timestamp() WHERE run_id = %s AND token = %s
    RETURNING run_id, queue, parent, is_woken AND state = 0 AND queue IS NOT NULL AS can_continue, state = 2 AS is_over
),
queued AS MATERIALIZED (
    SELECT queueing_lock FROM procrastinate_jobs
    WHERE status = 'todo' AND queueing_lock = ANY(ARRAY(SELECT run_id FROM freed WHERE can_continue)) FOR UPDATE
),
deferred AS MATERIALIZED (
    SELECT procrastinate_defer_jobs_v1(array_agg(
        ROW(queue, 'interlock.advance', 0, NULL, run_id, jsonb_build_object('run_id', run_id), NULL)
        ::procrastinate_job_to_defer_v1
    ))
    FROM freed
    WHERE can_continue AND parent IS NULL AND run_id NOT IN (SELECT queueing_lock FROM queued)
    HAVING count(*) > 0
)
SELECT EXISTS (
    SELECT 1 FROM freed WHERE can_continue AND parent IS NOT NULL OR is_over AND EXISTS (
        SELECT 1 FROM runs AS above WHERE above.run_id = freed.parent AND above.state = 1 AND above.token = 0
    )
), (SELECT count(*) FROM deferred)

-- What is to be done after an append released the lease of a run: commands are queued for it, and a parent waits for
-- its end.
-- name: find_released
SELECT EXISTS (SELECT 1 FROM commands WHERE run = stopped.number), EXISTS (
    SELECT 1 FROM runs AS above
    WHERE stopped.state = 2 AND above.run_id = stopped.parent AND above.state = 1 AND above.token = 0
)
FROM runs AS stopped WHERE run_id = %s

-- name: has_commands
SELECT EXISTS (SELECT 1 FROM commands WHERE run = (SELECT number FROM runs WHERE run_id = %s))

-- name: lease_holders
SELECT run_id, host, boot, pid, started FROM runs JOIN processes ON id = holder
WHERE token <> 0 AND beat_at > clock_timestamp() - lease_seconds * interval '1 second'

-- name: lease_holder
SELECT run_id, host, boot, pid, started FROM runs JOIN processes ON id = holder
WHERE run_id = %s AND token <> 0 AND beat_at > clock_timestamp() - lease_seconds * interval '1 second'

-- name: load_process
SELECT host, boot, pid, started FROM processes WHERE id = %s

-- name: enqueue
INSERT INTO commands (run, key, body) SELECT number, %s, %b FROM runs WHERE run_id = %s AND next_seq > 0
ON CONFLICT DO NOTHING RETURNING 1

-- name: find_command
SELECT number, body FROM runs LEFT JOIN commands ON run = number AND key = %s WHERE run_id = %s AND next_seq > 0

-- name: queued_commands_of
SELECT run_id, key, body FROM commands JOIN runs ON number = run WHERE run_id = ANY(%s) ORDER BY id

-- name: ack
DELETE FROM commands WHERE run = (SELECT number FROM runs WHERE run_id = %s) AND key = %s

-- name: lock_effect
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))

-- Only a call that knows every claim of other calls can claim.
-- name: claim_effect
INSERT INTO effects (effect, run_id, call_id, at)
SELECT %(effect)s, %(run_id)s, %(call_id)s, %(at)s WHERE NOT EXISTS (
    SELECT 1 FROM effects WHERE effect = %(effect)s AND number > %(after)s
        AND (run_id, call_id) <> (%(run_id)s, %(call_id)s)
)
RETURNING 1

-- name: effect_claims
SELECT number, run_id, call_id, at FROM effects WHERE effect = %s ORDER BY number DESC LIMIT %s

-- name: save_snapshot
INSERT INTO snapshots (run_id, seq, hash, state) VALUES (%s, %s, %b, %b)
ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, state = excluded.state

-- name: load_snapshot
SELECT seq, hash, state FROM snapshots WHERE run_id = %s

-- name: add_process
INSERT INTO processes (host, boot, pid, started, lease_seconds) VALUES (%s, %s, %s, %s, %s) RETURNING id

-- Answers with what shows that anything was written.
-- name: beat
UPDATE processes SET beat_at = clock_timestamp() WHERE id = %s
RETURNING (SELECT max(position) FROM appends), (SELECT max(id) FROM commands)

-- name: stop_beating
UPDATE processes SET beat_at = '-infinity' WHERE id = %s

-- name: forget_processes
DELETE FROM processes WHERE beat_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM runs WHERE holder = processes.id)

-- name: notify
SELECT pg_notify(%s, %s)

-- Transaction ids of a restored database are below the positions that it has.
-- name: raise_offset
UPDATE positions SET transaction_offset = newest.transaction + 1
FROM (SELECT (max(position) >> 20) AS transaction FROM appends) AS newest
WHERE newest.transaction >= transaction_offset + pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: add_artifact
INSERT INTO artifacts (digest, size_bytes) VALUES (%b, %s) ON CONFLICT DO NOTHING RETURNING 1

-- name: add_artifact_part
INSERT INTO artifact_parts (digest, number, content) VALUES (%b, %s, %b)

-- name: artifact_size
SELECT size_bytes FROM artifacts WHERE digest = %b

-- name: artifact_parts
SELECT content FROM artifact_parts WHERE digest = %b AND number BETWEEN %s AND %s ORDER BY number

-- Its parts are deleted with it.
-- name: delete_artifact
WITH parts AS (DELETE FROM artifact_parts WHERE digest = %(digest)b)
DELETE FROM artifacts WHERE digest = %(digest)b

-- name: find_artifacts
SELECT digest FROM artifacts WHERE digest BETWEEN %b AND %b ORDER BY digest

-- A row without events, until the run is started.
-- name: assign_queue
INSERT INTO runs (run_id, queue) VALUES (%s, %s)
ON CONFLICT (run_id) DO UPDATE SET queue = excluded.queue WHERE runs.next_seq = 0

-- A child run is driven by its parent, so the outermost run is woken that is not over, and what is due on the way to it
-- is due no more.
-- name: wake
WITH RECURSIVE line AS (
    SELECT number, run_id, queue, parent FROM runs WHERE run_id = ANY(%s)
    UNION
    SELECT above.number, above.run_id, above.queue, above.parent
    FROM line JOIN runs AS above ON above.run_id = line.parent AND above.state < 2
),
woken AS (
    UPDATE runs SET state = 0, is_woken = true, wake_at = NULL, touched_at = clock_timestamp()
    WHERE number IN (SELECT number FROM line WHERE NOT EXISTS (
        SELECT 1 FROM runs AS above WHERE above.run_id = line.parent AND above.state < 2
    )) AND queue IS NOT NULL AND state < 2 AND next_seq > 0
    RETURNING number, run_id, queue
),
driven AS (
    UPDATE runs SET wake_at = NULL
    WHERE number IN (SELECT line.number FROM line) AND number NOT IN (SELECT woken.number FROM woken)
        AND wake_at <= clock_timestamp()
),
queued AS MATERIALIZED (
    SELECT queueing_lock FROM procrastinate_jobs
    WHERE status = 'todo' AND queueing_lock = ANY(ARRAY(SELECT run_id FROM woken)) FOR UPDATE
)
SELECT procrastinate_defer_jobs_v1(array_agg(
    ROW(queue, 'interlock.advance', 0, NULL, run_id, jsonb_build_object('run_id', run_id), NULL)
    ::procrastinate_job_to_defer_v1
))
FROM woken WHERE run_id NOT IN (SELECT queueing_lock FROM queued) HAVING count(*) > 0

-- The state of a run that a living process has is left to that process. A run that is due can continue from now on, so
-- `settle` finds only what became due since.
-- name: look
UPDATE runs SET is_woken = false, waiting_reason = NULL,
    state = CASE WHEN wake_at <= statement_timestamp() THEN 0 ELSE state END,
    wake_at = CASE WHEN wake_at <= statement_timestamp() THEN NULL ELSE wake_at END
WHERE run_id = %s AND next_seq > 0 AND state < 2 AND (
    token = 0 OR EXISTS (
        SELECT 1 FROM processes
        WHERE id = holder AND beat_at <= clock_timestamp() - lease_seconds * interval '1 second'
    )
)
RETURNING state = 0 OR EXISTS (SELECT 1 FROM commands WHERE run = number)

-- Of two workers that look at a run at the same time, the second finds it woken no more. So the events count, too.
-- name: settle
UPDATE runs SET state = 1, wake_at = to_timestamp(%(wake_at)s::float8)
WHERE run_id = %(run_id)s AND NOT is_woken AND state < 2 AND token = 0 AND next_seq = coalesce(%(seq)s, next_seq)
    AND coalesce(wake_at > clock_timestamp(), true)
RETURNING 1

-- name: postpone
UPDATE runs SET state = 1, waiting_reason = %(reason)s,
    wake_at = least(wake_at, clock_timestamp() + %(seconds)s * interval '1 second')
WHERE run_id = %(run_id)s AND NOT is_woken AND state < 2 AND token = 0

-- name: waiting_reasons
SELECT run_id, waiting_reason FROM runs WHERE run_id = ANY(%s) AND waiting_reason IS NOT NULL AND state < 2

-- name: switched_off_agents
SELECT name, actor, reason, at FROM switches WHERE kind = 'agent' ORDER BY name

-- name: lock_reconciling
SELECT pg_try_advisory_xact_lock(hashtextextended('interlock reconcile ' || current_schema(), 0))

-- Runs that can continue, or are due, and that no living process has. One that was released just now has its job.
-- name: runs_to_wake
WITH living AS MATERIALIZED (
    SELECT id FROM processes WHERE beat_at > clock_timestamp() - lease_seconds * interval '1 second'
),
candidate AS (
    SELECT number FROM runs
    WHERE state = 0 AND queue IS NOT NULL AND CASE
        WHEN token = 0 THEN touched_at < clock_timestamp() - interval '5 seconds'
        ELSE holder NOT IN (SELECT id FROM living)
    END
    UNION
    SELECT number FROM runs WHERE wake_at <= clock_timestamp() AND state < 2
    UNION
    SELECT run FROM commands WHERE queued_at < clock_timestamp() - interval '5 seconds'
)
SELECT run_id FROM candidate JOIN runs USING (number)
WHERE next_seq > 0 AND state < 2 AND queue IS NOT NULL
    AND (token = 0 OR holder NOT IN (SELECT id FROM living))
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = run_id AND status = 'todo')
ORDER BY number LIMIT %s

-- Jobs of workers that are gone. Nothing waits for them: their runs are found above.
-- name: forget_jobs
DELETE FROM procrastinate_jobs WHERE task_name = 'interlock.advance' AND status <> 'todo' AND NOT EXISTS (
    SELECT 1 FROM procrastinate_workers
    WHERE id = worker_id AND last_heartbeat > clock_timestamp() - %s * interval '1 second'
)

-- Runs whose rows in lists do not know all events. Those of an archived run stay as they are.
-- name: runs_to_index
SELECT number, run_id, next_seq, token FROM runs
WHERE number > %s AND indexed_seq <> next_seq AND EXISTS (SELECT 1 FROM appends WHERE run = number)
ORDER BY number LIMIT %s

-- name: read_positions
SELECT position, seq, count, bodies, hashes FROM appends WHERE run = %s ORDER BY seq

-- name: mark_damaged
WITH marked AS (
    UPDATE indexed_runs SET is_marked = true, message = %(message)s, open_questions = 0,
        damaged_at = CASE WHEN damaged_at < 0 THEN runs.next_seq - 1 ELSE damaged_at END,
        is_closed = is_closed OR %(is_closed)s,
        state = CASE WHEN %(is_closed)s THEN %(closed_state)s ELSE indexed_runs.state END,
        status = CASE WHEN %(is_closed)s THEN %(closed_status)s ELSE status END
    FROM runs WHERE runs.number = indexed_runs.number AND run_id = %(run_id)s RETURNING indexed_runs.number
)
UPDATE indexed_actions SET status = %(unanswered)s FROM marked WHERE run = marked.number AND status = 'PENDING'

-- The newest events of all runs, as far back as people look. The last condition is that of their reader.
-- name: recent_appends
SELECT position, run_id, seq, count, bodies, hashes, agent, status
FROM (SELECT * FROM appends ORDER BY position DESC LIMIT %s) AS recent
JOIN runs ON runs.number = run JOIN indexed_runs USING (number)
WHERE position < %s AND

-- What metrics show: runs that are not over, jobs that wait, and living processes.
-- name: count_runs_by_state
SELECT CASE state WHEN 0 THEN 'ready' ELSE 'waiting' END, count(*) FROM runs WHERE state < 2 AND next_seq > 0 GROUP BY 1

-- name: count_jobs_by_queue
SELECT queue_name, count(*) FROM procrastinate_jobs WHERE task_name = 'interlock.advance' AND status = 'todo' GROUP BY 1

-- name: count_processes
SELECT count(*) FROM processes WHERE beat_at > clock_timestamp() - lease_seconds * interval '1 second'

-- name: oldest_ready_seconds
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(touched_at)), 0) FROM runs
WHERE state = 0 AND queue IS NOT NULL AND token = 0

-- No process has the run, and none can take it until this transaction ends.
-- name: lock_removable
SELECT number, token <> 0 AND EXISTS (
    SELECT 1 FROM processes WHERE id = holder AND beat_at > clock_timestamp() - lease_seconds * interval '1 second'
)
FROM runs WHERE run_id = %s AND next_seq > 0 FOR UPDATE

-- name: load_places
SELECT position, seq, count, hashes FROM appends WHERE run = %s ORDER BY seq

-- name: newest_position
SELECT position + count - 1 FROM appends ORDER BY position DESC LIMIT 1

-- name: can_remove
SELECT has_table_privilege('appends', 'DELETE') AND has_table_privilege('removed_runs', 'INSERT')

-- name: add_removed
INSERT INTO removed_runs (number, record, erasure) VALUES (%s, %b, CASE WHEN %s THEN nextval('erasures') END)

-- name: update_removed
UPDATE removed_runs SET record = %(record)b,
    erasure = coalesce(erasure, CASE WHEN %(is_erased)s THEN nextval('erasures') END)
WHERE number = %(number)s

-- name: mark_removed
UPDATE runs SET state = 3 WHERE number = %s

-- name: mark_over
UPDATE runs SET state = 2 WHERE number = %s

-- name: find_removed
SELECT number, record FROM removed_runs WHERE number = (SELECT number FROM runs WHERE run_id = %s) FOR UPDATE

-- name: load_removed
SELECT record FROM removed_runs WHERE number = (SELECT number FROM runs WHERE run_id = %s)

-- name: list_removed
SELECT record FROM removed_runs ORDER BY number

-- name: archived_runs
SELECT number, record FROM removed_runs WHERE erasure IS NULL AND number > %s ORDER BY number LIMIT %s

-- name: erased_runs
SELECT erasure, record FROM removed_runs WHERE erasure > %s ORDER BY erasure LIMIT %s

-- name: child_run_ids
SELECT run_id FROM runs WHERE run_id > %(run_id)s || '.' AND run_id < %(run_id)s || '/' AND next_seq > 0 ORDER BY run_id

-- name: oldest_runs
SELECT number, run_id, first.seq, first.count, first.bodies, first.hashes, last.seq, last.count, last.bodies, last.hashes
FROM (SELECT number, run_id FROM runs WHERE state = 2 AND number > %s ORDER BY number LIMIT %s) AS page
JOIN appends AS first ON first.run = number AND first.seq = 0
CROSS JOIN LATERAL (SELECT * FROM appends WHERE run = number ORDER BY seq DESC LIMIT 1) AS last
ORDER BY number

-- name: forget_removed
DELETE FROM removed_runs WHERE number = %s

-- name: remove_appends
DELETE FROM appends WHERE run = %s

-- name: remove_commands
DELETE FROM commands WHERE run = %s

-- name: remove_listed_actions
DELETE FROM indexed_actions WHERE run = %s

-- What a server keeps beside its lists. The journal stays: it is a chain.
-- name: forget_erased
WITH dead_letters AS (DELETE FROM forward_set_aside WHERE run_id = %(run_id)s),
notices AS (DELETE FROM notice_deliveries WHERE run_id = %(run_id)s),
comments AS (DELETE FROM question_comments WHERE run_id = %(run_id)s),
assignments AS (DELETE FROM question_assignments WHERE run_id = %(run_id)s)
DELETE FROM damaged_runs WHERE run_id = %(run_id)s

-- name: remove_listed_run
DELETE FROM indexed_runs WHERE number = %s

-- name: remove_snapshot
DELETE FROM snapshots WHERE run_id = %s

-- name: restore_append
INSERT INTO appends (run, position, seq, count, bodies, hashes) VALUES (%s, %s, %s, %s, %b, %b)

-- name: read_rollup_position
SELECT position FROM rollup_position

-- What has to be known of the runs of events that are counted, and of the questions that they answer.
-- name: find_counted_runs
SELECT run_id, agent, inside FROM runs JOIN indexed_runs USING (number) WHERE run_id = ANY(%s)

-- name: find_asked_times
SELECT run_id, action_id, asked_at FROM runs JOIN indexed_actions ON run = runs.number
WHERE run_id = ANY(%s) AND action_id = ANY(%s)

-- The figures of the events after one position, to another. Where another server counted them, nothing is changed.
-- name: add_rollups
WITH counted AS (
    UPDATE rollup_position SET position = %(until)s WHERE position = %(after)s RETURNING position
),
added AS (
    INSERT INTO rollups AS known (width, start, metric, agent, name, count, total)
    SELECT r.* FROM unnest(
        %(widths)s::integer[], %(starts)s::bigint[], %(metrics)s::text[], %(agents)s::text[], %(names)s::text[],
        %(counts)s::bigint[], %(totals)s::float8[]
    ) AS r, counted
    ON CONFLICT (width, start, metric, agent, name)
    DO UPDATE SET count = known.count + excluded.count, total = known.total + excluded.total
)
SELECT position FROM counted

-- name: read_budget
SELECT used FROM budgets
WHERE (budget, measure, subject, starts_at) = (%(budget)s, %(measure)s, %(subject)s, %(starts_at)s)

-- name: add_budget
INSERT INTO budgets AS counter VALUES
(%(budget)s, %(measure)s, %(subject)s, %(starts_at)s, %(ends_at)s, greatest(0, %(amount)s::bigint))
ON CONFLICT (budget, measure, subject, starts_at)
DO UPDATE SET used = greatest(0, counter.used + %(amount)s::bigint)

-- A charge that does not fit returns no row.
-- name: reserve_budget
INSERT INTO budgets AS counter
SELECT %(budget)s, %(measure)s, %(subject)s, %(starts_at)s, %(ends_at)s, %(amount)s::bigint
WHERE %(limit)s::bigint IS NULL OR %(amount)s::bigint <= %(limit)s::bigint
ON CONFLICT (budget, measure, subject, starts_at)
DO UPDATE SET used = counter.used + excluded.used
WHERE %(limit)s::bigint IS NULL OR excluded.used = 0 OR counter.used + excluded.used <= %(limit)s::bigint
RETURNING used

-- name: remove_budgets
DELETE FROM budgets WHERE budget = %s AND ends_at < %s

-- name: list_budgets
SELECT budget, measure, subject, starts_at, ends_at, used FROM (
    SELECT *, row_number() OVER (PARTITION BY budget ORDER BY used DESC, subject) AS place FROM budgets
    WHERE budget = ANY(%(budgets)s) AND starts_at <= %(now)s AND ends_at > %(now)s
) AS placed WHERE place <= %(limit)s ORDER BY budget, place
