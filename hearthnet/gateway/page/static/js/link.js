// One WebSocket to the gateway that is made again when it breaks, and goes on where it stopped.

import { Cursor } from "./lib/cursor.js";

const SUBPROTOCOL = "hearthnet-bus.v2";
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 4000;
const FULL = new Set(["capacity_exceeded", "rate_limited"]);
const FINAL = new Set([4400, 4401, 4409, 4413, 4426]);

const address = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/socket`;

/** A connection and its reconnections. Parts below say what the first frame is and what a frame means. */
class Link {
  #socket = null;
  #timer = 0;
  #tries = 0;
  #over = false;

  connect() {
    if (this.#over) return;
    clearTimeout(this.#timer);
    const socket = this.#socket = new WebSocket(address(), SUBPROTOCOL);
    let chain = Promise.resolve();
    socket.onopen = async () => {
      const first = await this.first();
      if (socket === this.#socket) this.send(first);
    };
    socket.onmessage = ({ data }) => {
      chain = chain.then(() => (socket === this.#socket && !this.#over ? this.heard(JSON.parse(data)) : null)).catch(
        (error) => this.failed(error));
    };
    socket.onclose = ({ code, reason }) => {
      chain.then(() => { if (socket === this.#socket && !this.#over) this.#closed(code, reason); });
    };
  }

  #closed(code, reason) {
    this.#socket = null;
    if (FINAL.has(code)) {
      this.end();
      this.refused(code, reason);
      return;
    }
    this.#tries += 1;
    this.broke(this.#tries);
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#tries - 1));
    this.#timer = setTimeout(() => this.connect(), wait);
  }

  /** The connection stands and speaks. */
  works() {
    this.#tries = 0;
  }

  /** Whether it was sent. */
  send(frame) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  /** Nothing more is wanted. */
  end() {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#socket?.close(1000);
    this.#socket = null;
  }

  /** Connects now rather than later, as a person has come back. */
  hurry() {
    if (!this.#over && this.#socket === null) this.connect();
  }
}

/** A call or a saved run. `hear` gets each frame once; `keep` is awaited before frames are acknowledged. */
export class Stream extends Link {
  #cursor;
  #ports;
  #opened = false;

  /** `open()` gives the first frame of a new stream; `kept` is what an earlier page kept of it. */
  constructor({ kept, ...ports }) {
    super();
    this.#cursor = new Cursor(kept);
    this.#ports = ports;
  }

  get kept() {
    return this.#cursor.kept;
  }

  async first() {
    this.#opened = false;
    const { stream, run } = this.#cursor;
    if (stream) return this.#cursor.resume;
    return run ? { type: "resume", run } : this.#ports.open();
  }

  async heard(raw) {
    if (raw.event === "opened") {
      this.#opened = true;
      this.works();
    } else if (!this.#opened) return this.#turnedAway(raw);
    const frame = this.#cursor.take(raw);
    if (!frame) return null;
    this.#ports.hear(frame);
    return this.#after(frame);
  }

  async #after() {
    const upto = this.#cursor.due();
    if (upto || this.#cursor.ended) await this.#ports.keep(this.kept);
    if (this.#cursor.ended) {
      this.end();
      this.#ports.over();
    } else if (upto && this.send({ type: "ack", upto })) this.#cursor.acknowledged(upto);
  }

  /** Not served: later, where it is full; by the run it belongs to, where the stream is gone; or not at all. */
  #turnedAway({ data }) {
    if (FULL.has(data.error)) return;
    const { stream, run } = this.#cursor;
    if (stream && run) {
      this.#cursor = new Cursor({ run });
      this.#ports.again();
      return;
    }
    this.end();
    this.#ports.lost(data, { resumed: Boolean(stream || run) });
  }

  broke(tries) {
    this.#ports.state(tries > 2 ? "away" : "broken");
  }

  refused(code, reason) {
    this.#ports.lost({ error: code === 4401 ? "unauthorized" : code === 4409 ? "replaced" : "bad_request", message: reason });
  }

  failed(error) {
    this.end();
    this.#ports.lost({ error: "bad_request", message: error.message });
  }
}

/** A topic that is followed for as long as the page is open. */
export class Topic extends Link {
  #topic;
  #hear;
  #seq = 0;
  #unacked = 0;

  constructor(topic, hear) {
    super();
    this.#topic = topic;
    this.#hear = hear;
  }

  async first() {
    return { type: "subscribe", topic: this.#topic, ...(this.#seq ? { since_seq: this.#seq } : {}) };
  }

  async heard({ event, data, seq }) {
    this.works();
    if (!seq) return;
    this.#seq = seq;
    this.#unacked += 1;
    if (this.#unacked >= 4 && this.send({ type: "ack", upto: this.#seq })) this.#unacked = 0;
    this.#hear({ event, data });
  }

  broke() {}

  refused() {}

  failed(error) {
    console.warn(error);
  }
}
