-- A process that uses the log. It is alive as long as its last beat is younger than its lease, by this clock.
CREATE TABLE processes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host text NOT NULL, boot text NOT NULL, pid bigint NOT NULL, started bigint NOT NULL,
    lease_seconds float8 NOT NULL, beat_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- `token` is that of the lease in force, 0 when there is none; `last_token` grows with every lease.
CREATE TABLE runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    next_seq bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0, last_token bigint NOT NULL DEFAULT 0, holder bigint REFERENCES processes
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX runs_by_holder ON runs (holder) WHERE holder IS NOT NULL;

-- The events of one append in one row, compressed. The position of an event is that of its append and its place in it.
CREATE TABLE appends (
    run bigint NOT NULL, seq bigint NOT NULL, count integer NOT NULL, position bigint NOT NULL,
    bodies bytea NOT NULL, hashes bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

ALTER TABLE appends ALTER COLUMN bodies SET STORAGE EXTERNAL, ALTER COLUMN hashes SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX appends_by_position ON appends (position);

CREATE TABLE commands (
    id bigint GENERATED ALWAYS AS IDENTITY, run bigint NOT NULL, key text COLLATE "C" NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (run, key)
);

CREATE TABLE snapshots (run_id text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, hash bytea NOT NULL, state bytea NOT NULL);

ALTER TABLE snapshots ALTER COLUMN state SET STORAGE EXTERNAL;

CREATE TABLE effects (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    effect text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, call_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL
);

CREATE INDEX effects_by_key ON effects (effect, number);

-- Positions are made of transaction ids, which begin again in a restored database. The offset makes up for that.
CREATE TABLE positions (transaction_offset bigint NOT NULL);

INSERT INTO positions VALUES (0);
