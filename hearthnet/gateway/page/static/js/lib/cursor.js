// Where a stream stands: each frame once, in order, also over a connection that broke. No I/O here.

const TERMINAL = new Set(["done", "error", "suspended"]);
const SNAPSHOT = "snapshot";
export const ACK_EVERY = 8;

/** The gateway broke the rules of a stream. */
export class BadStream extends Error {}

export class Cursor {
  /** `stream` and `after` as they were kept, where the stream was opened by an earlier page. */
  constructor({ stream = "", run = "", after = 0 } = {}) {
    this.stream = stream;
    this.run = run;
    this.after = after;
    this.acked = after;
    this.ended = false;
  }

  /**
   * The frame if it is news, null if it was had before; throws `BadStream` where one is missing. A snapshot stands
   * for all frames up to its number.
   */
  take(frame) {
    if (frame.event === "opened") return this.#open(frame);
    if (!Number.isSafeInteger(frame.seq)) throw new BadStream("a frame without a number");
    if (frame.seq <= this.after) return null;
    if (frame.seq !== this.after + 1 && frame.event !== SNAPSHOT) throw new BadStream(`frame ${frame.seq} after ${this.after}`);
    if (this.ended) throw new BadStream("a frame after the last");
    this.after = frame.seq;
    this.ended = TERMINAL.has(frame.event);
    return frame;
  }

  #open({ data }) {
    if (this.stream && data.stream !== this.stream) this.after = this.acked = 0;
    this.stream = data.stream;
    this.run = data.run || this.run;
    return { event: "opened", data };
  }

  /** The number to acknowledge, once what came is kept; 0 where it is too early. */
  due() {
    return this.after - this.acked >= ACK_EVERY ? this.after : 0;
  }

  /** What was acknowledged. */
  acknowledged(upto) {
    this.acked = Math.max(this.acked, upto);
  }

  /** The first frame of a connection that goes on with this stream. */
  get resume() {
    return { type: "resume", stream: this.stream, after: this.after };
  }

  /** What must be kept to go on with it from another page. */
  get kept() {
    return { stream: this.stream, run: this.run, after: this.after };
  }
}
