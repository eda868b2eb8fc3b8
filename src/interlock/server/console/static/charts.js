// Times beside charts, short: hours are local, days are those of UTC, as they are counted.
import { findAll } from "./base.dom.js";
import { onReplaced } from "./live.js";

/** @param {ParentNode} root */
function shorten(root) {
  for (const time of findAll("time[data-axis]", HTMLTimeElement, root)) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    time.textContent =
      time.dataset.axis === "day"
        ? at.toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" })
        : at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  }
}

shorten(document);
onReplaced((regions) => regions.forEach((region) => shorten(region)));
