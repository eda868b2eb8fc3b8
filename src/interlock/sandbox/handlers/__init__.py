"""Run tool handlers: in the event loop, in a thread, or in a process."""
