// The mesh as a live picture, and the same as a table.

import { el, fill, shown, svg } from "./dom.js";
import { shortId } from "./lib/bytes.js";
import { plain } from "./lib/visible.js";
import { place, WIDTH } from "./lib/places.js";
import { moment, text } from "./texts.js";

const HEALTH = { well: "good", full: "busy" };
const verbLetters = (nodes) => ({ 1: 34, 2: 20 })[nodes] ?? 0;

const nameOf = ({ about, id }) => about?.display_name ?? shortId(id);
const cut = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
const healthOf = (offer) => HEALTH[offer.health] ?? "weak";

export class MeshView {
  constructor(catalog) {
    this.catalog = catalog;
    catalog.addEventListener("change", () => this.#draw());
  }

  show(main) {
    this.picture = el("div", { class: "picture" });
    this.table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": text("mesh.table") });
    this.when = el("p", { class: "hint" });
    main.append(el("div", { class: "wide-column" }, el("h1", {}, text("mesh.title")), el("p", { class: "lead" }, text("mesh.about")),
      this.picture, legend(), this.table, this.when));
    this.#draw();
  }

  #draw() {
    if (!this.picture?.isConnected) return;
    const nodes = this.catalog.byNode;
    fill(this.picture, drawing(nodes));
    fill(this.table, table(nodes));
    this.when.textContent = text("mesh.updated", { when: moment(Date.now()) });
  }
}

function legend() {
  return el("ul", { class: "legend", "aria-hidden": "true" }, ["good", "busy", "away"].map((health) =>
    el("li", {}, el("span", { class: `dot ${health}` }), text(`health.${health}`))));
}

function drawing(nodes) {
  const families = new Set(nodes.flatMap(({ offers }) => offers.map((offer) => offer.capability)));
  const { height, spots } = place(nodes.map((node) => familiesOf(node).length));
  return svg("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
    "aria-label": text("mesh.picture", { nodes: nodes.length, capabilities: families.size }),
  }, spots.slice(1).map(({ x, y }, at) => svg("line", {
    class: `link ${standing(nodes[at + 1])}`, x1: spots[0].x, y1: spots[0].y, x2: x, y2: y,
  })), nodes.map((node, at) => group(node, spots[at], verbLetters(nodes.length))));
}

const standing = ({ offers, about }) => (offers.length || about?.online ? "good" : "away");

/** The capabilities of a node by the word before the dot: `[family, offers]`. */
function familiesOf({ offers }) {
  const found = new Map();
  for (const offer of offers) {
    const family = offer.capability.split(".")[0];
    found.set(family, [...(found.get(family) ?? []), offer]);
  }
  return [...found].sort(([one], [other]) => one.localeCompare(other));
}

function group(node, spot, roomy) {
  const around = familiesOf(node);
  return svg("g", { class: `node ${standing(node)}${node.own ? " own" : ""}`, "data-node": node.id },
    around.map(([family, offers], at) => satellite(family, offers, spot, spot.around[at], roomy)),
    svg("circle", { class: "body", cx: spot.x, cy: spot.y, r: spot.r }),
    svg("text", { class: "name", x: spot.x, y: spot.y + (node.own ? -3 : 5) }, cut(plain(nameOf(node)), Math.round(spot.r / 4.4))),
    node.own && svg("text", { class: "here", x: spot.x, y: spot.y + 16 }, text("mesh.here")));
}

function satellite(family, offers, spot, { x, y, side }, roomy) {
  const health = offers.some((one) => healthOf(one) === "busy") ? "busy" : healthOf(offers[0]);
  const names = [...new Set(offers.map((one) => one.capability))];
  const verbs = [...new Set(names.map((name) => name.split("@")[0].slice(family.length + 1)))].join(", ");
  const at = { x: x + 14 * side, "text-anchor": side < 0 ? "end" : "start" };
  return svg("g", { class: "family", "data-family": family },
    svg("title", {}, `${names.join(", ")}: ${text(`health.${health}`)}`),
    svg("line", { class: "tie", x1: spot.x, y1: spot.y, x2: x, y2: y }),
    svg("circle", { class: `dot ${health}`, cx: x, cy: y, r: 8 }),
    svg("text", { class: "label", ...at, y: y + (roomy ? -1 : 5) }, cut(plain(family), 18)),
    roomy && svg("text", { class: "label verbs", ...at, y: y + 15 }, cut(plain(verbs), roomy)));
}

function table(nodes) {
  const heads = ["mesh.node", "mesh.capability", "mesh.detail", "mesh.health"];
  return el("table", {}, el("caption", {}, text("mesh.table")),
    el("thead", {}, el("tr", {}, heads.map((key) => el("th", { scope: "col" }, text(key))))),
    el("tbody", {}, nodes.map(rows)));
}

function rows(node) {
  // The sign of this node stands before the name, in a form that no name has.
  const name = el("th", { scope: "rowgroup", rowspan: Math.max(1, node.offers.length) },
    node.own && el("span", { class: "badge" }, text("mesh.here")), node.own && " ", shown(nameOf(node)));
  if (!node.offers.length) return el("tr", {}, name, el("td", { colspan: 2 }, text("mesh.none")), health("away"));
  const sorted = [...node.offers].sort((one, other) => one.capability.localeCompare(other.capability));
  return sorted.map((offer, at) => el("tr", {}, at === 0 && name, el("td", {}, shown(offer.capability)),
    el("td", {}, shown(detail(offer.params ?? {}))), health(healthOf(offer))));
}

const detail = (params) => Object.entries(params).filter(([, value]) => ["string", "number"].includes(typeof value))
  .map(([name, value]) => `${name} ${value}`).slice(0, 3).join(", ");

const health = (name) => el("td", {}, el("span", { class: `dot ${name}`, "aria-hidden": "true" }), text(`health.${name}`));
