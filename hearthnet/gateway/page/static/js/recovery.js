// A recovery of this page's person by helpers: that it has begun, and the objection to it.

import { get, inWords, post } from "./api.js";
import { app, homeName } from "./app.js";
import { announce, button, el, fill, shown } from "./dom.js";
import { objection } from "./lib/signing.js";
import { modal } from "./modal.js";
import { moment, text } from "./texts.js";

const AGAIN_MS = 60_000;

/** In `box`, above every section. */
export class RecoveryNotice {
  constructor(box) {
    this.box = box;
    this.said = new Set();
  }

  /** Shows what has begun, now and as long as the page is open; nothing to a page without a person. */
  begin() {
    if (!app.me.person) return;
    this.timer = setInterval(() => this.look(), AGAIN_MS);
    this.draw();
  }

  end() {
    clearInterval(this.timer);
    this.timer = null;
    this.box.replaceChildren();
  }

  /** Asks the gateway once more; one that is away is asked again later. */
  async look() {
    if (!this.timer || document.hidden) return;
    const { person } = await get("/v1/me").catch(() => ({}));
    if (!person || JSON.stringify(person.recoveries) === JSON.stringify(app.me.person.recoveries)) return;
    app.me.person.recoveries = person.recoveries;
    this.draw();
  }

  draw() {
    const { recoveries = [] } = app.me.person ?? {};
    fill(this.box, recoveries.map((one) => this.#card(one)));
    for (const { recovery } of recoveries) {
      if (!this.said.has(recovery)) announce(text("recovery.title"));
      this.said.add(recovery);
    }
  }

  #card(one) {
    const values = { begun: moment(Date.parse(one.begun_at)), until: moment(one.not_before) };
    const error = el("p", { class: "error", role: "alert" });
    return el("section", { class: "column card recovery", "aria-label": text("recovery.title"), "data-recovery": one.recovery },
      el("h2", {}, text("recovery.title")),
      el("p", {}, text("recovery.about", values), " ", shown(homeName(one.begun_by))),
      one.objected.length ? el("p", { class: "stopped" }, text("recovery.stopped")) : null,
      one.objected.includes(app.me.key) ? null : button("recovery.object", () => this.#object(one, error), { class: "danger" }),
      error);
  }

  async #object({ recovery }, error) {
    error.textContent = "";
    if ((await modal(text("recovery.sure"), sure)) !== "object") return;
    try {
      app.me = await post("/v1/objection", await objection(app.key, app.me, recovery));
    } catch (refused) {
      error.textContent = inWords(refused);
      return;
    }
    this.draw();
    announce(text("recovery.stopped"));
  }
}

function sure({ body, close }) {
  body.append(el("p", {}, text("recovery.sure.about")),
    el("div", { class: "buttons choices" },
      button("recovery.object", () => close("object"), { class: "danger", "data-choice": "object" }),
      button("recovery.back", () => close(null), { class: "quiet", "data-choice": "back" })));
}
