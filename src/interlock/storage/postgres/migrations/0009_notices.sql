-- Notices of questions to people. `state`: waiting, sending, sent, withdrawn or dead.
CREATE TABLE notice_deliveries (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text COLLATE "C" NOT NULL UNIQUE,
    channel text COLLATE "C" NOT NULL, account text COLLATE "C" NOT NULL, recipient text COLLATE "C" NOT NULL,
    kind text NOT NULL, run_id text COLLATE "C" NOT NULL, action_id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
    state text NOT NULL, attempts bigint NOT NULL DEFAULT 0, due_at bigint NOT NULL, created_at bigint NOT NULL,
    changed_at bigint NOT NULL, batch text NOT NULL DEFAULT '', reference text NOT NULL DEFAULT '',
    problem text NOT NULL DEFAULT ''
);
CREATE INDEX notice_deliveries_by_due ON notice_deliveries (channel, state, due_at);
CREATE INDEX notice_deliveries_by_question ON notice_deliveries (run_id, action_id);
CREATE INDEX notice_deliveries_by_end ON notice_deliveries (state, changed_at);

-- Channels in which a person switched their own notices off.
CREATE TABLE notice_mutes (
    account text COLLATE "C" NOT NULL, channel text COLLATE "C" NOT NULL, PRIMARY KEY (account, channel)
);

-- Browsers in which people switched push on.
CREATE TABLE push_subscriptions (
    subscription_id text COLLATE "C" PRIMARY KEY, account text COLLATE "C" NOT NULL, channel text COLLATE "C" NOT NULL,
    endpoint text NOT NULL, public_key text NOT NULL, auth text NOT NULL, created_at bigint NOT NULL
);
CREATE INDEX push_subscriptions_by_account ON push_subscriptions (account, created_at);

-- Signed requests that were answered, so that none is answered twice.
CREATE TABLE notice_callbacks (signature text COLLATE "C" PRIMARY KEY, at bigint NOT NULL);
CREATE INDEX notice_callbacks_by_time ON notice_callbacks (at);
