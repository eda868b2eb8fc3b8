-- Work on questions: to whom they are assigned, what people noted about them, and views of the inbox that people saved.
-- None of it is in the log of a run, so no model gets it. `is_open` is 0 once the question is answered or over.
CREATE TABLE question_assignments (
    action_id text COLLATE "C" PRIMARY KEY, run_id text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL,
    assigned_by text NOT NULL, assigned_at bigint NOT NULL, is_open smallint NOT NULL
);
CREATE INDEX question_assignments_by_account ON question_assignments (is_open, account, assigned_at);
CREATE INDEX question_assignments_by_run ON question_assignments (run_id);

CREATE TABLE question_comments (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, action_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL, author text NOT NULL, text text NOT NULL, created_at bigint NOT NULL
);
CREATE INDEX question_comments_by_question ON question_comments (action_id, number);
CREATE INDEX question_comments_by_run ON question_comments (run_id);

CREATE TABLE inbox_views (
    account text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, query text NOT NULL, saved_at bigint NOT NULL,
    PRIMARY KEY (account, name)
);
