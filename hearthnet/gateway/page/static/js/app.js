// What the parts of the page share: who we are, the key, calls, and what is there to be used.

import { get, post, ApiError } from "./api.js";
import { knownKey } from "./key.js";
import { becomeDevice } from "./sign_in.js";
import { shortId } from "./lib/bytes.js";
import { envelope } from "./lib/signing.js";

export const app = { me: null, key: null, drift: 0, catalog: null };

/** Who the gateway says we are; throws `ApiError` where it does not know us. */
export async function enter(me = null) {
  app.me = me ?? (await get("/v1/me"));
  app.key = await knownKey();
  app.drift = app.me.time - Date.now();
  if (!app.key || app.me.key !== app.key.id) throw new ApiError("unauthorized", "this browser has another key");
  app.me = await becomeDevice(app.me, app.key);
  return app.me;
}

/** Milliseconds since the epoch, as the node has it. */
export const now = () => Date.now() + app.drift;

/** Who an approval has to name. */
export const who = () => ({ key: app.key.id, community: app.me.community, node: app.me.node, now: now() });

/** A guest by its name; the owner's page is the member itself. */
export const named = (guest) => (guest && guest !== "owner" ? guest : "");

export const isOwner = () => [app.me.node, `${app.me.node}/owner`].includes(app.me.principal);

/** Whether a post, or a reservation with `of` "by", is of this page's person. */
export const isOwn = (one, of = "author") => one[of] === app.me.node && named(one.guest) === named(app.me.principal.split("/")[1]);

/** A signed call, ready to be sent. */
export function signedCall(capability, version, body) {
  return envelope(app.key, { capability, version, community: app.me.community, body, now: now() });
}

/** One call of the mesh: the answer with its provider. Throws `ApiError`. */
export async function answered(name, input = {}, params = {}) {
  const [capability, version = "1.0"] = name.split("@");
  return post("/v1/call", await signedCall(capability, version, { params, input }));
}

/** One call of the mesh; its output. Throws `ApiError`. */
export async function call(name, input = {}, params = {}) {
  const answer = await answered(name, input, params);
  return answer.output ?? answer.body?.output ?? answer;
}

/** How a node is called here. */
export function nodeName(id) {
  const known = app.catalog?.nodes?.find((one) => one.node_id === id);
  return known?.display_name ?? shortId(id);
}

/** A home's name, which it gave itself, and its short id, which it cannot choose. */
export function homeName(id) {
  const name = nodeName(id);
  return name.endsWith(shortId(id)) || name.endsWith(`(${shortId(id)})`) ? name : `${name} (${shortId(id)})`;
}
