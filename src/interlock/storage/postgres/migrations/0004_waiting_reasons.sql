-- Why a run waits that no worker could continue, for people.
ALTER TABLE runs ADD waiting_reason text;
