-- What was used of budgets (`storage/budgets.py`): one row per budget, subject and window. `starts_at` and `ends_at` are in
-- seconds since 1970, `used` in millionths.
CREATE TABLE budgets (
    budget text COLLATE "C" NOT NULL, measure text COLLATE "C" NOT NULL, subject text COLLATE "C" NOT NULL,
    starts_at bigint NOT NULL, ends_at bigint NOT NULL, used bigint NOT NULL CHECK (used >= 0),
    PRIMARY KEY (budget, measure, subject, starts_at)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX budgets_by_end ON budgets (budget, ends_at);
