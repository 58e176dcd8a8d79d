// What the mesh offers now, kept up to date by the topic `mesh`.

import { answered, app } from "./app.js";
import { canonical } from "./lib/canonical.js";
import { Topic } from "./link.js";

const SEARCH = "search_corpus";
const CONNECTED = "experimental.";
const keyOf = ({ node, instance, capability, params }) => canonical([node, instance, capability, params ?? {}]);

/** Who offers what; fires `change`. */
export class Catalog extends EventTarget {
  offers = new Map();
  nodes = [];
  tools = [];
  #asking = null;

  /** `tools` are the built-in ones, as the gateway describes them. */
  constructor(tools) {
    super();
    this.tools = tools;
    this.topic = new Topic("mesh", (frame) => this.#hear(frame));
  }

  #hear({ event, data }) {
    if (event === "snapshot") this.offers = new Map((data.offers ?? []).map((offer) => [keyOf(offer), offer]));
    else if (event === "gone") this.offers.delete(keyOf(data));
    else if (event === "appeared" || event === "changed") this.offers.set(keyOf(data), data);
    else return;
    this.dispatchEvent(new Event("change"));
    this.#askNames();
  }

  /** The names of nodes, where there is one that is not known yet. Only the own node's answer counts. */
  async #askNames() {
    const known = new Set(this.nodes.map((one) => one.node_id));
    const unknown = [...this.offers.values()].some(({ node }) => !known.has(node));
    if (!unknown || this.#asking || !this.has("mesh.neighbours")) return;
    this.#asking = answered("mesh.neighbours@1.0", { online_only: false });
    try {
      const { provider, output } = await this.#asking;
      if (provider !== app.me.node) return;
      this.nodes = output.nodes;
      this.dispatchEvent(new Event("change"));
    } catch (error) {
      console.info("names of nodes are not known:", error.message);
    } finally {
      this.#asking = null;
    }
  }

  #of(name) {
    return [...this.offers.values()].filter(({ capability }) => capability.split("@")[0] === name);
  }

  has(name) {
    return this.#of(name).length > 0;
  }

  /** The names of the models, each once. */
  get models() {
    return [...new Set(this.#of("llm.chat").map(({ params }) => params.model))];
  }

  get corpora() {
    return [...new Set(this.#of("rag.query").map(({ params }) => params.corpus))].sort();
  }

  /**
   * The built-in tools that somebody offers, without the search, which comes with its documents; what others have
   * connected; and of `chosen` what else is there.
   */
  usable(chosen) {
    const known = new Set(this.tools.map(({ capability }) => capability.split("@")[0]));
    const names = [...new Set([...this.offers.values()].map(({ capability }) => capability.split("@")[0]))].sort();
    const more = names.filter((name) => !known.has(name) && (name.startsWith(CONNECTED) || chosen.includes(name)));
    return [
      ...this.tools.filter(({ name, capability }) => name !== SEARCH && this.has(capability.split("@")[0])),
      ...more.map((name) => ({ name, capability: name, description: "", side_effects: false })),
    ];
  }

  tool(name) {
    return this.tools.find((one) => one.name === name || one.capability.split("@")[0] === name);
  }

  /** Offers by node, this node first: `[{id, name, own, offers}]`. */
  get byNode() {
    const found = new Map(this.nodes.map((one) => [one.node_id, []]));
    for (const offer of this.offers.values()) found.set(offer.node, [...(found.get(offer.node) ?? []), offer]);
    return [...found].map(([id, offers]) => ({ id, offers, own: id === app.me.node, about: this.nodes.find((n) => n.node_id === id) }))
      .sort((one, other) => Number(other.own) - Number(one.own) || one.id.localeCompare(other.id));
  }
}
