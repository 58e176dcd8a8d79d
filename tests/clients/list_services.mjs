// Lists the services of a node with NATS's own client for them, and prints what they said as JSON.
// Arguments: the server's URL, the file with the operator's seed.
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";

const [url, seedFile] = process.argv.slice(2);
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

try {
  const client = new Svcm(connection).client();
  const ping = await gathered(client.ping());
  const one = ping[0];
  const [info, stats, named, single] = await Promise.all([
    gathered(client.info()),
    gathered(client.stats()),
    gathered(client.info(one.name)),
    gathered(client.stats(one.name, one.id)),
  ]);
  process.stdout.write(JSON.stringify({ ping, info, stats, named, single }));
} finally {
  await connection.close();
}
