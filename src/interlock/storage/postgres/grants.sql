-- What a process needs that uses the log. Events, claims of effects and artifacts are only ever added. Of a server's
-- tables it sees none but what was switched off, and the tokens of consents, which are sealed.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON schema_steps, runs, appends, commands, snapshots, effects, processes, positions, artifacts, artifact_parts,
    indexed_runs, indexed_actions, listed_runs, listed_actions, removed_runs, rollups, rollup_position, budgets TO {role};
GRANT INSERT ON runs, appends, commands, snapshots, effects, processes, artifacts, artifact_parts,
    indexed_runs, indexed_actions, rollups, budgets TO {role};
GRANT UPDATE ON runs, snapshots, processes, positions, indexed_runs, indexed_actions, rollups, rollup_position,
    budgets TO {role};
GRANT DELETE ON commands, processes, budgets TO {role};
-- Jobs are dispatched by Procrastinate, with the rights of its caller.
GRANT SELECT, INSERT, UPDATE, DELETE
    ON procrastinate_jobs, procrastinate_workers, procrastinate_events, procrastinate_periodic_defers TO {role};
GRANT SELECT ON switches TO {role};
GRANT SELECT, UPDATE, DELETE ON consent_tokens TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON consent_locks TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
