// The text of a model on the screen: its Markdown as the gateway reads it (/page/markdown), plain text until then.

import { post } from "./api.js";
import { el } from "./dom.js";

const TAGS = new Set([
  "p", "h4", "ul", "ol", "li", "blockquote", "pre", "code", "strong", "em", "s", "br", "hr", "table", "thead", "tbody",
  "tr", "th", "td",
]);
const ALIGNED = new Set(["left", "center", "right"]);
const DEEPEST = 100;
const LONGEST = 65536;
/** While an answer comes, it is read again when so much was added. */
const GROWTH = 1.2;
const MOST_KEPT = 200;
const PARAGRAPH = "\n\n";

const read = new Map();

/** The tree of `text`; what was read before is kept for a while. */
function treeOf(text) {
  if (!read.has(text)) {
    const asked = post("/page/markdown", { text }).then(({ tree }) => tree);
    asked.catch(() => read.delete(text));
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

/** One piece of an answer, drawn while it comes and when it is complete. */
export class Prose {
  #text = "";
  #over = false;
  #read = "";
  #reading = false;
  #rest = el("p", {});

  constructor() {
    this.box = el("div", { class: "text", dir: "auto" });
  }

  /** Shows `text`; `over` says that no more comes. */
  update(text, over) {
    if (text === this.#text && over === this.#over) return;
    this.#text = text;
    this.#over = over;
    this.#draw();
    this.#look();
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
    const enough = this.#over ? wanted !== this.#read : wanted.length > GROWTH * this.#read.length;
    if (this.#reading || !enough || !wanted.trim() || wanted.length > LONGEST) return;
    this.#reading = true;
    const tree = await treeOf(wanted).catch(() => null);
    this.#reading = false;
    if (tree === null) return; // it stays plain text
    if (this.#text.startsWith(wanted)) this.#show(wanted, elements(tree));
    this.#draw();
    this.#look();
  }
}
