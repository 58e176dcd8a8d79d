// Whose page this is: the name in the head, the devices, and what the administrator of the home can do.

import { app } from "./app.js";
import { el, shown } from "./dom.js";
import { shortId } from "./lib/bytes.js";
import { spoken, text } from "./texts.js";

/** The name of the person, for the head of the page; nothing for a page without one. */
export function personBadge() {
  const { person } = app.me;
  if (!person) return [];
  const title = text("person.of", { name: person.name, id: shortId(person.id) });
  return [el("span", { title, "aria-label": title }, shown(person.name))];
}

/** Why nothing can be asked now, or null: the hours of a child. */
export function closedNotice() {
  const { person } = app.me;
  if (!person?.limits?.closed) return null;
  const { from, to } = person.limits;
  return el("p", { class: "column lead", id: "closed", role: "status" }, text("person.closed", { from, to }));
}

/** The person and its devices, for the settings. */
export function personFacts() {
  const { person, device } = app.me;
  if (!person) return null;
  const about = [["person.name", shown(person.name)], ["person.id", shortId(person.id)]];
  if (person.limits) about.push(["person.limits", limitsInWords(person.limits)]);
  return el("section", { "aria-label": text("person.title"), id: "person-facts" }, el("h2", {}, text("person.title")),
    el("dl", { class: "facts" }, about.map(([name, value]) => el("div", {}, el("dt", {}, text(name)), el("dd", {}, value)))),
    device.added ? null : el("p", { class: "error", id: "no-device" }, text("device.not", { problem: device.problem ?? "" })),
    el("h3", {}, text("device.title")),
    el("ul", { id: "devices" }, person.devices.map((one) => el("li", {}, shown(one.name), ` (${text(`device_kind.${one.kind}`)})`,
      one.this ? ` – ${text("device.this")}` : ""))),
    person.is_administrator ? null : administrator(person));
}

function limitsInWords({ from, to, questions }) {
  const found = [text("limits.calls")];
  if (from) found.push(text("limits.hours", { from, to }));
  if (questions !== undefined) found.push(text("limits.questions", { count: questions }));
  return found.join("; ");
}

function administrator({ administrator_can: can, administrator_cannot: cannot }) {
  const list = (lines) => el("ul", {}, lines.map((line) => el("li", {}, line[spoken()] ?? line.en)));
  return el("details", { id: "administrator" }, el("summary", {}, text("administrator.title")),
    el("p", {}, text("administrator.can")), list(can), el("p", {}, text("administrator.cannot")), list(cannot));
}
