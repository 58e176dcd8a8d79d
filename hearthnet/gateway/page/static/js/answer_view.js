// One question and its answer on the screen.

import { inWords } from "./api.js";
import { homeName } from "./app.js";
import { Card } from "./card.js";
import { button, el, fill, shown } from "./dom.js";
import { over, sources } from "./lib/answer.js";
import { Prose } from "./prose.js";
import { duration, text, textOr } from "./texts.js";

const STATES = new Set(["done", "waiting", "refused", "unknown", "nothing"]);

export class AnswerView {
  #segments = new Map();
  #cards = new Map();
  #frame = 0;
  #end = [];

  /** `act` is `{decide(record, call), resume(record), again(record)}`. */
  constructor(record, act) {
    this.record = record;
    this.act = act;
    this.said = el("div", { class: "said" });
    this.state = el("p", { class: "state" });
    this.after = el("div", { class: "after" });
    this.answer = el("article", { class: "answer", "aria-label": text("ask.answer"), "data-answer": record.id },
      this.said, this.state, this.after);
    this.root = el("div", { class: "turn" },
      el("article", { class: "question", "aria-label": text("ask.you") }, el("p", {}, record.question)), this.answer);
    this.draw();
  }

  /** Draws once a frame of the screen, however many frames of the stream come meanwhile. */
  later() {
    this.#frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { answer } = this.record;
    const parts = [];
    const last = over(answer) ? null : answer.segments.at(-1);
    for (const segment of answer.segments) {
      parts.push(this.#text(segment, segment !== last));
      for (const id of segment.calls) parts.push(this.#card(answer.calls.get(id)));
    }
    if (!same(this.said.children, parts)) this.said.replaceChildren(...parts);
    this.#state(answer);
    this.answer.dataset.state = answer.state;
    this.answer.setAttribute("aria-busy", String(!over(answer)));
  }

  #text({ iteration, text: said }, complete) {
    const key = String(iteration);
    if (!this.#segments.has(key)) this.#segments.set(key, new Prose());
    this.#segments.get(key).update(said, complete);
    return this.#segments.get(key).root;
  }

  #card(call) {
    const known = this.#cards.get(call.id);
    if (known) known.update(call);
    else this.#cards.set(call.id, new Card(call, (asked) => this.act.decide(this.record, asked)));
    return this.#cards.get(call.id).root;
  }

  #state(answer) {
    const words = this.#standing(answer);
    if (this.state.textContent !== words) this.state.textContent = words;
    this.state.hidden = !words;
    this.state.classList.toggle("working", !over(answer));
    const end = over(answer) ? [answer.state, answer.happened, answer.done, answer.error] : [];
    if (same(end, this.#end)) return;
    this.#end = end;
    fill(this.after, end.length ? this.#ending(answer) : []);
  }

  #standing(answer) {
    if (this.record.link) return text(`state.${this.record.link}`);
    if (answer.state === "running" && answer.progress) return text("state.reading", answer.progress);
    if (answer.state === "done") return textOr(`stop.${answer.done?.stop_reason}`, "");
    if (answer.state === "error") return broken(answer.error ?? {});
    return text(`state.${answer.state}`);
  }

  #ending(answer) {
    const found = sources(answer);
    return [
      happened(answer),
      found.length && el("section", { class: "sources", "aria-label": text("ask.sources") },
        el("h4", {}, text("ask.sources")), el("ol", {}, found.map(source))),
      ...answer.notices.map((notice) => el("p", { class: "hint" }, shown(notice.text ?? ""))),
      answer.done && el("p", { class: "hint" }, meta(answer.done)),
      this.#further(answer),
    ];
  }

  /** The way on from an answer that is not complete: the run goes on, or there is none and the question is asked anew. */
  #further(answer) {
    if (answer.state === "done") return null;
    if (answer.run && !answer.error?.gone) return button("ask.goes_on", () => this.act.resume(this.record), { class: "quiet" });
    if (answer.state !== "error" || !this.record.use) return null;
    return button("ask.again", () => this.act.again(this.record), { class: "quiet" });
  }
}

/** What happened, by signed records: no word of the model is in it. Where no list came, nobody here knows. */
function happened({ happened: list, error }) {
  const effects = Array.isArray(list) && list.length ? list : [{ state: error || !list ? "unknown" : "nothing" }];
  return el("section", { class: "happened", "aria-label": text("happened.title") },
    el("h4", {}, text("happened.title")), el("ul", {}, effects.map(effect)));
}

function effect({ state, capability, name, home, entry }) {
  const known = STATES.has(state) ? state : "unknown";
  const about = capability || name;
  return el("li", { "data-happened": known }, el("b", {}, text(`happened.${known}`)), about && [" ", shown(about)],
    home && el("span", { class: "hint" }, " ", shown(homeName(home))),
    entry && el("span", { class: "hint" }, " ", el("code", {}, shown(entry))));
}

function broken(error) {
  if (error.error === "lost" || (error.gone && error.error === "not_found")) return text("state.lost");
  return inWords(error);
}

const same = (nodes, parts) => nodes.length === parts.length && parts.every((part, place) => nodes[place] === part);

function source({ title, heading, date, sources: named }) {
  const more = [heading, date].filter(Boolean).join(" · ");
  return el("li", {}, shown(title || "—"), more && el("span", { class: "hint" }, " ", shown(more)),
    (named ?? []).map((one) => el("div", { class: "hint" }, shown(one))));
}

const meta = (done) => [done.model, done.ms ? duration(done.ms) : ""].filter(Boolean).join(" · ");
