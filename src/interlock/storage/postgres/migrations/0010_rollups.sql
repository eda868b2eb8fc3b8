-- Figures of all runs by hour and by day (`storage/rollups.py`). `start` is in seconds since 1970. A server adds those of
-- new events: in appends, processes would wait for each other at the rows of the current hour.
CREATE TABLE rollups (
    width integer NOT NULL, start bigint NOT NULL, metric text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL, count bigint NOT NULL, total double precision NOT NULL,
    PRIMARY KEY (width, start, metric, agent, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- The last event that is counted.
CREATE TABLE rollup_position (position bigint NOT NULL);
INSERT INTO rollup_position VALUES (0);
