// BLAKE3, plain hashing of bytes to 32 bytes. A hash is a tree: chunks of 1024 bytes, joined in pairs.

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const MIXED = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];
const ROUNDS = 7;
const BLOCK = 64;
const CHUNK = 1024;
const CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8;

/** The 32 bytes of the hash over `bytes`. */
export function blake3(bytes) {
  const top = subtree(bytes, 0);
  const out = new DataView(new ArrayBuffer(32));
  compress({ ...top, flags: top.flags | ROOT }).forEach((word, place) => out.setUint32(4 * place, word, true));
  return new Uint8Array(out.buffer);
}

/** What the last compression of a part of the tree takes, so that the top one can be told that it is the top. */
function subtree(bytes, first) {
  if (bytes.length <= CHUNK) return chunk(bytes, first);
  const left = leftLength(bytes.length);
  const words = [
    ...compress(subtree(bytes.subarray(0, left), first)),
    ...compress(subtree(bytes.subarray(left), first + left / CHUNK)),
  ];
  return { cv: IV, words, counter: 0, length: BLOCK, flags: PARENT };
}

/** The left side holds as many whole chunks as a power of two allows, and leaves at least a byte. */
function leftLength(length) {
  const chunks = Math.floor((length - 1) / CHUNK);
  return CHUNK * 2 ** Math.floor(Math.log2(chunks));
}

function chunk(bytes, counter) {
  let cv = IV, start = CHUNK_START, place = 0;
  for (; bytes.length - place > BLOCK; place += BLOCK) {
    cv = compress({ cv, words: words(bytes.subarray(place, place + BLOCK)), counter, length: BLOCK, flags: start });
    start = 0;
  }
  const rest = bytes.subarray(place);
  return { cv, words: words(rest), counter, length: rest.length, flags: start | CHUNK_END };
}

function words(block) {
  const padded = new Uint8Array(BLOCK);
  padded.set(block);
  const view = new DataView(padded.buffer);
  return Array.from({ length: 16 }, (_, place) => view.getUint32(4 * place, true));
}

function compress({ cv, words: message, counter, length, flags }) {
  const low = counter >>> 0, high = Math.floor(counter / 2 ** 32);
  const v = Uint32Array.of(...cv, ...IV.slice(0, 4), low, high, length, flags);
  let m = message;
  for (let round = 0; round < ROUNDS; round += 1) {
    MIXED.forEach(([a, b, c, d], place) => mix(v, a, b, c, d, m[2 * place], m[2 * place + 1]));
    m = ORDER.map((place) => m[place]);
  }
  return Array.from({ length: 8 }, (_, place) => (v[place] ^ v[place + 8]) >>> 0);
}

function mix(v, a, b, c, d, x, y) {
  v[a] = v[a] + v[b] + x;
  v[d] = turned(v[d] ^ v[a], 16);
  v[c] = v[c] + v[d];
  v[b] = turned(v[b] ^ v[c], 12);
  v[a] = v[a] + v[b] + y;
  v[d] = turned(v[d] ^ v[a], 8);
  v[c] = v[c] + v[d];
  v[b] = turned(v[b] ^ v[c], 7);
}

const turned = (word, by) => (word >>> by) | (word << (32 - by));
