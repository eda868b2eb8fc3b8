-- Figures of all runs by hour and by day (`storage/rollups.py`). `start` is in seconds since 1970. A server adds those of
-- new events: in appends, processes would wait for each other at the rows of the current hour.
CREATE TABLE rollups (
    width integer NOT NULL, start bigint NOT NULL, metric text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL, count bigint NOT NULL, total double precision NOT NULL,
    PRIMARY KEY (width, start, metric, agent, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- The last event that is counted.
CREATE TABLE rollup_position (position bigint NOT NULL);
INSERT INTO rollup_position VALUES (0);

-- What lists of runs show besides: which run it was forked from, why it failed, and what it used. `titles`: those of its
-- questions, for searching. Rows that are there already are made again from the events.
ALTER TABLE indexed_runs ADD forked_from text COLLATE "C" NOT NULL DEFAULT '', ADD code text NOT NULL DEFAULT '',
    ADD input_tokens bigint NOT NULL DEFAULT 0, ADD output_tokens bigint NOT NULL DEFAULT 0,
    ADD cost_nanos bigint NOT NULL DEFAULT 0, ADD titles text NOT NULL DEFAULT '';
UPDATE runs SET indexed_seq = 0 WHERE EXISTS (SELECT 1 FROM indexed_runs WHERE indexed_runs.number = runs.number);

CREATE INDEX indexed_runs_by_source ON indexed_runs (forked_from, number) WHERE forked_from <> '';

CREATE OR REPLACE VIEW listed_runs AS
SELECT number, run_id, indexed_runs.state, status, agent, requester, created_by, indexed_runs.parent, framework, kind,
    inside, task, message, created_at, updated_at, next_seq - 1 AS last_seq, open_questions, damaged_at, words, code,
    input_tokens, output_tokens, cost_nanos, forked_from
FROM indexed_runs LEFT JOIN runs USING (number);
