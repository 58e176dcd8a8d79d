// Signing in with the one-time link: its code, and the public half of a key that is made here.

import { ApiError, inWords, post } from "./api.js";
import { announce, el, labelled } from "./dom.js";
import { ownKey } from "./key.js";
import { text } from "./texts.js";

const CODE = /(?:^|[#&?])code=([A-Za-z0-9_-]+)/;

/** The code in the address, which forgets it at once; empty where there is none. */
export function codeFromAddress() {
  const [, code = ""] = CODE.exec(location.hash) ?? [];
  if (code) history.replaceState(null, "", location.pathname);
  return code;
}

/** Trades `code` for a session; who we are then. */
export async function signIn(code) {
  const key = await ownKey().catch(() => {
    throw new ApiError("no_key", text("sign_in.no_key"));
  });
  const me = await post("/v1/session", { code, key: key.id, name: browserName() });
  announce(text("say.signed_in"));
  return me;
}

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
