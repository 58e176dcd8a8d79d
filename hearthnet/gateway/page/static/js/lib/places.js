// Where the nodes of the picture stand: the own one in the middle, the others around it. No DOM here.

export const WIDTH = 1000;
const FLAT = 400;
const HEIGHT = 560;
const FEW = 3;
const MANY = 7;

/** For each node, given how many things lie around it: `{height, spots: [{x, y, r, around: [{x, y, side}]}]}`. */
export function place(counts) {
  const alone = counts.length < 2;
  const height = counts.length <= FEW ? FLAT : HEIGHT;
  const middle = { x: WIDTH / 2, y: height / 2 };
  const small = counts.length > MANY;
  const spots = counts.map((count, at) => {
    if (at === 0) return alone ? spot(middle, 62, 230, 135, count) : spot(middle, 50, 112, 100, count);
    const angle = turn(at - 1, counts.length - 1);
    const there = { x: middle.x + 340 * Math.cos(angle), y: middle.y + 195 * Math.sin(angle) };
    return small ? spot(there, 28, 52, 44, count) : spot(there, 40, 82, 72, count);
  });
  return { height, spots };
}

const turn = (at, of) => (2 * Math.PI * at) / of - Math.PI / 2 + Math.PI / Math.max(2, of);

function spot({ x, y }, r, rx, ry, count) {
  const around = Array.from({ length: count }, (_, at) => {
    const angle = turn(at, count);
    const cosine = Math.cos(angle);
    return { x: x + rx * cosine, y: y + ry * Math.sin(angle), side: cosine < -0.05 ? -1 : 1 };
  });
  return { x, y, r, around };
}
