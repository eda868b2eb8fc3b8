"""Who resumes runs: one process for its own log, or workers on many hosts."""
