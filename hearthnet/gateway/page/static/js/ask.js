// Asking: conversations on the side, the answers, and the question below.

import { app } from "./app.js";
import { AnswerView } from "./answer_view.js";
import { decideIn } from "./decisions.js";
import { announce, button, el, fill, labelled, select } from "./dom.js";
import { setting } from "./storage.js";
import { over, waiting, words } from "./lib/answer.js";
import { text, textOr } from "./texts.js";

const NEAR_THE_END = 120;
const MOST_ANNOUNCED = 400;

export class AskView {
  #views = new Map();
  #current = setting.get("conversation");
  #asking = false;

  constructor(conversations, catalog) {
    Object.assign(this, { conversations, catalog });
    this.use = { model: setting.get("model"), corpus: setting.get("corpus"), tools: JSON.parse(setting.get("tools", "[]")) };
    conversations.addEventListener("list", () => this.#list());
    conversations.addEventListener("change", ({ detail }) => { if (detail === this.#current) this.#draw(); });
    conversations.addEventListener("answer", ({ detail }) => this.#heard(detail));
    catalog.addEventListener("change", () => this.#options());
  }

  show(main) {
    this.names = el("ul", { class: "names" });
    this.log = el("section", { class: "log", "aria-label": text("ask.log"), tabindex: "0" });
    this.options = el("div", { class: "options" });
    main.append(el("div", { class: "ask" },
      el("nav", { class: "side", "aria-label": text("ask.conversations") },
        button("ask.new", () => this.#switch(""), { class: "wide" }), this.names),
      el("div", { class: "talk" }, el("h1", { class: "hidden" }, text("ask.title")), this.log, this.#composer())));
    this.#list();
    this.#options();
    this.#draw();
  }

  // --- the conversations

  #list() {
    if (!this.names?.isConnected) return;
    fill(this.names, this.conversations.list.map(({ id, title }) => el("li", {},
      el("button", {
        type: "button", class: "name", id: `c-${id}`, "aria-current": id === this.#current ? "true" : null,
        on: { click: () => this.#switch(id) },
      }, title || text("ask.untitled")),
      el("button", {
        type: "button", class: "quiet small", "aria-label": `${text("ask.delete")}: ${title}`, title: text("ask.delete"),
        on: { click: () => this.#remove(id) },
      }, "×"))));
  }

  async #remove(id) {
    await this.conversations.remove(id);
    this.#switch(id === this.#current ? "" : this.#current);
    document.getElementById("question")?.focus();
  }

  #switch(id) {
    this.#current = id;
    setting.set("conversation", id);
    this.#list();
    this.#draw();
    document.getElementById("question")?.focus();
  }

  /** Shows the conversation in which `record` stands. */
  open(record) {
    this.#current = record.conversation;
    setting.set("conversation", record.conversation);
  }

  // --- the answers

  #draw() {
    if (!this.log?.isConnected) return;
    const records = this.conversations.of(this.#current);
    this.#views = new Map(records.map((record) => [record.id, this.#view(record)]));
    fill(this.log, records.length ? [...this.#views.values()].map((view) => view.root) : empty());
    this.#buttons();
    this.log.scrollTop = this.log.scrollHeight;
  }

  #view(record) {
    return new AnswerView(record, {
      decide: (asked, call) => this.#decide(asked, call),
      resume: (asked) => this.conversations.resume(asked.answer.run, asked.question),
      again: (asked) => this.conversations.askAgain(asked),
    });
  }

  #heard({ record, frame }) {
    this.#announce(record, frame);
    if (record.conversation !== this.#current || !this.log?.isConnected) return;
    const close = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR_THE_END;
    const view = this.#views.get(record.id);
    if (!view) return;
    frame?.event === "token" ? view.later() : view.draw();
    if (close) requestAnimationFrame(() => { this.log.scrollTop = this.log.scrollHeight; });
    this.#buttons();
    if (frame?.event === "confirmation_required") this.#next(record);
  }

  #announce({ answer, question }, frame) {
    if (frame?.event === "done") announce(text("say.answered", { words: (words(answer) || question).slice(0, MOST_ANNOUNCED) }));
    if (frame?.event === "confirmation_required") announce(text("say.waits", { name: frame.data.name }));
    if (frame?.event === "tool_result") {
      announce(text("say.call", { name: frame.data.name, status: textOr(`status.${frame.data.status}`, frame.data.status) }));
    }
  }

  /** One question after the other, until one is put off. */
  async #next(record) {
    const [call] = waiting(record.answer);
    if (call && !this.#asking && !document.querySelector("dialog")) await this.#decide(record, call);
  }

  async #decide(record, call) {
    this.#asking = true;
    const said = await decideIn(this.conversations, this.catalog, record, call).finally(() => { this.#asking = false; });
    this.#views.get(record.id)?.draw();
    if (said) await this.#next(record);
  }

  // --- the question

  #composer() {
    const area = el("textarea", { id: "question", rows: 2, placeholder: text("ask.placeholder"), maxlength: 20000 });
    this.area = area;
    this.sendButton = el("button", { type: "submit", class: "primary", id: "send" }, text("ask.send"));
    this.stopButton = button("ask.stop", () => this.#stop(), { id: "stop", hidden: true });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
    area.addEventListener("input", () => this.#ready());
    return el("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); this.#send(); } } },
      el("label", { for: "question", class: "hidden" }, text("ask.question")),
      area, this.options, el("div", { class: "buttons" }, this.stopButton, this.sendButton));
  }

  #options() {
    if (!this.options?.isConnected) return;
    const { models, corpora } = this.catalog;
    const keep = (name) => (value) => { this.use[name] = value; setting.set(name, value); };
    const choice = (id, none, names) =>
      Object.assign(select([["", none], ...with_(names, this.use[id])], this.use[id], keep(id)), { id });
    const model = choice("model", text("ask.model.any"), models);
    const corpus = choice("corpus", text("ask.corpus.none"), corpora);
    const open = this.options.querySelector("details")?.open;
    fill(this.options, labelled(text("ask.model"), model), labelled(text("ask.corpus"), corpus), this.#tools(open));
  }

  #tools(open) {
    const usable = this.catalog.usable(this.use.tools);
    const summary = el("summary", { id: "tools" });
    const count = () => { summary.textContent = text("ask.tools.count", { count: this.#chosen().length }); };
    const boxes = usable.map((tool) => el("label", { class: "tick" },
      el("input", {
        type: "checkbox", id: `tool-${tool.name}`, value: tool.name, checked: this.use.tools.includes(tool.name),
        on: { change: ({ target }) => { this.#choose(tool.name, target.checked); count(); } },
      }),
      el("span", {}, el("b", {}, tool.name), tool.side_effects && el("em", {}, ` – ${text("ask.tools.effect")}`),
        el("span", { class: "hint" }, tool.description))));
    count();
    return el("details", { class: "tools", open }, summary,
      el("fieldset", {}, el("legend", { class: "hidden" }, text("ask.tools")), boxes.length ? boxes : text("ask.tools.none")));
  }

  #choose(name, wanted) {
    this.use.tools = [...this.use.tools.filter((one) => one !== name), ...(wanted ? [name] : [])];
    setting.set("tools", JSON.stringify(this.use.tools));
  }

  #chosen() {
    const there = new Set(this.catalog.usable(this.use.tools).map((tool) => tool.name));
    return this.use.tools.filter((name) => there.has(name));
  }

  /** Whoever types will ask: the model may read what comes before. */
  #ready() {
    if (!this.area.value.trim() || this.#under() || !this.catalog.models.length) return;
    this.conversations.ready(this.#current, { ...this.use, tools: this.#chosen() });
  }

  async #send() {
    const question = this.area.value.trim();
    if (!question || this.#under()) return;
    this.area.value = "";
    if (!this.#current) this.#current = (await this.conversations.begin(question)).id;
    setting.set("conversation", this.#current);
    await this.conversations.ask(this.#current, question, { ...this.use, tools: this.#chosen() });
    announce(text("say.asked"));
    this.#list();
    this.#draw();
  }

  #under() {
    const own = (record) => record.link !== "elsewhere"; // what another page hears does not hold this one up
    return this.conversations.of(this.#current).find((record) => !over(record.answer) && own(record));
  }

  #stop() {
    const record = this.#under();
    if (record) this.conversations.stop(record);
  }

  #buttons() {
    const under = Boolean(this.#under());
    if (under === this.sendButton.disabled) return;
    this.sendButton.disabled = under;
    this.stopButton.hidden = !under;
  }
}

const with_ = (names, chosen) => [...new Set([...names, ...(chosen ? [chosen] : [])])].map((name) => [name, name]);

function empty() {
  return el("div", { class: "empty" }, el("h2", {}, text("ask.empty")), el("p", {}, text("ask.empty.more")));
}
