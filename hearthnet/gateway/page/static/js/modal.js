// A dialog: the focus goes in, stays in, and comes back to where it was.

import { el } from "./dom.js";

const FOCUSABLE = "button, input, select, textarea, summary, a[href], [tabindex='0']";

/** Shows `content` until `close(value)`, which Escape does with null; gives the value. */
export function modal(label, build) {
  const before = document.activeElement;
  return new Promise((resolve) => {
    const dialog = el("dialog", { "aria-labelledby": "dialog-title", class: "sheet" });
    const close = (value) => {
      dialog.close();
      dialog.remove();
      before?.isConnected ? before.focus() : document.getElementById("main").focus();
      resolve(value);
    };
    const title = el("h2", { id: "dialog-title", tabindex: "-1" }, label);
    const body = el("div", { class: "sheet-body" });
    dialog.append(title, body);
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(null);
    });
    dialog.addEventListener("keydown", (event) => stayIn(dialog, event));
    document.body.append(dialog);
    build({ dialog, title, body, close });
    dialog.showModal();
    title.focus();
  });
}

function stayIn(dialog, event) {
  if (event.key !== "Tab") return;
  const all = [...dialog.querySelectorAll(FOCUSABLE)].filter((one) => !one.disabled && one.getClientRects().length);
  const [first, last] = [all[0], all.at(-1)];
  const at = document.activeElement;
  if (event.shiftKey ? at === first || !all.includes(at) : at === last) {
    event.preventDefault();
    (event.shiftKey ? last : first)?.focus();
  }
}
