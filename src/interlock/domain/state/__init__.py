"""The state of a run, folded from its events, and the tables of every transition."""
