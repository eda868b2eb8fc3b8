// Times beside charts, short: hours are local, days are those of UTC, as they are counted.
import { findAll } from "./base.dom.js";
import { onReplaced } from "./live.js";

/**
 * @param {string} time
 * @param {string | undefined} axis
 */
function format(time, axis) {
  const at = new Date(time);
  return axis === "day"
    ? at.toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" })
    : at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

/** @param {ParentNode} root */
function shorten(root) {
  for (const time of findAll("time[data-axis]", HTMLTimeElement, root)) {
    time.textContent = format(time.dateTime, time.dataset.axis);
  }
  for (const title of findAll("title[data-at]", SVGTitleElement, root)) {
    const words = (title.textContent ?? "").replace(/^[^]*? UTC: /, "");
    title.textContent = `${format(title.dataset.at ?? "", title.dataset.axis)}: ${words}`;
  }
}

shorten(document);
onReplaced((regions) => regions.forEach((region) => shorten(region)));
