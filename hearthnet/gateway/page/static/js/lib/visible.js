// Text from elsewhere, cut so that nothing in it is hidden: whatever has no picture of its own becomes its code.

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\p{DI}\u2800]|(?! )\p{Zs}/u;
const EACH = new RegExp(HIDDEN.source, "gu");

const code = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Pieces of `text`, in order: `{text}`, `{hidden: "U+202E"}`, and `{hidden, line: true}` for a line break. */
export function pieces(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(EACH)) {
    if (match.index > last) found.push({ text: text.slice(last, match.index) });
    found.push(match[0] === "\n" ? { hidden: code("\n"), line: true } : { hidden: code(match[0]) });
    last = match.index + match[0].length;
  }
  if (last < text.length) found.push({ text: text.slice(last) });
  return found;
}

/** `text` on one line, hidden characters as `‹U+XXXX›`. */
export function plain(text) {
  return pieces(String(text)).map((piece) => piece.text ?? (piece.line ? " ↵ " : `‹${piece.hidden}›`)).join("");
}
