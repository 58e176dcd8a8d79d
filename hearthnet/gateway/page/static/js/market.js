// The market: posts, a search, and a form. A post is a call with an effect: it is shown, approved and signed as any.

import { inWords, post } from "./api.js";
import { app, call, homeName, isOwn, isOwner, named, signedCall } from "./app.js";
import { confirm } from "./confirm.js";
import { announce, button, el, fill, labelled, select, shown } from "./dom.js";
import { ulid } from "./lib/bytes.js";
import { checkEdited, Refused } from "./lib/approval.js";
import { lending } from "./lending.js";
import { Topic } from "./link.js";
import { moment, text, textOr } from "./texts.js";

const CATEGORIES = ["offer", "request", "info", "emergency"];
const DAY_SECONDS = 86400;

export class MarketView {
  #posts = new Map();
  #found = null;
  #muted = [];
  #category = "";

  constructor() {
    this.topic = new Topic("market.post", (frame) => this.#hear(frame));
  }

  #hear({ event, data }) {
    if (event === "snapshot") this.#posts = new Map((data.posts ?? []).map((one) => [one.event_id, one]));
    else if (event === "reset") this.#posts.clear();
    else if (event === "ended") this.#posts.delete(data.event_id);
    else if (event === "posted" || event === "changed") this.#posts.set(data.event_id, data);
    else return;
    this.#draw();
  }

