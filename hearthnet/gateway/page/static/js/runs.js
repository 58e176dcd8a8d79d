// What waits for a decision: also runs that were begun elsewhere, or before the node was started again.

import { inWords, post } from "./api.js";
import { decide } from "./decisions.js";
import { announce, button, el, fill, shown } from "./dom.js";
import { Topic } from "./link.js";
import { moment, text, textOr } from "./texts.js";

const DRIVEN_MS = 4000;

/** The runs of this person, by the topic `runs`; fires `change`. */
export class Runs extends EventTarget {
  all = new Map();

  constructor() {
    super();
    this.topic = new Topic("runs", (frame) => this.#hear(frame));
  }

  #hear({ event, data }) {
    if (event === "snapshot") this.all = new Map((data.runs ?? []).map((run) => [run.run, run]));
    else if (event === "gone") this.all.delete(data.run);
    else if (event === "appeared" || event === "changed") this.all.set(data.run, data);
    else return;
    this.dispatchEvent(new Event("change"));
  }

  /** Decided here, before the topic says so. */
  decided(run, call) {
    const known = this.all.get(run);
    if (known) known.pending = known.pending.filter((one) => one.tool_call_id !== call);
    this.dispatchEvent(new Event("change"));
  }

  /** Whether somebody drives this run, as is seen soon after the last decision about it. */
  async moves(run) {
    const { state = "ended", saved_at: before } = this.all.get(run) ?? {};
    if (["suspended", "ended"].includes(state)) return state === "ended";
    return new Promise((resolve) => {
      const done = (moved) => {
        clearTimeout(timer);
        this.removeEventListener("change", look);
        resolve(moved);
      };
      const look = () => { if (this.all.get(run)?.saved_at !== before) done(true); };
      const timer = setTimeout(() => done(false), DRIVEN_MS);
      this.addEventListener("change", look);
    });
  }

  /** Runs that have not ended, newest first; those that wait for a decision or for somebody to go on with them. */
  get open() {
    return [...this.all.values()].filter(({ state, pending }) => state !== "ended" && (pending.length || state === "suspended"))
      .sort((one, other) => other.saved_at - one.saved_at);
  }

  get count() {
    return [...this.all.values()].reduce((sum, run) => sum + (run.state === "ended" ? 0 : run.pending.length), 0);
  }
}

export class RunsView {
  /** `follow(run)` shows the answer of a run that goes on. */
  constructor(runs, conversations, catalog, follow) {
    Object.assign(this, { runs, conversations, catalog, follow });
    runs.addEventListener("change", () => this.#draw());
  }

  show(main) {
    this.list = el("ul", { class: "runs" });
    this.error = el("p", { class: "error", role: "alert" });
    main.append(el("div", { class: "column" }, el("h1", {}, text("runs.title")), el("p", { class: "lead" }, text("runs.about")),
      this.error, this.list));
    this.#draw();
  }

  #draw() {
    if (!this.list?.isConnected) return;
    const { open } = this.runs;
    fill(this.list, open.length ? open.map((run) => this.#run(run)) : el("li", { class: "none" }, text("runs.none")));
  }

  #run(run) {
    return el("li", { class: "card", "data-run": run.run },
      el("header", {}, el("h3", {}, shown(run.question || text("runs.unknown"))),
        el("span", { class: "time" }, text("runs.began", { when: moment(run.started_at) }))),
      // The node itself is the owner at the command line.
      !run.principal.includes("/") && el("p", { class: "hint" }, text("runs.terminal")),
      run.device ? this.#there(run) : this.#here(run));
  }

  /** It waits at another computer of the owner. */
  #there(run) {
    return [el("p", { class: "hint" }, text("runs.device", { name: run.device })),
      run.pending.map((pending) => el("div", { class: "row" }, shown(pending.name))),
      el("div", { class: "buttons" }, button("runs.take", () => this.#take(run), { class: "primary", id: `t-${run.run}` }))];
  }

  #here(run) {
    return [run.pending.map((pending) => el("div", { class: "row" }, el("span", { class: "chip" }, textOr("status.waiting", "")),
        shown(pending.name),
        button("call.decide", () => this.#decide(run, pending), { class: "primary", id: `d-${run.run}-${pending.tool_call_id}` }))),
      el("div", { class: "buttons" },
        button("runs.resume", () => this.#resume(run), { id: `r-${run.run}` }),
        button("runs.cancel", () => this.#cancel(run), { class: "quiet", id: `x-${run.run}` }))];
  }

  async #decide(run, pending) {
    const word = await decide(pending, this.catalog);
    if (!word) return;
    this.runs.decided(run.run, pending.tool_call_id);
    const record = this.conversations.byRun(run.run);
    const call = record?.answer.calls.get(pending.tool_call_id);
    if (call?.pending) Object.assign(call, { pending: null, status: word });
    if (!this.runs.all.get(run.run)?.pending.length) await this.#goOn(run, record);
  }

  /** Shows the answer where it stands in this window; a run that nobody drives goes on here. */
  async #goOn(run, record) {
    if (record && this.conversations.isLive(record)) this.follow(record);
    else if (!(await this.runs.moves(run.run))) await this.#resume(run);
  }

  async #resume(run) {
    this.follow(await this.conversations.resume(run.run, run.question || text("runs.unknown")));
  }

  async #cancel(run) {
    await this.#tell(async () => {
      await post(`/v1/runs/${run.run}/cancel`, {});
      this.runs.all.delete(run.run);
    });
  }

  /** What waits at another computer of the owner goes on here, where its questions are asked then. */
  async #take(run) {
    await this.#tell(async () => {
      this.runs.all.set(run.run, await post(`/v1/runs/${run.run}/take`, {}));
      await this.#resume(run);
    });
  }

  async #tell(work) {
    try {
      await work();
      this.#draw();
      if (this.list.isConnected) document.getElementById("main").focus();
    } catch (error) {
      this.error.textContent = inWords(error);
      announce(this.error.textContent);
    }
  }
}
