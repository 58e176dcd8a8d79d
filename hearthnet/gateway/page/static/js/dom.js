// Elements made by calls, never from text: nothing that came from elsewhere can become markup.

import { pieces } from "./lib/visible.js";
import { text } from "./texts.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element; `on` are listeners, `class`, `aria-…` and the rest attributes; null and false leave one out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, { on = {}, ...attributes }, children) {
  for (const [event, hear] of Object.entries(on)) element.addEventListener(event, hear);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A button that says the text called `key`. */
export function button(key, press, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: press } }, text(key));
}

/** A labelled control: the label above, a hint below. */
export function labelled(label, control, hint = "") {
  control.id ||= `f${labelled.count += 1}`;
  const about = hint ? el("span", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (about) control.setAttribute("aria-describedby", about.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, about);
}
labelled.count = 0;

/** A choice of `[value, label]`. */
export function select(options, chosen, change = () => {}) {
  return el("select", { on: { change: ({ target }) => change(target.value) } },
    options.map(([value, label]) => el("option", { value, selected: value === chosen }, label)));
}

/** Text from elsewhere, whatever is hidden in it shown as codes; its blanks and line breaks too, unless they are `plain`. */
export function shown(value, { plain = false } = {}) {
  return el("span", { class: "shown", dir: "ltr" }, pieces(String(value)).map((piece) => {
    if (piece.text !== undefined) return el("bdi", {}, piece.text);
    const times = piece.count ? `×${piece.count}` : "";
    if (piece.line) return [(!plain || times) && el("span", { class: "code-point line" }, `↵${times}`), el("br")];
    if (plain && piece.hidden === "U+0020") return " ";
    return el("span", { class: "code-point" }, `${piece.hidden}${times}`);
  }));
}

/** A JSON value, complete, as an indented list that can be read aloud. */
export function jsonView(value, changed = new Set(), path = "") {
  if (value === null || typeof value !== "object") return leaf(value);
  const entries = Array.isArray(value) ? value.map((one, place) => [String(place + 1), one]) : Object.entries(value);
  if (entries.length === 0) return el("span", { class: "json-empty" }, Array.isArray(value) ? "[]" : "{}");
  return el("dl", { class: "json" }, entries.map(([name, one]) => {
    const where = `${path}/${name}`;
    return el("div", { class: changed.has(where) ? "changed" : null },
      el("dt", {}, shown(name)), el("dd", {}, jsonView(one, changed, where)));
  }));
}

function leaf(value) {
  if (typeof value !== "string") return el("span", { class: "json-literal" }, String(value));
  return value === "" ? el("span", { class: "json-empty" }, "“”") : shown(value);
}

const MOST_CHARACTERS = 16384;
const MOST_PIECES = 2000;
const PART = 4096;

/** Whether a JSON value is drawn element by element: of others, drawing would hold up the page. */
export function small(value) {
  const whole = JSON.stringify(value ?? null);
  return whole.length <= MOST_CHARACTERS && (whole.match(/[,:]/g)?.length ?? 0) + pieces(whole).length <= MOST_PIECES;
}

/** A long text in parts that are laid out once they are in view. */
export function parts(whole) {
  const box = el("pre", { class: "parts", dir: "ltr" });
  for (let from = 0, to; from < whole.length; from = to) {
    to = from + PART;
    if (whole.charCodeAt(to - 1) >> 10 === 0x36) to += 1; // a character of two units stays whole
    box.append(el("div", { class: "part" }, whole.slice(from, to)));
  }
  return box;
}

/** Puts `children` into `element`, keeping the focus where it was if what had it is there again. */
export function fill(element, ...children) {
  const held = element.contains(document.activeElement) ? document.activeElement.id : "";
  element.replaceChildren(...children.flat().filter(Boolean));
  if (held) document.getElementById(held)?.focus();
  return element;
}

let announced = 0;

/** Says `words` to those who hear the page. Politely: what was being said is finished first. */
export function announce(words) {
  const live = document.getElementById("live");
  announced += 1;
  const turn = announced;
  live.textContent = "";
  requestAnimationFrame(() => { if (turn === announced) live.textContent = words; });
}
