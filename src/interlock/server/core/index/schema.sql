-- The index of runs: derived from the log, so there are no migrations. A file of another version is rebuilt.
--
-- Runs and questions have the position of the event that began them as their number: it is unique, grows, and is the
-- same when the file is rebuilt, so a cursor outlives the file. Every column that a list is narrowed by has an index
-- that ends in the number, so a page is read in its order, without sorting.

CREATE TABLE runs (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, status TEXT NOT NULL,
    agent TEXT NOT NULL, requester TEXT NOT NULL, created_by TEXT NOT NULL, parent TEXT NOT NULL,
    framework TEXT NOT NULL, kind TEXT NOT NULL, inside INTEGER NOT NULL, task TEXT NOT NULL, message TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, last_seq INTEGER NOT NULL, open_questions INTEGER NOT NULL,
    forked_from TEXT NOT NULL, code TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_nanos INTEGER NOT NULL,
    titles TEXT NOT NULL, begun INTEGER NOT NULL, damaged_at INTEGER NOT NULL, words TEXT NOT NULL
);
CREATE INDEX runs_by_status ON runs (status, number, inside);
CREATE INDEX runs_by_agent ON runs (agent, status, number, inside);
CREATE INDEX runs_by_kind ON runs (kind, status, number, inside);
CREATE INDEX runs_by_requester ON runs (requester, status, number, inside);
CREATE INDEX runs_by_creator ON runs (created_by, status, number, inside);
CREATE INDEX runs_by_source ON runs (forked_from, number) WHERE forked_from != '';
CREATE INDEX runs_by_parent ON runs (parent, number) WHERE parent != '';

CREATE TABLE actions (
    number INTEGER PRIMARY KEY, action_id TEXT NOT NULL, run_id TEXT NOT NULL, state TEXT NOT NULL,
    status TEXT NOT NULL, agent TEXT NOT NULL, requester TEXT NOT NULL, created_by TEXT NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, capability TEXT NOT NULL, title TEXT NOT NULL, kind TEXT NOT NULL,
    payload_hash TEXT NOT NULL, risk TEXT NOT NULL, asked_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    asked_seq INTEGER NOT NULL, decided_at INTEGER NOT NULL, decided_by TEXT NOT NULL, rules TEXT NOT NULL,
    words TEXT NOT NULL, numbers TEXT NOT NULL
);
CREATE INDEX actions_by_id ON actions (action_id, number);
CREATE UNIQUE INDEX actions_by_run ON actions (run_id, action_id);
CREATE INDEX actions_by_status ON actions (status, number, kind);
CREATE INDEX actions_by_agent ON actions (agent, status, number, kind);
CREATE INDEX actions_by_requester ON actions (requester, status, number, kind);
CREATE INDEX actions_by_creator ON actions (created_by, status, number, kind);
CREATE INDEX actions_by_expiry ON actions (expires_at) WHERE status = 'PENDING' AND expires_at > 0;

CREATE TABLE activity (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
    type TEXT NOT NULL, title TEXT NOT NULL, tone TEXT NOT NULL, icon TEXT NOT NULL,
    tool TEXT NOT NULL, action_id TEXT NOT NULL, text TEXT NOT NULL
);

-- Figures of all runs by hour and by day (`storage/rollups.py`). `start` is in seconds since 1970.
CREATE TABLE rollups (
    width INTEGER NOT NULL, start INTEGER NOT NULL, metric TEXT NOT NULL, agent TEXT NOT NULL, name TEXT NOT NULL,
    count INTEGER NOT NULL, total REAL NOT NULL, PRIMARY KEY (width, start, metric, agent, name)
) WITHOUT ROWID;

-- How far the log was read. `clean` is 1 while nothing was written since the file was closed in order.
CREATE TABLE place (
    position INTEGER NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL, clean INTEGER NOT NULL
);
INSERT INTO place VALUES (0, '', -1, X'', 1);
