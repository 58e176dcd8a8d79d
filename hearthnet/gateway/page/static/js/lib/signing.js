// What the page's own key signs: approvals, calls and statements, each for its purpose and no other.

import { base64url, ulid, utf8 } from "./bytes.js";
import { canonical } from "./canonical.js";

const PREFIX = "ed25519:";

/** The bytes that are really signed: no signature made for one purpose can be shown for another. */
export function signingInput(purpose, text) {
  return Uint8Array.of(0xff, ...utf8(`HN1${purpose}`), 0, ...utf8(text));
}

/** The canonical text of a document without its signature. */
export function unsigned(document) {
  const { signature: _, ...members } = document;
  return canonical(members);
}

/** A signature over `document` for `purpose`, by `key`: `{publicKey, sign(bytes)}`. */
export async function signature(key, purpose, document) {
  return PREFIX + base64url(await key.sign(signingInput(purpose, unsigned(document))));
}

/** The consent of `key` to be a device, over what it was offered as this `kind` of device. */
export function deviceConsent(key, offer, kind) {
  return signature(key, "device consent", { ...offer, kind });
}

/** The objection of `key`, a device of the person of `me`, to a recovery of that person. */
export async function objection(key, { person, community }, recovery) {
  const said = { person: person.id, key: key.id, recovery, community_id: community };
  return { recovery, signature: await signature(key, "recovery objection", said) };
}

/** What opens the link with `code` of `node`, as `name`: signed, so that nobody opens it in the name of another key. */
export async function opening(key, code, node, name) {
  const said = { code, key: key.id, name };
  return { ...said, signature: await signature(key, "page key", { ...said, node }) };
}

/** The full id of a public key of 32 bytes. */
export const keyId = (bytes) => PREFIX + base64url(bytes);

const SIGNED = ["capability", "version", "request_id", "from", "community", "timestamp", "body"];

/** The envelope of a call, signed by `key`. `now` in milliseconds, as the gateway has it. */
export async function envelope(key, { capability, version, community, body, now }) {
  const call = {
    capability, version, community, body,
    request_id: ulid(now),
    from: key.id,
    timestamp: new Date(now).toISOString().replace(/\.\d+Z$/, "Z"),
  };
  const signed = Object.fromEntries(SIGNED.map((name) => [name, call[name]]));
  return { ...call, signature: await signature(key, "gateway call", signed) };
}
