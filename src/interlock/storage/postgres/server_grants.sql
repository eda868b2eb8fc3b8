-- What `interlock serve` needs beside the log. Its journal, checkpoints and keys to check them with are only ever added.
GRANT SELECT, INSERT ON journal, checkpoints, checkpoint_runs, signing_keys, sealing_keys, served_agents TO {role};
GRANT UPDATE (until) ON signing_keys TO {role};
GRANT SELECT, INSERT, UPDATE ON accounts, api_keys, damaged_runs, checkpoint_copies TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE
    ON sessions, login_attempts, login_networks, consent_tokens, oauth_flows, schedule_marks, forward_positions,
    forward_set_aside, notice_deliveries, notice_mutes, push_subscriptions, notice_callbacks, switches, trigger_refusals,
    passkeys, passkey_challenges, question_assignments, question_comments, inbox_views TO {role};
