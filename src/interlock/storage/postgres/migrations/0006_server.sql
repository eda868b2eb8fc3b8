-- The tables of `interlock serve`, which its servers on all hosts share. `server/core/database/migrations` has the same
-- tables for one server with a file; both are used by the same statements. Times are nanoseconds since 1970.

-- What those statements call bytes.
CREATE DOMAIN blob AS bytea;

CREATE TABLE accounts (
    name text COLLATE "C" PRIMARY KEY, password text, roles text NOT NULL, agents text,
    disabled integer NOT NULL DEFAULT 0, created_at bigint NOT NULL, issuer text, subject text,
    stamp integer NOT NULL DEFAULT 0,
    UNIQUE (issuer, subject)
);

CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY, hash bytea NOT NULL, name text NOT NULL, roles text NOT NULL, agents text,
    created_by text NOT NULL, created_at bigint NOT NULL, expires_at bigint NOT NULL,
    last_used_at bigint NOT NULL DEFAULT 0, revoked_at bigint NOT NULL DEFAULT 0
);

CREATE TABLE sessions (
    session_id text COLLATE "C" PRIMARY KEY, name text COLLATE "C" NOT NULL, stamp integer NOT NULL,
    started_at bigint NOT NULL, used_at bigint NOT NULL, ends_at bigint NOT NULL
);
CREATE INDEX sessions_of ON sessions (name, started_at);

-- Attempts to sign in that count together: `both` (name and network), `address` or `name`. Lost in a crash of the
-- database, which is worth less than a sync for each attempt.
CREATE UNLOGGED TABLE login_attempts (
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, network text COLLATE "C" NOT NULL,
    times text NOT NULL, level integer NOT NULL, blocked_until double precision NOT NULL,
    used_at double precision NOT NULL, PRIMARY KEY (kind, name, network)
);
CREATE INDEX login_attempts_by_use ON login_attempts (used_at);
-- Networks from which the owner of an account signed in.
CREATE TABLE login_networks (
    name text COLLATE "C" NOT NULL, network text COLLATE "C" NOT NULL, used_at double precision NOT NULL,
    PRIMARY KEY (name, network)
);
CREATE INDEX login_networks_by_use ON login_networks (used_at);

CREATE TABLE journal (seq bigint PRIMARY KEY, body bytea NOT NULL, hash bytea NOT NULL);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the journal is only ever added to'; END $$;
CREATE TRIGGER journal_is_not_changed BEFORE UPDATE OR DELETE ON journal FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE consent_tokens (
    person text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL, provider text NOT NULL, scopes text NOT NULL,
    since bigint NOT NULL, expires_at bigint NOT NULL, sealed bytea NOT NULL,
    PRIMARY KEY (person, agent, tool, definition)
);
-- One process at a time renews or revokes the tokens of a consent; `until` is for processes that died meanwhile.
CREATE TABLE consent_locks (
    person text COLLATE "C" NOT NULL, agent text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL, holder text NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (person, agent, tool, definition)
);

-- Once used, only the hash of the state is kept, until it would have expired.
CREATE TABLE oauth_flows (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state_hash text COLLATE "C" NOT NULL UNIQUE,
    owner text NOT NULL, expires_at bigint NOT NULL, sealed bytea
);
CREATE INDEX oauth_flows_by_owner ON oauth_flows (owner, number);
CREATE INDEX oauth_flows_by_end ON oauth_flows (expires_at);

-- `seen_at`: when a server that has the schedule was running last.
CREATE TABLE schedule_marks (
    name text COLLATE "C" PRIMARY KEY, definition text NOT NULL, due_at bigint NOT NULL, seen_at bigint NOT NULL
);

CREATE TABLE forward_positions (
    destination text COLLATE "C" PRIMARY KEY, position bigint NOT NULL, hash bytea NOT NULL, sending bigint NOT NULL,
    sent_at bigint NOT NULL
);
CREATE TABLE forward_set_aside (
    destination text COLLATE "C" NOT NULL, position bigint NOT NULL, run_id text NOT NULL, seq bigint NOT NULL,
    problem text NOT NULL, at bigint NOT NULL, PRIMARY KEY (destination, position)
);

-- Every public key that ever signed, in the order of their use. The newest one is in use.
CREATE TABLE signing_keys (
    number bigint PRIMARY KEY, key_id text COLLATE "C" NOT NULL UNIQUE, public_key text NOT NULL,
    since text NOT NULL, until text NOT NULL
);

-- The keys that servers sealed with, in the order of their use.
CREATE TABLE sealing_keys (number bigint PRIMARY KEY, key_id text COLLATE "C" NOT NULL, since text NOT NULL);

-- `run_id` is empty, but for those that are about one run alone.
CREATE TABLE checkpoints (
    number bigint PRIMARY KEY, run_id text COLLATE "C" NOT NULL, position bigint NOT NULL, document bytea NOT NULL,
    signature bytea NOT NULL
);
CREATE INDEX checkpoints_by_run ON checkpoints (run_id, number);
CREATE TABLE checkpoint_runs (
    run_id text COLLATE "C" NOT NULL, number bigint NOT NULL, count bigint NOT NULL, head text NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE INDEX checkpoint_runs_by_number ON checkpoint_runs (number);
CREATE TABLE checkpoint_copies (path text COLLATE "C" PRIMARY KEY, number bigint NOT NULL);

-- Runs whose events are damaged. Nothing can be appended to them, so an operator closes them here.
CREATE TABLE damaged_runs (
    run_id text COLLATE "C" PRIMARY KEY, problem text NOT NULL, found_at bigint NOT NULL,
    closed_at bigint NOT NULL DEFAULT 0, closed_by text NOT NULL DEFAULT '', reason text NOT NULL DEFAULT ''
);

-- Every agent that was ever served.
CREATE TABLE served_agents (name text COLLATE "C" PRIMARY KEY);
