-- Events are stored as they are appended: those of one append in one row, compressed. An event's position is that of its
-- append and its place in it. `events` has those of older versions, until they are packed: `interlock storage upgrade`.
CREATE TABLE appends (
    position INTEGER PRIMARY KEY,
    run INTEGER NOT NULL, seq INTEGER NOT NULL, count INTEGER NOT NULL, bodies BLOB NOT NULL, hashes BLOB NOT NULL
);

CREATE UNIQUE INDEX appends_by_run ON appends (run, seq);

-- The form of `state`: 0 as it is, 1 compressed.
ALTER TABLE snapshots ADD COLUMN form INTEGER NOT NULL DEFAULT 0;
