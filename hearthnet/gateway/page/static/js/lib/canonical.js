// Canonical JSON (RFC 8785): the one text that a value has, over which digests and signatures are made.

const DEEPEST = 200;
const HALF = /\p{Surrogate}/u;

/** The canonical text of a JSON value; throws where it has none. */
export function canonical(value, depth = 0) {
  if (depth > DEEPEST) throw new TypeError("nested too deeply");
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") return number(value);
  if (typeof value === "string") return text(value);
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one, depth + 1)).join(",")}]`;
  if (typeof value === "object") return object(value, depth + 1);
  throw new TypeError(`${typeof value} is no JSON`);
}

function number(value) {
  if (!Number.isFinite(value)) throw new TypeError("no finite number");
  return JSON.stringify(value);
}

function text(value) {
  if (HALF.test(value)) throw new TypeError("half of a surrogate pair");
  return JSON.stringify(value);
}

function object(value, depth) {
  const members = Object.keys(value).sort().map((name) => `${text(name)}:${canonical(value[name], depth)}`);
  return `{${members.join(",")}}`;
}
