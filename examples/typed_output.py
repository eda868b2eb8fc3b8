"""The final answer as a type. What does not fit is reported to the model, which may try again."""

from pydantic import BaseModel, Field

from interlock import Agent, Runner, ScriptedModel


class Review(BaseModel):
    stars: int = Field(ge=1, le=5)
    summary: str


model = ScriptedModel(
    [
        "Four stars, I liked it.",
        '{"stars": 9, "summary": "Good soup."}',
        '{"stars": 4, "summary": "Good soup."}',
    ]
)
with Runner(Agent(provider=model, output_type=Review)) as runner:
    result = runner.run_sync("Review: the soup was good, the bread was not.")

print(repr(result.output))
