-- What lists show of runs and questions. It is written in the transaction of each append, so it is never behind.

-- `indexed_seq`: how many events the rows of a run know of. It differs from `next_seq` only where a process of an older
-- version has appended: such rows are made again. `updated_at`: the time of the last event.
ALTER TABLE runs ADD indexed_seq bigint NOT NULL DEFAULT 0, ADD updated_at bigint NOT NULL DEFAULT 0;

-- Every column that a list is narrowed by has an index that ends in the number, so a page is read in its order.
-- `is_marked`: the server found the events damaged. `is_closed`: an operator closed such a run.
CREATE TABLE indexed_runs (
    number bigint PRIMARY KEY, state text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL, requester text COLLATE "C" NOT NULL, created_by text COLLATE "C" NOT NULL,
    parent text COLLATE "C" NOT NULL, framework text NOT NULL, kind text COLLATE "C" NOT NULL, inside smallint NOT NULL,
    task text NOT NULL, message text NOT NULL, created_at bigint NOT NULL, open_questions bigint NOT NULL,
    begun boolean NOT NULL, damaged_at bigint NOT NULL, words text NOT NULL,
    is_marked boolean NOT NULL DEFAULT false, is_closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX indexed_runs_by_status ON indexed_runs (status, number, inside);
CREATE INDEX indexed_runs_by_agent ON indexed_runs (agent, status, number, inside);
CREATE INDEX indexed_runs_by_kind ON indexed_runs (kind, status, number, inside);
CREATE INDEX indexed_runs_by_requester ON indexed_runs (requester, status, number, inside);
CREATE INDEX indexed_runs_by_creator ON indexed_runs (created_by, status, number, inside);
CREATE INDEX indexed_runs_by_parent ON indexed_runs (parent, number) WHERE parent <> '';

-- The number of a question is the position of the event that asked it.
CREATE TABLE indexed_actions (
    number bigint PRIMARY KEY, run bigint NOT NULL, action_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL,
    requester text COLLATE "C" NOT NULL, created_by text COLLATE "C" NOT NULL, call_id text NOT NULL, tool text NOT NULL,
    capability text NOT NULL, kind text COLLATE "C" NOT NULL, payload_hash text NOT NULL, risk text NOT NULL,
    asked_at bigint NOT NULL, expires_at bigint NOT NULL, asked_seq bigint NOT NULL, decided_at bigint NOT NULL,
    decided_by text NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE UNIQUE INDEX indexed_actions_by_run ON indexed_actions (run, action_id);
CREATE INDEX indexed_actions_by_id ON indexed_actions (action_id, number);
CREATE INDEX indexed_actions_by_status ON indexed_actions (status, number, kind);
CREATE INDEX indexed_actions_by_agent ON indexed_actions (agent, status, number, kind);
CREATE INDEX indexed_actions_by_requester ON indexed_actions (requester, status, number, kind);
CREATE INDEX indexed_actions_by_creator ON indexed_actions (created_by, status, number, kind);
CREATE INDEX indexed_actions_by_expiry ON indexed_actions (expires_at) WHERE status = 'PENDING' AND expires_at > 0;

-- A page that needs no column of `runs` does not read it: outer joins with a key are left out of a plan.
CREATE VIEW listed_runs AS
SELECT number, run_id, indexed_runs.state, status, agent, requester, created_by, indexed_runs.parent, framework, kind,
    inside, task, message, created_at, updated_at, next_seq - 1 AS last_seq, open_questions, damaged_at, words
FROM indexed_runs LEFT JOIN runs USING (number);

CREATE VIEW listed_actions AS
SELECT indexed_actions.number, action_id, run_id, indexed_actions.state, status, agent, requester, created_by, call_id,
    tool, capability, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by
FROM indexed_actions LEFT JOIN runs ON runs.number = run;
