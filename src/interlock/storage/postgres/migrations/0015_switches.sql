-- What people switched off. `kind`: agent, schedule or webhook. The agent with the empty name is all of them.
CREATE TABLE switches (
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, actor text NOT NULL, reason text NOT NULL,
    at bigint NOT NULL, PRIMARY KEY (kind, name)
);

-- What a schedule or webhook did not start, counted by code.
CREATE TABLE trigger_refusals (
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, code text COLLATE "C" NOT NULL,
    message text NOT NULL, count bigint NOT NULL, first_at bigint NOT NULL, last_at bigint NOT NULL,
    PRIMARY KEY (kind, name, code)
);

-- Passkeys of accounts (WebAuthn). `public_key` is in COSE.
CREATE TABLE passkeys (
    credential_id text COLLATE "C" PRIMARY KEY, account text COLLATE "C" NOT NULL, name text NOT NULL,
    public_key bytea NOT NULL, sign_count bigint NOT NULL, created_at bigint NOT NULL,
    used_at bigint NOT NULL DEFAULT 0
);
CREATE INDEX passkeys_by_account ON passkeys (account, created_at);

-- Challenges that were not answered yet. `owner`: the session that registers a passkey; empty for a sign-in.
CREATE TABLE passkey_challenges (
    challenge text COLLATE "C" PRIMARY KEY, owner text COLLATE "C" NOT NULL, expires_at bigint NOT NULL
);
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at);
