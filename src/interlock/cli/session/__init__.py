"""A run at a terminal: the agent, prompts, interrupts, resume, replay."""
