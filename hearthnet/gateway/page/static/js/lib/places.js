// Where the nodes of the picture stand: the own one in the middle, the others around it. No DOM here.

export const WIDTH = 900;
export const HEIGHT = 560;

/** For each node, given how many things lie around it: `{x, y, r, around: [{x, y, side}]}`. */
export function place(counts) {
  const alone = counts.length === 1;
  const [cx, cy] = [WIDTH / 2, HEIGHT / 2];
  return counts.map((count, at) => {
    if (at === 0) return spot(cx, cy, alone ? 58 : 44, alone ? 190 : 104, alone ? 170 : 96, count);
    const angle = turn(at - 1, counts.length - 1);
    const small = counts.length > 7;
    return spot(cx + 310 * Math.cos(angle), cy + 195 * Math.sin(angle), small ? 26 : 36, small ? 50 : 76, small ? 42 : 66, count);
  });
}

const turn = (at, of) => (2 * Math.PI * at) / of - Math.PI / 2 + Math.PI / Math.max(2, of);

function spot(x, y, r, rx, ry, count) {
  const around = Array.from({ length: count }, (_, at) => {
    const angle = turn(at, count);
    const cosine = Math.cos(angle);
    return { x: x + rx * cosine, y: y + ry * Math.sin(angle), side: Math.abs(cosine) < 0.05 ? 1 : Math.sign(cosine) };
  });
  return { x, y, r, around };
}
