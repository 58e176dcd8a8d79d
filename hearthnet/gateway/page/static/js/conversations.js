// Conversations and their answers: kept in this browser and at the gateway, and the streams that write them.

import { get, post } from "./api.js";
import { app, signedCall } from "./app.js";
import * as storage from "./storage.js";
import { apply, blank, over, reopen, words } from "./lib/answer.js";
import { ulid } from "./lib/bytes.js";
import { fromShared, joined, toShared } from "./lib/shared.js";
import { Stream } from "./link.js";
import { Sharing } from "./sharing.js";

const SEARCH = "search_corpus";
const LONGEST_TITLE = 60;
const newestFirst = (one, other) => other.at - one.at;
const UNKEPT = new Set(["not_found", "expired", "schema_mismatch"]);
/** A little less than the day for which a run is kept that has called something. */
const KEPT_MS = 23 * 3600 * 1000;

/**
 * Fires `list` when conversations come or go, `answer` (detail: the record, the frame) when something was said,
 * `change` (detail: the conversation) when another page has changed one.
 */
export class Conversations extends EventTarget {
  list = [];
  answers = new Map();
  #live = new Map();
  #here = new Set();
  #ready = "";
  #sharing = new Sharing(this);

  /**
   * What was kept for this person; answers that were under way here go on. What is at the gateway comes then, unless
   * it is closed now (`isOpen`).
   */
  async load(isOpen) {
    const own = ({ of = app.me.principal }) => of === app.me.principal;
    this.list = (await storage.all("conversations")).filter(own).sort(newestFirst);
    const ids = new Set(this.list.map(({ id }) => id));
    const records = (await storage.all("answers")).filter(({ conversation }) => ids.has(conversation));
    records.sort((one, other) => one.at - other.at);
    this.answers = new Map(records.map((record) => [record.id, record]));
    for (const record of records) if (!over(record.answer) && record.link !== "elsewhere") this.#goOn(record);
    if (isOpen) this.#sharing.begin();
  }

  // --- what the gateway has

  known() {
    return this.list.map(({ id }) => id);
  }

  revision(id) {
    return this.list.find((one) => one.id === id)?.revision ?? "";
  }

  content(id) {
    const { title, at } = this.list.find((one) => one.id === id);
    return { title, at, content: toShared(this.of(id)) };
  }

  async saved(id, revision) {
    const conversation = this.list.find((one) => one.id === id);
    if (!conversation) return;
    Object.assign(conversation, { revision, of: app.me.principal });
    await storage.keep("conversations", conversation);
  }

  /** Takes over a conversation as another page left it; returns whether there is more in it here. */
  async take({ id, revision, title, at, content }) {
    const theirs = fromShared(id, content);
    const mine = this.of(id);
    const records = joined(mine, theirs, (record) => this.#here.has(record.id) || this.#live.has(record.id));
    for (const record of mine) this.answers.delete(record.id);
    for (const record of records) {
      if (!over(record.answer) && !this.#live.has(record.id)) record.link = "elsewhere";
      this.answers.set(record.id, record);
      await storage.keep("answers", record);
    }
    const conversation = { id, title, at, revision, of: app.me.principal };
    this.list = [conversation, ...this.list.filter((one) => one.id !== id)].sort(newestFirst);
    await storage.keep("conversations", conversation);
    this.dispatchEvent(new Event("list"));
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
    return records.some((record) => !theirs.includes(record));
  }

  /** It was deleted elsewhere. */
  async drop(id) {
    if (!this.list.some((one) => one.id === id)) return;
    await this.#forget(id);
    this.dispatchEvent(new CustomEvent("change", { detail: id }));
  }

  of(conversation) {
    return [...this.answers.values()].filter((record) => record.conversation === conversation);
  }

  byRun(run) {
    return [...this.answers.values()].find((record) => record.answer.run === run);
  }

  async begin(title) {
    const conversation = { id: ulid(), title: title.slice(0, LONGEST_TITLE), at: Date.now(), of: app.me.principal };
    this.list = [conversation, ...this.list];
    await storage.keep("conversations", conversation);
    this.dispatchEvent(new Event("list"));
    return conversation;
  }

  async remove(conversation) {
    const revision = this.revision(conversation);
    await this.#forget(conversation);
    await this.#sharing.removed(conversation, revision);
  }

  async #forget(conversation) {
    for (const record of this.of(conversation)) {
      this.stop(record);
      this.#live.get(record.id)?.end();
      this.answers.delete(record.id);
      await storage.drop("answers", record.id);
    }
    this.list = this.list.filter((one) => one.id !== conversation);
    await storage.drop("conversations", conversation);
    this.dispatchEvent(new Event("list"));
  }

  /** Asks; `use` is `{model, corpus, tools}`. */
  async ask(conversation, question, use) {
    const record = await this.#record(conversation, question, { use });
    this.#begin(record);
    return record;
  }

  /** Asks the question of `record` anew, in its place: nothing is kept of its answer that could be gone on with. */
  async askAgain(record, more = {}) {
    Object.assign(record, { answer: blank(), kept: {}, again: false, ...more });
    await this.#keep(record, {});
    this.#begin(record);
    this.#tell(record);
  }

  #begin(record) {
    const { conversation, question, use } = record;
    const all = this.of(conversation);
    const body = this.#body(all.slice(0, all.indexOf(record)), question, use);
    this.#here.add(record.id);
    this.#open(record, { open: async () => ({ type: "call", ...(await signedCall("llm.chat", "2.0", body)) }) });
  }

