// A small, safe part of Markdown: paragraphs, headings, lists, code, quotes, bold, italics. Links and pictures are
// left as they were written: nothing a model says is ever something to press or to load. Gives a tree, no HTML.

const FENCE = /^ {0,3}```\s*([\w+-]*)\s*$/;
const HEADING = /^(#{1,6})\s+(.+?)\s*#*$/;
const BULLET = /^\s{0,3}[-*+]\s+(.*)$/;
const NUMBER = /^\s{0,3}(\d{1,9})[.)]\s+(.*)$/;
const QUOTE = /^>\s?(.*)$/;
const INLINE = /(`+)(?!`)(.+?)(?<!`)\1(?!`)|\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![\w*])/su;

/** The blocks of `text`: `{kind, ...}`, inline content as a list of strings and `{kind, text}`. */
export function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  while (lines.length) {
    if (!lines[0].trim()) lines.shift();
    else found.push(block(lines));
  }
  return found;
}

function block(lines) {
  const fence = FENCE.exec(lines[0]);
  if (fence) return fenced(lines, fence[1]);
  const heading = HEADING.exec(lines[0]);
  if (heading) {
    lines.shift();
    return { kind: "heading", level: heading[1].length, inline: inline(heading[2]) };
  }
  for (const [kind, pattern] of [["bullets", BULLET], ["numbers", NUMBER]]) {
    if (pattern.test(lines[0])) return list(lines, kind, pattern);
  }
  if (QUOTE.test(lines[0])) return { kind: "quote", inline: inline(taken(lines, QUOTE).join("\n")) };
  return paragraph(lines);
}

function fenced(lines, language) {
  lines.shift();
  const code = [];
  while (lines.length && !/^ {0,3}```\s*$/.test(lines[0])) code.push(lines.shift());
  lines.shift();
  return { kind: "code", language, text: code.join("\n") };
}

function taken(lines, pattern) {
  const found = [];
  for (let match; lines.length && (match = pattern.exec(lines[0])); lines.shift()) found.push(match.at(-1));
  return found;
}

function list(lines, kind, pattern) {
  const start = kind === "numbers" ? Number(pattern.exec(lines[0])[1]) : 1;
  const items = [];
  while (lines.length && pattern.test(lines[0])) {
    let text = pattern.exec(lines.shift()).at(-1);
    while (lines.length && /^\s{2,}\S/.test(lines[0]) && !pattern.test(lines[0])) text += `\n${lines.shift().trim()}`;
    items.push(inline(text));
  }
  return { kind, start, items };
}

function paragraph(lines) {
  const text = [lines.shift()];
  while (lines.length && lines[0].trim() && !starts(lines[0])) text.push(lines.shift());
  return { kind: "paragraph", inline: inline(text.join("\n")) };
}

const starts = (line) => [FENCE, HEADING, BULLET, NUMBER, QUOTE].some((pattern) => pattern.test(line));

/** Strings and `{kind: "code" | "bold" | "italic", text}`. */
export function inline(text) {
  const found = [];
  for (let rest = text; rest; ) {
    const match = INLINE.exec(rest);
    if (!match) return [...found, rest];
    if (match.index) found.push(rest.slice(0, match.index));
    found.push(piece(match));
    rest = rest.slice(match.index + match[0].length);
  }
  return found;
}

function piece([, ticks, code, bold, italic]) {
  if (ticks) return { kind: "code", text: code };
  return bold === undefined ? { kind: "italic", text: italic } : { kind: "bold", text: bold };
}
