// Text from elsewhere, cut so that nothing in it is hidden: whatever has no picture of its own becomes its code. The
// terminal has the same rule (hearthnet/core/visible.py).

import { HIDDEN } from "./hidden.js";

const MOST_MARKS = 4;
const MARK = /\p{M}/u;
const UNASSIGNED = /\p{Cn}/u;

const code = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function hidden(character) {
  const point = character.codePointAt(0);
  let low = 0;
  let high = HIDDEN.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (point < HIDDEN[middle][0]) high = middle - 1;
    else if (point > HIDDEN[middle][1]) low = middle + 1;
    else return true;
  }
  return UNASSIGNED.test(character);
}

/** For each character whether it is drawn as its code: hidden ones, marks without a letter or too many, odd spaces. */
export function marked(characters) {
  let marks = 0;
  let letter = false;
  const blank = (place) => [undefined, " ", "\n"].includes(characters[place]);
  return characters.map((character, place) => {
    if (character === " " || hidden(character)) {
      letter = false;
      return character !== " " || blank(place - 1) || blank(place + 1);
    }
    if (MARK.test(character)) {
      marks += 1;
      return !letter || marks > MOST_MARKS;
    }
    marks = 0;
    letter = true;
    return false;
  });
}

/**
 * Pieces of `text`, in order: `{text}`, `{hidden: "U+202E"}`, and `{hidden, line: true}` for a line break. Equal ones that
 * follow each other are one piece with their `count`.
 */
export function pieces(text) {
  const characters = [...text];
  const drawn = marked(characters);
  const found = [];
  let words = "";
  const end = () => { if (words) found.push({ text: words }); words = ""; };
  characters.forEach((character, place) => {
    if (!drawn[place]) {
      words += character;
      return;
    }
    end();
    const last = found.at(-1);
    const what = code(character);
    if (last?.hidden === what) last.count = (last.count ?? 1) + 1;
    else found.push(character === "\n" ? { hidden: what, line: true } : { hidden: what });
  });
  end();
  return found;
}

const FROM_RIGHT = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const units = (character) => character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** `value` as compact JSON, hidden characters as codes, and those that are written from the right, which would change the order. */
export function exactJson(value) {
  if (Array.isArray(value)) return `[${value.map(exactJson).join(",")}]`;
  if (value && typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${exactJson(name)}:${exactJson(one)}`).join(",")}}`;
  }
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  const characters = [...value];
  const drawn = marked(characters);
  const inside = characters.map((one, place) => {
    if (SHORT[one]) return SHORT[one];
    if (drawn[place] || FROM_RIGHT.test(one)) return units(one);
    return '"\\'.includes(one) ? `\\${one}` : one;
  });
  return `"${inside.join("")}"`;
}

const times = ({ count }) => (count ? `×${count}` : "");

/** `text` on one line, hidden characters as `‹U+XXXX›`. */
export function plain(text) {
  return pieces(String(text)).map((piece) =>
    piece.text ?? (piece.line ? ` ↵${times(piece)} ` : `‹${piece.hidden}${times(piece)}›`)).join("");
}
