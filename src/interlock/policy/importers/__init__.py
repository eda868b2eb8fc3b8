"""Policies of other tools, translated: Claude Code, Codex, Gemini CLI."""
