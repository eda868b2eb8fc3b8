-- `erasure` numbers erased runs in the order in which they were erased; an archived run has none.
ALTER TABLE removed_runs ADD COLUMN erasure INTEGER;
UPDATE removed_runs SET erasure = run WHERE json_extract(CAST(record AS TEXT), '$.run.is_erased');
CREATE INDEX removed_runs_by_erasure ON removed_runs (erasure) WHERE erasure IS NOT NULL;
CREATE INDEX removed_runs_archived ON removed_runs (run) WHERE erasure IS NULL;
