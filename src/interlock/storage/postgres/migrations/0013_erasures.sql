-- `erasure` numbers erased runs in the order in which they were erased; an archived run has none.
CREATE SEQUENCE erasures;
ALTER TABLE removed_runs ADD erasure bigint;
UPDATE removed_runs SET erasure = nextval('erasures')
WHERE (convert_from(record, 'UTF8')::json #>> '{run,is_erased}')::boolean;
CREATE INDEX removed_runs_by_erasure ON removed_runs (erasure) WHERE erasure IS NOT NULL;
CREATE INDEX removed_runs_archived ON removed_runs (number) WHERE erasure IS NULL;

-- `state` 3: the run is over, and its events were removed.
UPDATE runs SET state = 3 FROM removed_runs WHERE removed_runs.number = runs.number;
CREATE INDEX runs_over ON runs (number) WHERE state = 2;

-- A run that is over is never due: the reconciler need not read it.
DROP INDEX runs_by_wake_at;
CREATE INDEX runs_by_wake_at ON runs (wake_at) WHERE wake_at IS NOT NULL AND state < 2;

-- Old runs are deleted from the largest table day after day: their space is to be used by the next ones.
ALTER TABLE appends SET (autovacuum_vacuum_scale_factor = 0.01);
