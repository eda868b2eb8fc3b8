"""The agent loop: a pure decision about the next step, and the driver that carries it out."""
