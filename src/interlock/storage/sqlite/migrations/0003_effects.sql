-- Claims of effects, by the digest of their key. A number is never used twice.
CREATE TABLE effects (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    effect TEXT NOT NULL, run_id TEXT NOT NULL, call_id TEXT NOT NULL, at INTEGER NOT NULL
);

CREATE INDEX effects_by_key ON effects (effect, number);
