// What a run says between its events: the text of the model as it comes, and the progress of its calls. It is shown as
// text, with what cannot be seen written out, until the event comes that has it.
import { byId, find, findAll } from "./base.dom.js";
import { onReplaced, refreshSoon } from "./live.js";

const MAX_CHARS = 20_000;
const RETRY_MS = 5_000;
const MAX_TRIES = 20;
// After one of these the page is drawn again.
const RECORDED = ["user.message", "model.request", "tool.invocation.started", "tool.observation", "warning"];
const ANSWERED = ["model.response", "model.failed", "context.compacted"];
const UNSEEN = /[^\n\t\P{C}]|[\u2028\u2029\u00ad\u034f\u115f\u1160\u3164\uffa0\u2800]/gu;

const page = byId("run");
let newest = page.dataset.newest ?? "-1";
let written = "";
let isRecorded = false;
let tries = 0;
/** @type {Map<string, string>} */
const progress = new Map();

/** @param {string} text */
function visible(text) {
  return text.replace(UNSEEN, (each) => `\\u{${each.codePointAt(0)?.toString(16)}}`);
}

function show() {
  const writing = find("#writing");
  if (writing) {
    byId("written").textContent = visible(written.slice(-MAX_CHARS));
    writing.hidden = !written;
  }
  for (const place of findAll("[data-progress]")) {
    const message = progress.get(place.dataset.progress ?? "") ?? "";
    place.textContent = visible(message.slice(-MAX_CHARS));
    place.hidden = !message;
  }
}

function connect() {
  const path = `/v1/runs/${encodeURIComponent(page.dataset.run ?? "")}/events/stream`;
  const source = new EventSource(`${path}?deltas=true&view=log&after_seq=${newest}`);
  source.onerror = () => {
    source.close();
    if (tries++ < MAX_TRIES) setTimeout(connect, RETRY_MS);
  };
  source.addEventListener("end", () => {
    source.close();
    refreshSoon();
  });
  source.addEventListener("model.delta", (event) => {
    const { offset, text } = JSON.parse(event.data).data;
    written = (isRecorded ? "" : written.slice(0, offset)) + text;
    isRecorded = false;
    show();
  });
  source.addEventListener("model.restarted", () => {
    written = "";
    show();
  });
  source.addEventListener("tool.progress", (event) => {
    const { call_id: callId, message } = JSON.parse(event.data).data;
    progress.set(callId, message);
    show();
  });
  for (const name of [...RECORDED, ...ANSWERED]) {
    source.addEventListener(name, (event) => {
      tries = 0;
      newest = event.lastEventId || newest;
      isRecorded ||= ANSWERED.includes(name);
      refreshSoon();
    });
  }
  addEventListener("pagehide", () => source.close());
}

onReplaced((regions) => {
  if (!regions.some((region) => region.dataset.region === "transcript")) return;
  if (isRecorded) written = "";
  show();
});
if (page.dataset.over !== "yes" && find("#writing")) connect();
