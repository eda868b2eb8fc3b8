"""An effect happens once, however often and wherever it is proposed."""
