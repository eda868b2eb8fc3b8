-- Work on questions: to whom they are assigned, what people noted about them, and views of the inbox that people saved.
-- None of it is in the log of a run, so no model gets it. `is_open` is 0 once the question is answered or over.
CREATE TABLE question_assignments (
    action_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, account TEXT NOT NULL, assigned_by TEXT NOT NULL,
    assigned_at INTEGER NOT NULL, is_open INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX question_assignments_by_account ON question_assignments (is_open, account, assigned_at);
CREATE INDEX question_assignments_by_run ON question_assignments (run_id);

CREATE TABLE question_comments (
    number INTEGER PRIMARY KEY, action_id TEXT NOT NULL, run_id TEXT NOT NULL, author TEXT NOT NULL,
    text TEXT NOT NULL, created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX question_comments_by_question ON question_comments (action_id, number);
CREATE INDEX question_comments_by_run ON question_comments (run_id);

CREATE TABLE inbox_views (
    account TEXT NOT NULL, name TEXT NOT NULL, query TEXT NOT NULL, saved_at INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT, WITHOUT ROWID;
