-- What a question is about, in one line. Older questions have the operation, or the tool.
ALTER TABLE indexed_actions ADD title text NOT NULL DEFAULT '';
UPDATE indexed_actions SET title = coalesce(nullif(capability, ''), tool);

CREATE OR REPLACE VIEW listed_actions AS
SELECT indexed_actions.number, action_id, run_id, indexed_actions.state, status, agent, requester, created_by, call_id,
    tool, capability, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by, title
FROM indexed_actions LEFT JOIN runs ON runs.number = run;
