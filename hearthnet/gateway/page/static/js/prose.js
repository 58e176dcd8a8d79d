// The text of a model on the screen: its Markdown as the gateway reads it (/page/markdown), plain text until then.

import { post } from "./api.js";
import { el } from "./dom.js";
import { text as label } from "./texts.js";

const TAGS = new Set([
  "p", "h4", "ul", "ol", "li", "blockquote", "pre", "code", "strong", "em", "s", "br", "hr", "table", "thead", "tbody",
  "tr", "th", "td",
]);
const ALIGNED = new Set(["left", "center", "right"]);
const DEEPEST = 100;
/** Characters of one piece that are drawn unasked: drawing time grows with the size, and faster for some texts. */
const MOST_DRAWN = 16384;
/** The rest is drawn as plain text in parts of this size, each laid out on its own. */
const PART = 4096;
/** While an answer comes, it is read again when so much was added. */
const GROWTH = 1.2;
const MOST_KEPT = 200;
const PARAGRAPH = "\n\n";

const read = new Map();

/** The tree of `text`; what was read before is kept for a while. */
function treeOf(text) {
  if (!read.has(text)) {
    const asked = post("/page/markdown", { text }).then(({ tree }) => tree).catch((error) => {
      if (error.code !== "payload_too_large") read.delete(text);
      return null; // what was refused is kept, too
    });
    read.set(text, asked);
    if (read.size > MOST_KEPT) read.delete(read.keys().next().value);
  }
  return read.get(text);
}

/** Elements for a tree. What is none of those that Markdown has is left out, and its text stays. */
export function elements(tree, depth = 0) {
  if (!Array.isArray(tree) || depth > DEEPEST) return [];
  return tree.flatMap((node) => (typeof node === "string" ? node : element(node, depth)));
}

function element(node, depth) {
  const { tag, children, start, align } = node ?? {};
  const inside = elements(children, depth + 1);
  if (!TAGS.has(tag)) return inside;
  const made = el(tag, {
    start: tag === "ol" && Number.isSafeInteger(start) ? start : null,
    class: ALIGNED.has(align) ? `to-${align}` : null,
    tabindex: tag === "pre" ? "0" : null,
  }, inside);
  return tag === "table" ? el("div", { class: "scroll", tabindex: "0" }, made) : made;
}

/** The part of a long text that is drawn unasked: to the end of a paragraph where there is one. */
function beginning(text) {
  const end = text.lastIndexOf(PARAGRAPH, MOST_DRAWN);
  const cut = end > MOST_DRAWN / 2 ? end : MOST_DRAWN;
  return text.slice(0, text.charCodeAt(cut - 1) >> 10 === 0x36 ? cut - 1 : cut);
}

/** One piece of an answer, drawn while it comes and when it is complete. */
export class Prose {
  #text = "";
  #over = false;
  #read = "";
  #reading = false;
  #refused = 0;
  #rest = el("p", {});
  #more = null;
  #all = false;

  constructor() {
    this.box = el("div", { class: "text", dir: "auto" });
    this.root = el("div", { class: "prose" }, this.box);
  }

  /** Shows `text`; `over` says that no more comes. */
  update(text, over) {
    const begun = text.length > MOST_DRAWN ? beginning(text) : text;
    this.#continue(text, begun.length);
    if (begun === this.#text && over === this.#over) return;
    this.#text = begun;
    this.#over = over;
    this.#draw();
    this.#look();
  }

  /** What is not drawn unasked: a button that says how long it is, and then its parts, each drawn once it is full. */
  #continue(text, begun) {
    if (text.length === begun) {
      this.#more?.remove();
      [this.#more, this.#all] = [null, false];
      return;
    }
    this.#more ??= el("div", { class: "more" }, el("button", { type: "button", class: "quiet", on: { click: () => this.#showAll() } }));
    this.#more.text = text.slice(begun);
    if (!this.#more.parentNode) this.box.after(this.#more);
    if (this.#all) this.#parts();
    else this.#more.firstChild.textContent = label("ask.all", { count: text.length });
  }

  #showAll() {
    this.#all = true;
    this.#more.replaceChildren();
    this.#parts();
  }

  /** Only the last part changes while the answer comes. */
  #parts() {
    const { text, children } = this.#more;
    for (let place = Math.max(0, children.length - 1); place * PART < text.length; place += 1) {
      const part = children[place] ?? this.#more.appendChild(el("div", { class: "part", dir: "auto" }));
      part.textContent = text.slice(place * PART, (place + 1) * PART);
    }
  }

  /** What was read stays as it is, lest it lose its place or what is marked in it; the rest is text. */
  #draw() {
    if (!this.#text.startsWith(this.#read)) this.#show("", []);
    this.#rest.textContent = this.#text.slice(this.#read.length).trim();
    if (!this.#rest.textContent) this.#rest.remove();
    else if (!this.#rest.parentNode) this.box.append(this.#rest);
  }

  #show(read, nodes) {
    this.#read = read;
    this.box.replaceChildren(...nodes);
  }

  /** Has the gateway read what is complete, where that is enough more than what it has read. */
  async #look() {
    const wanted = this.#over ? this.#text : this.#text.slice(0, this.#text.lastIndexOf(PARAGRAPH) + 1);
    const enough = this.#over ? wanted !== this.#read : wanted.length > GROWTH * Math.max(this.#read.length, this.#refused);
    if (this.#reading || !enough || !wanted.trim()) return;
    this.#reading = true;
    const tree = await treeOf(wanted);
    this.#reading = false;
    this.#refused = tree === null ? wanted.length : 0;
    if (tree === null) return; // it stays plain text
    if (this.#text.startsWith(wanted)) this.#show(wanted, elements(tree));
    this.#draw();
    this.#look();
  }
}
