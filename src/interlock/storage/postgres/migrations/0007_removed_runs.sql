-- Runs whose events were archived. Their rows in `runs` stay, so their ids stay taken.
CREATE TABLE removed_runs (number bigint PRIMARY KEY, record bytea NOT NULL);
