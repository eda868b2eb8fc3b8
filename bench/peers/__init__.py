"""Interlock beside other runtimes, on the same work: each in an environment of its own, all in the same rounds."""
