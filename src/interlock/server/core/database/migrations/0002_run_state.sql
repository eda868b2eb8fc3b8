-- Runs whose events are damaged. Nothing can be appended to them, so an operator closes them here.
CREATE TABLE damaged_runs (
    run_id TEXT PRIMARY KEY, problem TEXT NOT NULL, found_at INTEGER NOT NULL,
    closed_at INTEGER NOT NULL DEFAULT 0, closed_by TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Every agent that this server ever served. A run of one that it no longer serves cannot continue.
CREATE TABLE served_agents (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
