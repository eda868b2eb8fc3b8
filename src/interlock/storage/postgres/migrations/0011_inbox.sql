-- What a list of questions is searched and filtered by. Older questions are found by their title and tool.
ALTER TABLE indexed_actions ADD rules text NOT NULL DEFAULT '[]', ADD words text NOT NULL DEFAULT '',
    ADD numbers text NOT NULL DEFAULT '{}';
UPDATE indexed_actions SET words = lower(title || chr(10) || tool || chr(10) || capability);

CREATE OR REPLACE VIEW listed_actions AS
SELECT indexed_actions.number, action_id, run_id, indexed_actions.state, status, agent, requester, created_by, call_id,
    tool, capability, kind, payload_hash, risk, asked_at, expires_at, asked_seq, decided_at, decided_by, title, rules,
    words, numbers
FROM indexed_actions LEFT JOIN runs ON runs.number = run;
