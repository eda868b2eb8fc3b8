-- Runs whose events were archived. Their ids stay taken: the next event of one would be `next_seq`.
CREATE TABLE removed_runs (run INTEGER PRIMARY KEY, next_seq INTEGER NOT NULL, record BLOB NOT NULL);
