"""Text for people and models: excerpts, escaping, questions, sentences."""
