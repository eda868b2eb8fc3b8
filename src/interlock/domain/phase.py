"""The stages of one call, in order. Files, events, errors and the API use these names."""

from enum import StrEnum


class Phase(StrEnum):
    ACCEPT = "accept"
    LOOKUP = "lookup"
    VALIDATE = "validate"
    PERMIT = "permit"
    SCHEDULE = "schedule"
    EXECUTE = "execute"
    NORMALIZE = "normalize"
    OBSERVE = "observe"
    RECORD = "record"

    @property
    def word(self) -> str:
        """The word that observations show for this phase."""
        return _WORDS.get(self, self.value)


#: Observations keep the field's older words for two stages.
_WORDS = {Phase.PERMIT: "permission", Phase.RECORD: "write_back"}
