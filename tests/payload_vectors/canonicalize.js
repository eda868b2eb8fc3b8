// RFC 8785 in the language whose JSON it is defined by. Reads one JSON text per line; writes, per line, the canonical
// bytes in hex and the payload hash over them.
"use strict";
const { createHash } = require("node:crypto");
const { readFileSync } = require("node:fs");

const PREFIX = "interlock/invocation/v1\n";

function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  // `sort` compares UTF-16 code units, as the RFC wants it.
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const bytes = Buffer.from(canonical(JSON.parse(line)), "utf8");
  const hash = createHash("sha256").update(PREFIX).update(bytes).digest("hex");
  console.log(`${bytes.toString("hex")} sha256:${hash}`);
}
