// The conversations at the gateway: the same list on every page of a person, and on every computer of theirs.

import { get, post, request } from "./api.js";

const PATH = "/v1/conversations";
const AGAIN_MS = 4000;
const SOON_MS = 300;
const TRIES = 4;

/**
 * Keeps a list in step with the gateway's. `host` has it: `revision(id)`, `known()`, `content(id)`, `take(page)`
 * (returns whether it has more than the page), `drop(id)` and `saved(id, revision)`.
 */
export class Sharing {
  #host;
  #timer = null;
  #isBegun = false;
  #due = new Map();
  #refused = new Set();
  #given = new Set();
  #running = Promise.resolve();

  constructor(host) {
    this.#host = host;
  }

  /** Takes over what others have changed, gives what only this browser has, and goes on doing so. */
  async begin() {
    this.#isBegun = true;
    await this.look();
    this.#timer = setInterval(() => { if (!document.hidden) this.look(); }, AGAIN_MS);
  }

  end() {
    clearInterval(this.#timer);
    for (const timer of this.#due.values()) clearTimeout(timer);
  }

  /** Takes over and gives at once; nothing before it has begun. */
  look() {
    return this.#isBegun ? this.#alone(() => this.#look()) : this.#running;
  }

  /** Something was said in `id`; several changes at once are one. */
  changed(id) {
    this.#refused.delete(id);
    clearTimeout(this.#due.get(id));
    this.#due.set(id, setTimeout(() => { this.#due.delete(id); this.#alone(() => this.#give(id)); }, SOON_MS));
  }

  /** `id` was deleted here, whose revision the gateway had, if any, is `revision`. */
  removed(id, revision) {
    clearTimeout(this.#due.get(id));
    this.#due.delete(id);
    return this.#alone(() => (revision || this.#given.has(id) ? request("DELETE", `${PATH}/${id}`) : null));
  }

  /** One thing after the other; a gateway that is away is asked again later. */
  #alone(work) {
    this.#running = this.#running.then(work).catch((error) => console.info("conversations:", error.message));
    return this.#running;
  }

  async #look() {
    const { conversations } = await get(PATH);
    const there = new Map(conversations.map((one) => [one.id, one]));
    for (const one of conversations) {
      if (one.deleted) await this.#host.drop(one.id);
      else if (one.revision !== this.#host.revision(one.id) && !this.#due.has(one.id)) await this.#fetch(one.id);
    }
    for (const id of this.#host.known()) if (!there.has(id) && !this.#refused.has(id)) await this.#give(id);
  }

  async #fetch(id) {
    if (await this.#host.take(await get(`${PATH}/${id}`))) this.changed(id);
  }

  async #give(id) {
    for (let left = TRIES; left > 0 && this.#host.known().includes(id); left -= 1) {
      try {
        const { revision } = await post(`${PATH}/${id}`, { base: this.#host.revision(id), ...this.#host.content(id) });
        this.#given.add(id);
        await this.#host.saved(id, revision);
        return;
      } catch (error) {
        if (error.data?.details?.rule !== "revision") {
          this.#refused.add(id); // until there is something new in it
          throw error;
        }
        await this.#fetch(id); // what another page said there is in it now, and ours with it
      }
    }
  }
}
