// Changing the arguments of a call: a form by the tool's schema, or the JSON itself.

import { button, el, fill, labelled, select } from "./dom.js";
import { argumentsOf, BadField, fieldsOf } from "./lib/fields.js";
import { text } from "./texts.js";

/** A form for `values`; `done(arguments)` when they are to be shown, `back()` when not. */
export function editor(values, schema, { done, back }) {
  const problem = el("p", { class: "error", role: "alert" });
  const place = el("div", {});
  let mode = schema ? form(values, schema) : json(values);
  const swap = el("button", { type: "button", class: "quiet", on: { click: () => attempt(other) } });
  const draw = () => {
    swap.textContent = text(mode.kind === "form" ? "confirm.edit.json" : "confirm.edit.form");
    fill(place, mode.root);
  };
  const other = (found) => {
    mode = mode.kind === "form" ? json(found) : form(found, schema ?? {});
    draw();
  };
  const attempt = (use) => {
    try {
      problem.textContent = "";
      use(mode.read());
    } catch (error) {
      if (!(error instanceof BadField)) throw error;
      problem.textContent = text(`field.${error.rule}`, { name: error.field });
      mode.focus(error.field);
    }
  };
  draw();
  return el("form", { class: "editor", on: { submit: (event) => { event.preventDefault(); attempt(done); } } },
    swap, place, problem,
    el("div", { class: "buttons" },
      el("button", { type: "submit", class: "primary" }, text("confirm.edit.show")),
      button("confirm.edit.back", back, { class: "quiet" })));
}

function json(values) {
  const area = el("textarea", { rows: 12, class: "code", spellcheck: "false" }, JSON.stringify(values, null, 2));
  return {
    kind: "json", root: labelled(text("confirm.edit.arguments"), area), focus: () => area.focus(),
    read: () => readObject(area.value),
  };
}

function readObject(words) {
  const found = argumentsOf([{ name: "JSON", kind: "json", required: true }], { JSON: words }).JSON;
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new BadField("JSON", "json");
  return found;
}

function form(values, schema) {
  const fields = fieldsOf(schema, values);
  const controls = new Map(fields.map((one) => [one.name, control(one)]));
  return {
    kind: "form",
    root: el("div", { class: "fields" }, fields.map((one) => labelled(label(one), controls.get(one.name), one.description))),
    read: () => argumentsOf(fields, Object.fromEntries([...controls].map(([name, made]) => [name, made.value]))),
    focus: (name) => controls.get(name)?.focus(),
  };
}

function label({ name, kind, required }) {
  const notes = [kind === "list" && text("field.list"), !required && text("field.optional")].filter(Boolean);
  return notes.length ? `${name} (${notes.join(", ")})` : name;
}

function control({ kind, options, text: value, required, longest }) {
  const unset = required ? [] : [["", text("field.unset")]];
  if (kind === "choice") return select([...unset, ...options.map((one) => [one, one])], value);
  if (kind === "boolean") return select([...unset, ["true", "true"], ["false", "false"]], value);
  if (kind === "long" || kind === "json" || value.includes("\n")) {
    return el("textarea", { rows: 5, maxlength: longest, class: kind === "json" ? "code" : null }, value);
  }
  return el("input", { type: "text", value, maxlength: longest, inputmode: kind === "integer" ? "numeric" : null, autocomplete: "off" });
}
