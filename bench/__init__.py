"""What the runtime itself costs, beside the least that a governed runtime must do. See `docs/performance.md`."""
