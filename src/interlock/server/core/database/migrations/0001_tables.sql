-- Applied to files of version 1, too: before version 2 a command made only the tables that it needed.

CREATE TABLE IF NOT EXISTS accounts (
    name TEXT PRIMARY KEY, password TEXT, roles TEXT NOT NULL, agents TEXT, disabled INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL, issuer TEXT, subject TEXT, stamp INTEGER NOT NULL DEFAULT 0,
    UNIQUE (issuer, subject)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS api_keys (
    key_id TEXT PRIMARY KEY, hash BLOB NOT NULL, name TEXT NOT NULL, roles TEXT NOT NULL, agents TEXT,
    created_by TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL DEFAULT 0, revoked_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sessions (
    session_id TEXT PRIMARY KEY, name TEXT NOT NULL, stamp INTEGER NOT NULL,
    started_at INTEGER NOT NULL, used_at INTEGER NOT NULL, ends_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_of ON sessions (name, started_at);

CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, hash BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS journal_is_not_edited BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is only ever added to'); END;
CREATE TRIGGER IF NOT EXISTS journal_is_not_cut BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is only ever added to'); END;

-- Tokens of versions that bound a consent to user and tool only. They serve nothing: users are asked again.
DROP TABLE IF EXISTS oauth_tokens;
CREATE TABLE IF NOT EXISTS consent_tokens (
    user TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, definition TEXT NOT NULL,
    provider TEXT NOT NULL, scopes TEXT NOT NULL,
    since INTEGER NOT NULL, expires_at INTEGER NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (user, agent, tool, definition)
) WITHOUT ROWID;

-- Once used, only the hash of the state is kept, until it would have expired.
CREATE TABLE IF NOT EXISTS oauth_flows (
    number INTEGER PRIMARY KEY, state_hash TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, expires_at INTEGER NOT NULL,
    sealed BLOB
);
CREATE INDEX IF NOT EXISTS oauth_flows_by_owner ON oauth_flows (owner, number);
CREATE INDEX IF NOT EXISTS oauth_flows_by_end ON oauth_flows (expires_at);

CREATE TABLE IF NOT EXISTS schedule_marks (
    name TEXT PRIMARY KEY, definition TEXT NOT NULL, due_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS forward_positions (
    destination TEXT PRIMARY KEY, position INTEGER NOT NULL, hash BLOB NOT NULL, sending INTEGER NOT NULL,
    sent_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forward_set_aside (
    destination TEXT NOT NULL, position INTEGER NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL,
    problem TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (destination, position)
) WITHOUT ROWID;

-- `run_id` is empty, but for those that are about one run alone.
CREATE TABLE IF NOT EXISTS checkpoints (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, position INTEGER NOT NULL, document BLOB NOT NULL,
    signature BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS checkpoints_by_run ON checkpoints (run_id, number);
CREATE TABLE IF NOT EXISTS checkpoint_runs (
    run_id TEXT NOT NULL, number INTEGER NOT NULL, count INTEGER NOT NULL, head TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS checkpoint_runs_by_number ON checkpoint_runs (number);
CREATE TABLE IF NOT EXISTS checkpoint_copies (path TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT;
