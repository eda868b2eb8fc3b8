-- Leases and queued commands. A released lease keeps its row and its token; its pid is 0.
CREATE TABLE claims (
    run_id TEXT PRIMARY KEY, token INTEGER NOT NULL,
    host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE notes (run INTEGER NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, key));
