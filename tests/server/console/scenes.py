"""A server in the middle of a day: runs that wait, that are done, that were refused."""

from dataclasses import dataclass

from interlock.server.core.identity.principal import Principal, Role
from tests.server.server_process import Call, Running

OPERATOR = Principal(name="user:olga", kind="person", roles=frozenset((Role.OPERATOR,)))
REFUND: Call = ("refund", {"order": "A-1042", "amount": 42.5, "note": "Arrived broken; the customer sent photos."})
EDIT: Call = (
    "edit_page",
    {
        "path": "pages/summer.html",
        "old_string": "<h1>Summer</h1>\n<p>From 20 EUR</p>\n<p>Free delivery</p>\n",
        "new_string": "<h1>Summer sale</h1>\n<p>From 15 EUR</p>\n<p>Free delivery</p>\n",
    },
)
LONG: Call = (
    "publish",
    {"path": "imprint.html", "content": "\n".join(f"<p>Paragraph {at} of the imprint.</p>" for at in range(300))},
)
HOSTILE: Call = (
    "keep",
    {
        "anything": {
            "to": "p\u0430ypal.com",
            "text": f"thank you\u200b{' ' * 400}\u202erm -rf /",
            "html": "<img src=x onerror=alert(1)>",
            "list": [1, None, {"a": True}],
        }
    },
)
RENAME: Call = ("rename", {"name": ""})


@dataclass(frozen=True)
class Scene:
    #: Of questions and runs, by what they are about.
    ids: dict[str, str]


async def make_scene(house: Running) -> Scene:
    ids: dict[str, str] = {}
    done = await house.begin("Where is order A-1? Mia asks.", ("lookup", {"order": "A-1"}))
    refused = await house.begin("Refund the whole day.", ("refund", {"order": "all", "amount": 99999}))
    (question,) = await house.questions(refused)
    await house.service.approval_service.reject(OPERATOR, question.action_id, "Nobody asked for that.")
    wishes = {
        "refund": ("Give Mia her money back for order A-1042.", REFUND),
        "same": ("Mia wrote again: give her the money for A-1042.", REFUND),
        "edit": ("The summer page has the old price.", EDIT),
        "publish": ("Publish the new imprint.", LONG),
        "rename": ("Find a name for the autumn campaign.", RENAME),
        "hostile": ("Answer the mail from paypal.", HOSTILE),
    }
    for name, (words, call) in wishes.items():
        run_id = await house.begin(words, call)
        (row,) = await house.questions(run_id)
        ids |= {name: row.action_id, f"{name}_run": run_id}
    await house.ended(done)
    await house.ended(refused, "failed")
    return Scene(ids | {"done_run": done, "refused_run": refused, "paused_run": ids["refund_run"]})