  show(main) {
    this.topic.hurry();
    this.list = el("ul", { class: "posts" });
    this.status = el("p", { class: "hint" });
    this.error = el("p", { class: "error", role: "alert" });
    this.mutes = el("details", { class: "fold", id: "muted" });
    this.hiddenPosts = el("ul", { class: "plain" });
    const whenOpen = ({ target }) => target.open && this.#readHidden();
    const hidden = el("details", { class: "fold", id: "hidden", on: { toggle: whenOpen } },
      el("summary", {}, text("market.hidden")), this.hiddenPosts);
    main.append(el("div", { class: "column" }, el("h1", {}, text("market.title")), el("p", { class: "lead" }, text("market.about")),
      this.#form(), this.#search(), this.error, this.status, this.list, this.mutes, hidden));
    this.#draw();
    this.#readMuted();
  }

  // --- looking

  #search() {
    const query = el("input", { type: "search", id: "market-query", maxlength: 1000, autocomplete: "off" });
    const kinds = select([["", text("market.category.any")], ...categories()], this.#category, (value) => {
      this.#category = value;
      this.#draw();
    });
    const find = (event) => {
      event.preventDefault();
      this.#find(query.value.trim());
    };
    return el("form", { class: "search", role: "search", on: { submit: find } },
      labelled(text("market.search"), query), labelled(text("market.category"), kinds),
      el("div", { class: "buttons" }, el("button", { type: "submit" }, text("market.find")),
        button("market.all", () => { query.value = ""; this.#find(""); }, { class: "quiet" })));
  }

  async #find(query) {
    this.error.textContent = "";
    try {
      this.#found = query ? (await call("market.search@1.0", { query })).posts : null;
      this.#draw();
      announce(text("say.found", { count: this.list.querySelectorAll("li[data-post]").length }));
    } catch (error) {
      this.error.textContent = inWords(error);
    }
  }

  #draw() {
    // What somebody is writing stays; closing its form draws the list again.
    if (!this.list?.isConnected || this.list.querySelector("details.line-form[open]")) return;
    const all = this.#found ?? [...this.#posts.values()].sort((one, other) => other.lamport - one.lamport);
    const posts = all.filter((one) => (!this.#category || one.category === this.#category) && !this.#isMuted(one));
    this.status.textContent = posts.length ? text("market.count", { count: posts.length }) : "";
    fill(this.list, posts.length ? posts.map((one) => card(one, this.#actions(one))) : el("li", { class: "none" }, text("market.none")));
  }

  #actions(one) {
    const loans = lending(one, (...step) => this.#decide(...step), (...form) => this.#lineForm(...form));
    if (isOwn(one)) return loans;
    return [
      loans,
      el("div", { class: "buttons" }, button("market.mute", () => this.#mute(one, true), { class: "quiet" })),
      mayHide() && this.#reasonForm("hide", one),
    ];
  }

  /** A form, folded until it is wanted, for a line of words that everybody can read; `send(words)` says whether that was done. */
  #lineForm(name, label, send, optional = false) {
    const words = el("input", { type: "text", maxlength: 280, required: !optional, autocomplete: "off" });
    const submit = async (event) => {
      event.preventDefault();
      if (await send(words.value)) form.open = false;
    };
    const form = el("details", { class: "line-form", on: { toggle: () => this.#draw() } }, el("summary", {}, text(name)),
      el("form", { class: "search", on: { submit } }, labelled(text(label), words),
        el("div", { class: "buttons" }, el("button", { type: "submit" }, text(`${name}.send`)))));
    return form;
  }

  // --- hiding

  #reasonForm(verb, { event_id }) {
    return this.#lineForm(`market.${verb}`, "market.reason", async (reason) => {
      const isDone = await this.#decide(verb, { event_id, reason });
      if (isDone) await this.#readHidden();
      return isDone;
    });
  }

  /** Ask for a decision and carry it out; whether that was done. */
  async #decide(verb, fields, done = `market.${verb}.done`) {
    this.error.textContent = "";
    try {
      if (!(await effect(`market.${verb}`, "1.0", { params: {}, input: { client_id: ulid(), ...fields } }))) return false;
      announce(text(done));
      return true;
    } catch (error) {
      this.error.textContent = inWords(error);
      return false;
    }
  }

  async #readHidden() {
    try {
      const { posts } = await call("market.list@1.0", { hidden: true, limit: 500 });
      fill(this.hiddenPosts, posts.length ? posts.map((one) => this.#hiddenPost(one)) : el("li", {}, text("market.none")));
    } catch (error) {
      this.error.textContent = inWords(error);
    }
  }

  #hiddenPost(one) {
    const own = one.hidden.some(({ by }) => by === app.me.node) && isOwner();
    return el("li", { "data-hidden": one.event_id },
      card(one, [
        one.hidden.map(({ by, reason }) => el("p", { class: "hint" },
          text("market.hidden.by"), " ", shown(homeName(by)), ": ", shown(reason))),
        (own || (mayHide() && one.author !== app.me.node)) && this.#reasonForm("unhide", one),
      ], "div"));
  }

  // --- muting: the topic has every post for all who follow it, so that each page leaves out what its person muted

  async #readMuted() {
    try {
      this.#muted = (await call("market.list@1.0", { muted: true, limit: 1 })).muted ?? [];
    } catch (error) {
      this.error.textContent = inWords(error);
    }
    this.#draw();
    this.mutes.hidden = !this.#muted.length;
    fill(this.mutes, el("summary", {}, text("market.muted", { count: this.#muted.length })),
      el("ul", { class: "plain" }, this.#muted.map((one) => el("li", { "data-muted": one.author },
        shown(homeName(one.author)), one.guest && [" · ", shown(one.guest)], " ",
        button("market.unmute", () => this.#mute(one, false), { class: "quiet" })))));
  }

  #isMuted({ author, guest }) {
    return this.#muted.some((one) => one.nodes.includes(author) && named(one.guest) === named(guest));
  }

  async #mute({ author, guest }, muted) {
    this.error.textContent = "";
    try {
      const input = { author, ...(named(guest) ? { guest } : {}), muted };
      if (!(await effect("market.mute", "1.0", { params: {}, input }))) return;
      await this.#readMuted();
      announce(text(muted ? "market.muted.done" : "market.unmuted.done"));
    } catch (error) {
      this.error.textContent = inWords(error);
    }
  }

  // --- posting

  #form() {
    const fields = {
      category: select(categories(), "offer"),
      title: el("input", { type: "text", maxlength: 120, required: true, autocomplete: "off" }),
      body: el("textarea", { rows: 4, maxlength: 4000, required: true }),
      tags: el("input", { type: "text", maxlength: 200, autocomplete: "off" }),
      days: el("input", { type: "number", min: 1, max: 30, value: 7 }),
    };
    const send = (event) => {
      event.preventDefault();
      this.#post(fields, form);
    };
    const form = el("form", { class: "post-form", on: { submit: send } },
      labelled(text("market.category"), fields.category), labelled(text("market.post_title"), fields.title),
      labelled(text("market.post_body"), fields.body), labelled(text("market.tags"), fields.tags, text("field.list")),
      labelled(text("market.days"), fields.days),
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, text("market.post"))));
    return el("details", { class: "fold", id: "write" }, el("summary", {}, text("market.new")), form);
  }

  async #post({ category, title, body, tags, days }, form) {
    this.error.textContent = "";
    const labels = tags.value.split(",").map((one) => one.trim()).filter(Boolean);
    const input = {
      client_id: ulid(), category: category.value, title: title.value, body: body.value,
      ttl_seconds: DAY_SECONDS * Number(days.value || 7), ...(labels.length ? { tags: labels } : {}),
    };
    try {
      if (!(await effect("market.post", "1.0", { params: {}, input }))) return;
      form.reset();
      document.getElementById("write").open = false;
      announce(text("market.posted"));
      this.status.textContent = text("market.posted");
    } catch (error) {
      this.error.textContent = error instanceof Refused ? text("confirm.refused", { rule: error.rule }) : inWords(error);
    }
  }
}

/** A call with an effect: what the gateway would send is shown, signed here, and only then sent. Null for a no. */
async function effect(capability, version, body) {
  const asked = await post("/v1/call", await signedCall(capability, version, body));
  const pending = asked.pending?.[0] ?? asked;
  checkEdited(pending, body.input);
  return confirm(pending, {
    decide: async ({ decision, approval }) => {
      if (decision !== "approve") return null;
      return post("/v1/call", { ...(await signedCall(capability, version, pending.body)), approval });
    },
  });
}

const categories = () => CATEGORIES.map((name) => [name, text(`market.${name}`)]);

/** Whether this page's person is a trusted member; each home checks that itself. */
const mayHide = () => isOwner() && ["trusted", "anchor"].includes(app.catalog?.nodes?.find((one) => one.node_id === app.me.node)?.level);

function card(one, actions, tag = "li") {
  const here = one.author === app.me.node && el("span", { class: "badge" }, text("mesh.here"));
  return el(tag, { class: `card post ${one.category}`, "data-post": tag === "li" && one.event_id },
    el("header", {}, el("span", { class: "chip" }, textOr(`market.${one.category}`, one.category)), el("h3", {}, shown(one.title))),
    el("p", { class: "words" }, shown(one.body, { plain: true })),
    el("p", { class: "hint" }, text("market.from", { who: "" }), here, here && " ", shown(homeName(one.author)), " · ",
      one.guest && [shown(one.guest), " · "],
      text("market.until", { when: moment(Date.parse(one.expires_at)) }),
      (one.tags ?? []).map((tag) => el("span", { class: "tag" }, shown(tag)))),
    actions);
}
