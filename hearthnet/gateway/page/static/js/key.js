// The page's own Ed25519 key. It cannot be taken out of the browser, by this page neither.

import * as storage from "./storage.js";
import { keyId } from "./lib/signing.js";

const NAME = "own";

/** The key of this browser, made where there is none; throws where the browser cannot make one. */
export async function ownKey() {
  return (await knownKey()) ?? made();
}

/** The key of this browser, or null. */
export async function knownKey() {
  const found = await storage.find("keys", NAME);
  return found ? usable(found) : null;
}

/** Forgets the key of this browser, which was removed; the next one is made anew. */
export const forgetKey = () => storage.drop("keys", NAME);

async function made() {
  const pair = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const raw = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const key = { id: NAME, node: keyId(raw), secret: pair.privateKey };
  await storage.keep("keys", key);
  return usable(key);
}

function usable({ node, secret }) {
  return { id: node, sign: async (bytes) => new Uint8Array(await crypto.subtle.sign("Ed25519", secret, bytes)) };
}
