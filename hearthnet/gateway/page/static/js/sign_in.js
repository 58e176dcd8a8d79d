// Signing in with the one-time link: its code, and the public half of a key that is made here.

import { ApiError, inWords, post } from "./api.js";
import { announce, el, labelled } from "./dom.js";
import { forgetKey, ownKey } from "./key.js";
import { deviceConsent, opening } from "./lib/signing.js";
import { text } from "./texts.js";

const CODE_LENGTH = 32;
const CODE = /(?:^|[#&?])code=([A-Za-z0-9_-]+)/;

/** The code in the address, with the node, which the address forgets at once; empty where there is none. */
export function codeFromAddress() {
  const [, code = ""] = CODE.exec(location.hash) ?? [];
  if (code) history.replaceState(null, "", location.pathname);
  return code;
}

/**
 * Trades `code` for a session; who we are then. A removed key never comes back, and one that is another person's
 * device signs for nobody else, so another one is made.
 */
export async function signIn(code) {
  const me = await opened(code).catch(async (error) => {
    if (error.code !== "revoked" && error.data?.details?.rule !== "another_person") throw error;
    await forgetKey();
    return opened(code);
  });
  announce(text("say.signed_in"));
  return me;
}

async function opened(code) {
  const key = await ownKey().catch(() => {
    throw new ApiError("no_key", text("sign_in.no_key"));
  });
  // The link names its node: who answers here could name another one, and use the signature there.
  return post("/v1/session", await opening(key, code.slice(0, CODE_LENGTH), `ed25519:${code.slice(CODE_LENGTH)}`, browserName()));
}

/** Makes this page a device of its person, where it is none yet; who we are then. It works without, and says so. */
export async function becomeDevice(me, key) {
  const { offer } = me.device ?? {};
  if (!offer) return me;
  try {
    if (offer.device !== key.id || offer.community_id !== me.community) throw new ApiError("bad_request", text("device.wrong"));
    const kind = isPhone() ? "phone" : "browser";
    return await post("/v1/device", { kind, signature: await deviceConsent(key, offer, kind) });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { ...me, device: { added: false, problem: inWords(error) } };
  }
}

const isPhone = () => /Android|iPhone|Mobile/.test(navigator.userAgent);

function browserName() {
  const [, name = "Browser"] = /(Firefox|Edg|Chrome|Safari)\//.exec(navigator.userAgent) ?? [];
  const [, system = ""] = /(Windows|Android|iPhone|iPad|Macintosh|Linux)/.exec(navigator.userAgent) ?? [];
  return `${name.replace("Edg", "Edge")} ${system}`.trim();
}

const wordsOf = (error) => {
  if (error.code === "no_key") return error.message;
  return error.code === "unauthorized" ? text("error.code_used") : inWords(error);
};

/** Asks for the link; `entered(me)` when it worked. `problem` is why we are here. */
export function showSignIn(main, entered, problem = null) {
  const error = el("p", { class: "error", role: "alert" }, problem ? wordsOf(problem) : "");
  const link = el("input", { type: "text", id: "link", autocomplete: "off", required: true });
  const go = el("button", { type: "submit", class: "primary" }, text("sign_in.go"));
  const send = async (event) => {
    event.preventDefault();
    error.textContent = "";
    go.disabled = true;
    try {
      entered(await signIn((CODE.exec(link.value.trim()) ?? [null, link.value.trim()])[1]));
    } catch (refused) {
      error.textContent = wordsOf(refused);
    } finally {
      go.disabled = false;
    }
  };
  main.append(el("div", { class: "column sign-in" }, el("h1", {}, text("sign_in.title")), el("p", { class: "lead" }, text("sign_in.how")),
    el("form", { on: { submit: send } }, labelled(text("sign_in.link"), link, text("sign_in.again")), error,
      el("div", { class: "buttons" }, go))));
}
