-- Runs that workers resume: those with a queue. The jobs are in the tables of Procrastinate, which this step creates, too.

-- `state`: 0 can continue, 1 waits, 2 is over. Runs of before are not for workers.
-- `is_woken`: a run was started, or answered, and no worker has looked at it since.
-- `wake_at`: when to look at a run that waits. `parent`: the run that drives this one; it
-- has the same queue.
ALTER TABLE runs
    ADD queue text COLLATE "C", ADD parent text COLLATE "C",
    ADD state smallint NOT NULL DEFAULT 1, ADD is_woken boolean NOT NULL DEFAULT false,
    ADD wake_at timestamptz, ADD touched_at timestamptz NOT NULL DEFAULT clock_timestamp();

ALTER TABLE runs ALTER state SET DEFAULT 0;

CREATE INDEX runs_to_continue ON runs (number) WHERE state = 0 AND queue IS NOT NULL;

CREATE INDEX runs_by_wake_at ON runs (wake_at) WHERE wake_at IS NOT NULL;

ALTER TABLE commands ADD queued_at timestamptz NOT NULL DEFAULT clock_timestamp();
