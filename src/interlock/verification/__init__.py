"""Claims about tests and checks in a final answer, compared with what the run recorded."""
