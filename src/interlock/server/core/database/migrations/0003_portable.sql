-- `user` is a word of SQL elsewhere.
ALTER TABLE consent_tokens RENAME COLUMN user TO person;

-- One process at a time renews or revokes the tokens of a consent; `until` is for processes that died meanwhile.
CREATE TABLE consent_locks (
    person TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, definition TEXT NOT NULL, holder TEXT NOT NULL,
    until INTEGER NOT NULL, PRIMARY KEY (person, agent, tool, definition)
) STRICT, WITHOUT ROWID;

-- `seen_at`: when a server that has the schedule was running last.
ALTER TABLE schedule_marks ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;

-- Attempts to sign in that count together: `both` (name and network), `address` or `name`.
CREATE TABLE login_attempts (
    kind TEXT NOT NULL, name TEXT NOT NULL, network TEXT NOT NULL, times TEXT NOT NULL, level INTEGER NOT NULL,
    blocked_until REAL NOT NULL, used_at REAL NOT NULL, PRIMARY KEY (kind, name, network)
) STRICT, WITHOUT ROWID;
CREATE INDEX login_attempts_by_use ON login_attempts (used_at);
-- Networks from which the owner of an account signed in.
CREATE TABLE login_networks (
    name TEXT NOT NULL, network TEXT NOT NULL, used_at REAL NOT NULL, PRIMARY KEY (name, network)
) STRICT, WITHOUT ROWID;
CREATE INDEX login_networks_by_use ON login_networks (used_at);
