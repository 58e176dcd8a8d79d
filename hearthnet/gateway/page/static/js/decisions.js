// Decisions about the calls of a run: made in a dialog, sent to the gateway over HTTP, read by the driver of the run.

import { post } from "./api.js";
import { confirm } from "./confirm.js";
import { announce } from "./dom.js";
import { over } from "./lib/answer.js";
import { text, textOr } from "./texts.js";

const STANDS = { approve: "approved", edit: "edited", deny: "denied" };

/** The requests by which one call of a run is decided and previewed. */
function requestsFor(pending) {
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
export const decide = (pending, catalog) => confirm(pending, requestsFor(pending), catalog.tool(pending.name)?.parameters_schema ?? null);

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
