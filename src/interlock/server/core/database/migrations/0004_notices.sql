-- Notices of questions to people. `state`: waiting, sending, sent, withdrawn or dead.
CREATE TABLE notice_deliveries (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, channel TEXT NOT NULL, account TEXT NOT NULL,
    recipient TEXT NOT NULL, kind TEXT NOT NULL, run_id TEXT NOT NULL, action_id TEXT NOT NULL, seq INTEGER NOT NULL,
    state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, due_at INTEGER NOT NULL, created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, batch TEXT NOT NULL DEFAULT '', reference TEXT NOT NULL DEFAULT '',
    problem TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX notice_deliveries_by_due ON notice_deliveries (channel, state, due_at);
CREATE INDEX notice_deliveries_by_question ON notice_deliveries (run_id, action_id);
CREATE INDEX notice_deliveries_by_end ON notice_deliveries (state, changed_at);

-- Channels in which a person switched their own notices off.
CREATE TABLE notice_mutes (
    account TEXT NOT NULL, channel TEXT NOT NULL, PRIMARY KEY (account, channel)
) STRICT, WITHOUT ROWID;

-- Browsers in which people switched push on.
CREATE TABLE push_subscriptions (
    subscription_id TEXT PRIMARY KEY, account TEXT NOT NULL, channel TEXT NOT NULL, endpoint TEXT NOT NULL,
    public_key TEXT NOT NULL, auth TEXT NOT NULL, created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX push_subscriptions_by_account ON push_subscriptions (account, created_at);

-- Signed requests that were answered, so that none is answered twice.
CREATE TABLE notice_callbacks (signature TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX notice_callbacks_by_time ON notice_callbacks (at);
