// Runs functions of the page's library for the tests: JSON [[name, ...arguments], ...] in, [{is} or {threw, rule}] out.

import { readFileSync } from "node:fs";
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto;
const lib = new URL("../../../hearthnet/gateway/page/static/js/", import.meta.url);
const load = (name) => import(new URL(name, lib));

const { canonical } = await load("lib/canonical.js");
const { blake3 } = await load("lib/blake3.js");
const { base64url, digest, hex, shortId, ulid } = await load("lib/bytes.js");
const { signature, unsigned, envelope, objection, opening } = await load("lib/signing.js");
const { check, checkEdited, checkShown, approve } = await load("lib/approval.js");
const { exactJson, marked, pieces, plain } = await load("lib/visible.js");
const { HIDDEN } = await load("lib/hidden.js");
const { Cursor } = await load("lib/cursor.js");
const { apply, blank, sources, waiting, words } = await load("lib/answer.js");
const { argumentsOf, fieldsOf } = await load("lib/fields.js");
const { TEXTS } = await load("texts.js");

const PKCS8 = "302e020100300506032b657004220420";

/** A key from a seed; Ed25519 signs the same bytes in the same way each time. */
async function keyOf(seedHex, id) {
  const key = await crypto.subtle.importKey("pkcs8", Buffer.from(PKCS8 + seedHex, "hex"), "Ed25519", false, ["sign"]);
  return { id, sign: async (bytes) => new Uint8Array(await crypto.subtle.sign("Ed25519", key, bytes)) };
}

function double(bits) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, BigInt(`0x${bits}`));
  return view.getFloat64(0);
}

function run(frames) {
  const answer = frames.reduce(apply, blank());
  return { ...answer, calls: [...answer.calls.values()], words: words(answer), sources: sources(answer),
    waiting: waiting(answer).map((one) => one.id) };
}

function read(frames, from = {}) {
  const cursor = new Cursor(from);
  const seen = frames.map((frame) => cursor.take(frame)).filter((frame) => frame && frame.event !== "opened");
  return { seen, due: cursor.due(), kept: cursor.kept, resume: cursor.resume, ended: cursor.ended };
}

const FUNCTIONS = {
  canonical,
  number: (bits) => canonical(double(bits)),
  parsed: (text) => canonical(JSON.parse(text)),
  order: (text) => Object.keys(JSON.parse(canonical(JSON.parse(text)))),
  odd: (kind) => canonical({ undefined: undefined, nan: NaN, big: 1n, half: "\ud800", deep: deep(5000) }[kind]),
  blake3: (hexed) => hex(blake3(Buffer.from(hexed, "hex"))),
  pattern: (length) => hex(blake3(Uint8Array.from({ length }, (_, place) => place % 251))),
  shortId, digest, base64url: (hexed) => base64url(Buffer.from(hexed, "hex")),
  ulid: (now) => ulid(now),
  unsigned,
  sign: async (seed, id, purpose, document) => signature(await keyOf(seed, id), purpose, document),
  objection: async (seed, id, ...about) => objection(await keyOf(seed, id), ...about),
  opening: async (seed, id, ...link) => opening(await keyOf(seed, id), ...link),
  envelope: async (seed, id, call) => envelope(await keyOf(seed, id), call),
  check: (pending, who) => check(pending, who) ?? "fits",
  checkEdited: (pending, wanted) => checkEdited(pending, wanted) ?? "fits",
  checkShown: (pending, shown) => checkShown(pending, shown) ?? "fits",
  approve: async (seed, id, pending, who) => approve(pending, await keyOf(seed, id), who),
  exactJson, pieces, plain, run, read, hidden: () => HIDDEN, marked: (text) => marked([...text]),
  cut: (frames) => frames.map((_, place) => cutAt(frames, place)),
  fieldsOf,
  form: (schema, values, typed) => argumentsOf(fieldsOf(schema, values), typed),
  round: (schema, values) => {
    const fields = fieldsOf(schema, values);
    return argumentsOf(fields, Object.fromEntries(fields.map((one) => [one.name, one.text])));
  },
  texts: () => TEXTS,
};

const deep = (depth) => { let value = 1; while (depth--) value = [value]; return value; };

/** The connection breaks after `place` frames; the gateway then sends what came after, and some of before. */
function cutAt(frames, place) {
  const cursor = new Cursor();
  const seen = frames.slice(0, place).map((frame) => cursor.take(frame)).filter(Boolean);
  const { after } = JSON.parse(JSON.stringify(new Cursor(cursor.kept).resume));
  const again = frames.filter((frame) => frame.seq > Math.max(0, after - 3));
  const rest = new Cursor(cursor.kept);
  rest.take({ event: "opened", seq: 0, data: { stream: cursor.kept.stream, run: cursor.kept.run } });
  return [...seen, ...again.map((frame) => rest.take(frame)).filter(Boolean)].filter((f) => f.event !== "opened");
}

const asked = JSON.parse(readFileSync(0, "utf8"));
const answers = [];
for (const [name, ...args] of asked) {
  try {
    answers.push({ is: await FUNCTIONS[name](...args) });
  } catch (error) {
    answers.push({ threw: `${error.name}: ${error.message}`, rule: error.rule });
  }
}
process.stdout.write(JSON.stringify(answers));