  /**
   * Has the model read what the next question will follow, while it is being typed: it says nothing yet, and answers
   * the sooner. Asked once for each beginning.
   */
  async ready(conversation, use) {
    const beginning = JSON.stringify([conversation, this.of(conversation).length, use]);
    if (beginning === this.#ready) return;
    this.#ready = beginning;
    const body = this.#body(this.of(conversation), "", use, { max_tokens: 0 });
    try {
      await post("/v1/call", await signedCall("llm.chat", "2.0", body));
    } catch (error) {
      console.info("no model was made ready:", error.message);
    }
  }

  /** The call of llm.chat that asks `question` after the answers `before`. */
  #body(before, question, { model, corpus, tools }, more = {}) {
    const messages = before.flatMap((record) => {
      const said = words(record.answer);
      return said ? [{ role: "user", content: record.question }, { role: "assistant", content: said }] : [];
    });
    const wanted = [...(corpus ? [{ use: SEARCH, params: { corpus } }] : []), ...tools];
    const input = {
      messages: [...messages, { role: "user", content: question }],
      ...(wanted.length ? { tools: wanted } : {}),
      ...(corpus ? { tool_choice: { name: SEARCH } } : {}),
      ...more,
    };
    return { params: model ? { model } : {}, input };
  }

  async #record(conversation, question, more = {}) {
    const record = { id: ulid(), conversation, question, at: Date.now(), answer: blank(), kept: {}, ...more };
    this.answers.set(record.id, record);
    await storage.keep("answers", record);
    this.#sharing.changed(conversation);
    return record;
  }

  /** A saved run goes on, in its own place or in a conversation of its own. */
  async resume(run, question) {
    let record = this.byRun(run);
    if (!record) {
      const conversation = await this.begin(question);
      record = await this.#record(conversation.id, question);
    }
    if (this.#live.has(record.id)) return record;
    reopen(record.answer);
    Object.assign(record.answer, { run });
    record.kept = { run };
    this.#here.add(record.id);
    this.#goOn(record);
    return record;
  }

  #goOn(record) {
    const { stream, run } = record.kept;
    if (stream || run) this.#open(record, { kept: record.kept });
    else this.#lost(record, {});
  }

  #open(record, how) {
    const stream = new Stream({
      ...how,
      hear: (frame) => this.#hear(record, frame),
      keep: (place) => this.#keep(record, place),
      state: (state) => this.#link(record, state),
      again: () => reopen(record.answer),
      over: () => this.#over(record),
      lost: (error, how) => this.#lost(record, error, how),
    });
    this.#live.set(record.id, stream);
    stream.connect();
  }

  #hear(record, frame) {
    record.link = "";
    apply(record.answer, frame);
    if (frame.event === "opened" || frame.event === "confirmation_required") {
      this.#keep(record);
      this.#sharing.changed(record.conversation);
    }
    this.#tell(record, frame);
  }

  async #keep(record, place = this.#live.get(record.id)?.kept) {
    if (!this.answers.has(record.id)) return;
    record.kept = place ?? record.kept;
    const { link: _, ...whole } = record;
    try {
      await storage.keep("answers", whole);
    } catch (error) {
      console.warn("this browser keeps nothing:", error.message);
    }
  }

  #link(record, state) {
    record.link = state;
    this.#tell(record);
  }

  #over(record) {
    record.link = "";
    this.#live.delete(record.id);
    this.#sharing.changed(record.conversation);
    this.#tell(record);
  }

  /** The stream cannot be had any more: what became of its run is all there is to know. */
  async #lost(record, error, { resumed = false } = {}) {
    this.#live.delete(record.id);
    record.link = "";
    if (error.error === "replaced") {
      this.#link(record, "elsewhere");
      return;
    }
    const run = record.answer.run && (await get(`/v1/runs/${record.answer.run}`).catch(() => null));
    const gone = resumed && UNKEPT.has(error.error);
    if (run?.state === "ended") this.#fromRun(record, run);
    else if (gone && this.#asksItself(record, error)) {
      await this.askAgain(record, { again: true });
      return;
    } else Object.assign(record.answer, { state: "error", error: error.error ? { ...error, gone } : { error: "lost", gone: true } });
    await this.#keep(record);
    this.#sharing.changed(record.conversation);
    this.#tell(record, { event: "error", data: {} });
  }

  /**
   * Whether the question is asked again without a word: somebody in this window waits for the answer, and no run is
   * kept of what is younger than runs get, so it has called nothing. Once, lest a question that ends the gateway does
   * so for ever.
   */
  #asksItself({ id, use, again, at }, { error }) {
    return error === "not_found" && Boolean(use) && !again && this.#here.has(id) && Date.now() - at < KEPT_MS;
  }

  #fromRun(record, { messages, happened }) {
    const last = messages.at(-1);
    const text = last?.role === "assistant" && typeof last.content === "string" ? last.content : "";
    if (text && !words(record.answer).endsWith(text)) record.answer.segments.push({ iteration: Infinity, text, calls: [] });
    for (const one of record.answer.calls.values()) one.pending = null;
    Object.assign(record.answer, { state: "done", happened: happened ?? null });
  }

  #tell(record, frame = null) {
    this.dispatchEvent(new CustomEvent("answer", { detail: { record, frame } }));
  }

  /** Nobody wants the rest of this answer. */
  stop(record) {
    this.#live.get(record.id)?.send({ type: "cancel" });
  }

  /** Whether this window hears it, or tries to. */
  isLive(record) {
    return this.#live.has(record.id);
  }

  /** Nothing more is heard. */
  end() {
    this.#sharing.end();
    for (const stream of this.#live.values()) stream.end();
  }

  /** Somebody is back at the screen, or the network is. */
  hurry() {
    this.#sharing.look();
    for (const stream of this.#live.values()) stream.hurry();
  }
}
