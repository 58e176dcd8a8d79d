// Bytes as text and back, and what follows from a value: its digest, an id.

import { blake3 } from "./blake3.js";
import { canonical } from "./canonical.js";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** base64url without padding. */
export function base64url(bytes) {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** The short form of a node's id, as everywhere in HearthNet: 80 bits of its key. Text that is no id stays as it is. */
export function shortId(id) {
  let number = 0n;
  try {
    const key = atob(String(id).replace(/^ed25519:/, "").replaceAll("-", "+").replaceAll("_", "/"));
    for (let place = 0; place < 10; place += 1) number = (number << 8n) | BigInt(key.charCodeAt(place));
  } catch {
    return String(id);
  }
  let text = "";
  for (let place = 0; place < 16; place += 1, number >>= 5n) text = BASE32[Number(number & 31n)] + text;
  return `ed25519:${text.match(/.{4}/g).join("-")}`;
}

/** `blake3:` and 64 hex characters over the canonical JSON of `value`. */
export const digest = (value) => `blake3:${hex(blake3(utf8(canonical(value))))}`;

/** A new ULID: 48 bits of time in milliseconds, 80 of chance. */
export function ulid(now = Date.now(), chance = crypto.getRandomValues(new Uint8Array(10))) {
  let number = BigInt(now);
  for (const byte of chance) number = (number << 8n) | BigInt(byte);
  let text = "";
  for (let place = 0; place < 26; place += 1, number >>= 5n) text = CROCKFORD[Number(number & 31n)] + text;
  return text;
}
