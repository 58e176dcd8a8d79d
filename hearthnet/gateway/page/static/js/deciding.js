// Decisions about the calls of a run: asked in a dialog, told to the gateway over HTTP, heard by whoever drives the run.

import { post } from "./api.js";
import { confirm } from "./confirm.js";
import { announce } from "./dom.js";
import { over } from "./lib/answer.js";
import { text, textOr } from "./texts.js";

const STANDS = { approve: "approved", edit: "edited", deny: "denied" };

/** What takes decisions about one call of a run. */
function deskOf(pending) {
  const at = `/v1/runs/${pending.run}`;
  const call = pending.tool_call_id;
  return {
    preview: (wanted) => post(`${at}/preview`, { call, arguments: wanted }),
    decide: async ({ confirmation_id: _, ...said }) => {
      const taken = await post(`${at}/decisions`, { call, ...said });
      if (taken.repeated) announce(text("confirm.decided", { word: textOr(`status.${taken.word}`, taken.word) }));
      return taken.word ?? STANDS[said.decision];
    },
  };
}

/** Asks about what waits; the word that stands, or null for later. */
export const decide = (pending, catalog) => confirm(pending, deskOf(pending), catalog.tool(pending.name)?.parameters_schema ?? null);

/** Asks about a call of an answer that is kept here; a run that nobody drives goes on. */
export async function decideIn(conversations, catalog, record, call) {
  if (!call.pending) return null;
  const word = await decide(call.pending, catalog);
  if (!word) return null;
  // Its result may have come over the stream before the answer to the decision.
  if (call.pending) Object.assign(call, { pending: null, status: word });
  if (over(record.answer) && ![...record.answer.calls.values()].some((one) => one.pending)) {
    await conversations.resume(record.answer.run, record.question);
  }
  return word;
}
