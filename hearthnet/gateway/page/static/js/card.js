// A tool call as a card: what is asked, how it stands, what came of it.

import { button, el, jsonView, parts, shown, small } from "./dom.js";
import { plain } from "./lib/visible.js";
import { duration, text, textOr } from "./texts.js";

/** Characters; the dialog about a call shows all of its arguments. */
const MOST_SHOWN = 16384;

export class Card {
  #parts;
  #drawn = {};

  /** `decide(call)` opens the question about it. */
  constructor(call, decide) {
    this.#parts = {
      status: el("span", { class: "chip" }), time: el("span", { class: "time" }), stage: el("p", { class: "stage" }),
      args: el("div", { class: "json-box" }), result: el("div", { class: "json-box" }), cut: el("p", { class: "hint" }),
      bar: el("progress", { hidden: true }),
    };
    const { status, time, stage, bar } = this.#parts;
    this.#parts.resultBox = fold("call.result", this.#parts.result, this.#parts.cut);
    this.#parts.decide = button("call.decide", () => decide(this.call), { class: "primary", "data-decide": call.id });
    this.call = call;
    this.root = el("section", { class: "card", "aria-label": text("call.label", { name: call.name }), "data-call": call.id },
      el("header", {}, el("h4", {}, shown(call.name)), status, time),
      stage, bar, this.#parts.decide, fold("call.arguments", this.#parts.args), this.#parts.resultBox);
    this.update(call);
  }

  update(call) {
    this.call = call;
    this.#status(call);
    this.#progress(call);
    this.#once("args", call.arguments, (value) => {
      this.#parts.args.replaceChildren(small(value) ? jsonView(value ?? {}) : beginning(JSON.stringify(value)));
    });
    this.#once("content", call.content, (value) => this.#parts.result.replaceChildren(resultView(value)));
    this.#parts.resultBox.hidden = call.content === undefined;
    this.#parts.cut.textContent = call.truncated ? text("call.cut") : "";
    this.#parts.decide.hidden = !call.pending;
  }

  #status({ status, ms }) {
    const { status: chip, time } = this.#parts;
    chip.textContent = textOr(`status.${status}`, status);
    this.root.dataset.status = status;
    time.textContent = ms === undefined || ms === null ? "" : duration(ms);
  }

  #progress({ progress, status }) {
    const { stage, bar } = this.#parts;
    const { current, total } = progress ?? {};
    stage.textContent = progress ? text("call.stage", { stage: progress.stage ?? "", current, total }) : "";
    bar.hidden = !progress || status !== "running";
    bar.setAttribute("aria-label", text("status.running"));
    if (total > 0) [bar.max, bar.value] = [total, current];
  }

  #once(name, value, draw) {
    if (this.#drawn[name] === value && name in this.#drawn) return;
    this.#drawn[name] = value;
    draw(value);
  }
}

function fold(key, ...children) {
  return el("details", {}, el("summary", {}, text(key)), ...children);
}

function resultView(value) {
  if (!small(value)) return beginning(typeof value === "string" ? value : JSON.stringify(value));
  return typeof value === "string" ? el("div", { class: "plain" }, shown(value)) : jsonView(value ?? null);
}

const beginning = (whole) => parts(plain(whole.slice(0, MOST_SHOWN)) + (whole.length > MOST_SHOWN ? " …" : ""));
