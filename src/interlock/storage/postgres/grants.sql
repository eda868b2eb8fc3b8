-- What a process needs that uses the log. Events, claims of effects and artifacts are only ever added.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
GRANT INSERT ON runs, appends, commands, snapshots, effects, processes, artifacts, artifact_parts,
    indexed_runs, indexed_actions TO {role};
GRANT UPDATE ON runs, snapshots, processes, positions, indexed_runs, indexed_actions TO {role};
GRANT DELETE ON commands, processes TO {role};
-- Jobs are dispatched by Procrastinate, with the rights of its caller.
GRANT SELECT, INSERT, UPDATE, DELETE
    ON procrastinate_jobs, procrastinate_workers, procrastinate_events, procrastinate_periodic_defers TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
