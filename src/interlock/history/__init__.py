"""Read a run from its events: the fold, and views of calls, questions and states."""
