// A person's signed yes to one exact call. The page signs only what it shows, and only for whom it thinks it is.

import { digest } from "./bytes.js";
import { canonical } from "./canonical.js";
import { signature } from "./signing.js";

const FIELDS = ["v", "id", "community", "approver", "actor", "provider", "capability", "arguments_digest",
  "idempotency_key", "run", "tool_call_id", "time", "expires"].sort();
const LONGEST_LIFE_MS = 25 * 60 * 60 * 1000;
const CLOCK_MS = 10 * 60 * 1000;

/** The page refuses to sign; `rule` names what does not fit. */
export class Refused extends Error {
  constructor(rule) {
    super(`refused to sign: ${rule}`);
    this.name = "Refused";
    this.rule = rule;
  }
}

const equal = (one, other) => canonical(one) === canonical(other);

/** Numbered checks, the first that fails is the answer. `who`: `{key, community, node, now}`. */
const LADDER = [
  ["digest", (pending) => digest(pending.body) === pending.arguments_digest],
  ["form", ({ approval }) => approval && equal(Object.keys(approval).filter((n) => n !== "signature").sort(), FIELDS)],
  ["version", ({ approval }) => approval.v === 1],
  ["arguments", ({ approval, arguments_digest: shown }) => approval.arguments_digest === shown],
  ["capability", ({ approval, capability }) => approval.capability === capability],
  ["run", ({ approval, run }) => approval.run === run],
  ["call", ({ approval, tool_call_id: call }) => approval.tool_call_id === call],
  ["key", ({ approval, client_id: id, body }) => approval.idempotency_key === id && sameClientId(body, id)],
  ["approver", ({ approval }, who) => approval.approver === who.key],
  ["community", ({ approval }, who) => approval.community === who.community],
  ["actor", ({ approval }, who) => approval.actor === who.node],
  ["provider", ({ approval }) => approval.provider === "*" || String(approval.provider).startsWith("ed25519:")],
  ["time", ({ approval }, who) => fitsTime(approval, who.now)],
  ["expired", ({ approval }, who) => approval.expires > who.now],
];

function sameClientId(body, id) {
  const own = body?.input?.client_id;
  return own === undefined || own === id;
}

function fitsTime({ time, expires }, now) {
  const whole = Number.isSafeInteger(time) && Number.isSafeInteger(expires);
  return whole && time < now + CLOCK_MS && expires > time && expires - time < LONGEST_LIFE_MS;
}

/**
 * Throws `Refused` unless `pending.approval` approves exactly `pending.body` and nothing else. A call that takes no
 * approval, such as a question to another home's tool, has null there: nothing is signed, and its digest has to fit.
 */
export function check(pending, who) {
  const ladder = isUnsigned(pending) ? LADDER.slice(0, 1) : LADDER;
  for (const [rule, holds] of ladder) if (!fits(holds, pending, who)) throw new Refused(rule);
}

/** Only tools whose contracts providers define are asked about without an effect. */
const isUnsigned = ({ approval, approval_problem: problem, capability }) =>
  approval === null && !problem && String(capability).startsWith("experimental.");

/** Something so odd that it cannot be looked at does not fit either. */
function fits(holds, pending, who) {
  try {
    return holds(pending, who);
  } catch (error) {
    if (error instanceof TypeError) return false;
    throw error;
  }
}

/** Whether what waits is what was shown: the same call with the same body. */
export function checkShown(pending, shown) {
  for (const name of ["confirmation_id", "run", "tool_call_id", "capability", "arguments_digest"]) {
    if (pending[name] !== shown[name]) throw new Refused(name);
  }
}

/** Every argument that the person wrote must stand in what is sent, unchanged. */
export function checkEdited(pending, wanted) {
  const sent = { ...pending.body?.params, ...pending.body?.input };
  for (const [name, value] of Object.entries(wanted)) {
    if (!Object.hasOwn(sent, name) || !equal(sent[name], value)) throw new Refused(`edited ${name}`);
  }
}

/** The approval in `pending`, signed by `key` after all checks; undefined where the call takes none. */
export async function approve(pending, key, who) {
  check(pending, { ...who, key: key.id });
  if (isUnsigned(pending)) return undefined;
  const { signature: _, ...approval } = pending.approval;
  return { ...approval, signature: await signature(key, "approval", approval) };
}
