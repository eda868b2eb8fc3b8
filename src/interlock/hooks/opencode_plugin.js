// Interlock: every tool call of opencode is decided by the policy, and recorded.
// Written by `interlock hooks install opencode`, removed by `interlock hooks uninstall opencode`.
import { spawn } from "node:child_process";

const COMMAND = ["interlock-hook", "opencode"];

/** Ask the daemon. Whatever goes wrong is an error, and an error keeps the tool from running. */
function ask(payload) {
  return new Promise((resolve, reject) => {
    const hook = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "pipe"], env: {} });
    const output = [];
    const errors = [];
    hook.stdout.on("data", (chunk) => output.push(chunk));
    hook.stderr.on("data", (chunk) => errors.push(chunk));
    hook.stdin.on("error", () => {});
    hook.on("error", (error) => reject(new Error(`Interlock denied this call: ${error.message}. Nothing was executed.`)));
    hook.on("close", (code) => {
      const reason = Buffer.concat(errors).toString().trim();
      if (code !== 0) return reject(new Error(reason || "Interlock denied this call: its hook failed."));
      try {
        resolve(JSON.parse(Buffer.concat(output).toString()));
      } catch {
        reject(new Error("Interlock denied this call: its answer cannot be read."));
      }
    });
    hook.stdin.end(JSON.stringify(payload));
  });
}

export const Interlock = async ({ directory }) => {
  const sessions = new Set();
  const report = (hook, sessionID) => ask({ hook, sessionID, directory }).catch(() => {});
  return {
    "tool.execute.before": async (input, output) => {
      const { tool, sessionID, callID } = input;
      sessions.add(sessionID);
      const answer = await ask({ hook: "tool.execute.before", tool, sessionID, callID, directory, args: output.args ?? {} });
      if (answer.decision !== "allow") throw new Error(answer.reason || "Interlock denied this call.");
      if (answer.args) {
        for (const name of Object.keys(output.args)) delete output.args[name];
        Object.assign(output.args, answer.args);
      }
    },
    "tool.execute.after": async (input, output) => {
      const { tool, sessionID, callID, args } = input;
      const text = output?.output ?? "";
      // The tool has run: an error here would only make the model try again.
      await ask({
        hook: "tool.execute.after",
        tool,
        sessionID,
        callID,
        directory,
        args: args ?? {},
        output: typeof text === "string" ? text.slice(0, 200_000) : text,
      }).catch(() => {});
    },
    event: async ({ event }) => {
      const id = event.properties?.info?.id ?? event.properties?.sessionID;
      if (event.type === "session.created" && id) await report("session.start", id);
      if (event.type === "session.deleted" && sessions.delete(id)) await report("session.end", id);
    },
    dispose: async () => {
      for (const id of sessions) await report("session.end", id);
    },
  };
};
