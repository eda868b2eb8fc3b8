"""What a person is asked about a call, what an approval is bound to, and what an answer means."""
