// Lists the services of a node with NATS's own client for them, and prints what they said as JSON.
// Arguments: the server's URL, the file with the operator's seed, how many services there are.
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";

const [url, seedFile, count] = process.argv.slice(2);
const seed = new TextEncoder().encode(readFileSync(seedFile, "utf8").trim());
const connection = await connect({
  servers: url,
  authenticator: nkeyAuthenticator(seed),
  inboxPrefix: "_INBOX_ops",
  reconnect: false,
});

async function gathered(answers) {
  const found = [];
  for await (const answer of await answers) found.push(answer);
  return found;
}

// Not the client's own patience, which ends 300 ms after an answer: on a busy machine the next one is later.
function asking(services) {
  return new Svcm(connection).client({ strategy: "count", maxMessages: services, maxWait: 60_000 });
}

try {
  const everybody = asking(Number(count));
  const ping = await gathered(everybody.ping());
  const one = ping[0];
  const [info, stats, named, single] = await Promise.all([
    gathered(everybody.info()),
    gathered(everybody.stats()),
    gathered(asking(1).info(one.name)),
    gathered(asking(1).stats(one.name, one.id)),
  ]);
  process.stdout.write(JSON.stringify({ ping, info, stats, named, single }));
} finally {
  await connection.close();
}
