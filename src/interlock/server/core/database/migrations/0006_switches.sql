-- What people switched off. `kind`: agent, schedule or webhook. The agent with the empty name is all of them.
CREATE TABLE switches (
    kind TEXT NOT NULL, name TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- What a schedule or webhook did not start, counted by code.
CREATE TABLE trigger_refusals (
    kind TEXT NOT NULL, name TEXT NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL, count INTEGER NOT NULL,
    first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, PRIMARY KEY (kind, name, code)
) STRICT, WITHOUT ROWID;

-- Passkeys of accounts (WebAuthn). `public_key` is in COSE.
CREATE TABLE passkeys (
    credential_id TEXT PRIMARY KEY, account TEXT NOT NULL, name TEXT NOT NULL, public_key BLOB NOT NULL,
    sign_count INTEGER NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX passkeys_by_account ON passkeys (account, created_at);

-- Challenges that were not answered yet. `owner`: the session that registers a passkey; empty for a sign-in.
CREATE TABLE passkey_challenges (
    challenge TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX passkey_challenges_by_end ON passkey_challenges (expires_at);
