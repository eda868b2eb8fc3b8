"""Skills: folders with a `SKILL.md` that become tools."""
