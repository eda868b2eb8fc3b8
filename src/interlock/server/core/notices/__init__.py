"""Notify people of open questions: by webhook, e-mail, Slack, Microsoft Teams, browser push and ntfy."""
