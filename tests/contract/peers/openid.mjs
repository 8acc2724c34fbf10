// An OpenID provider (npm's oidc-provider) on a free port of the loopback address, which it says on its output.
// OPENID_CLIENT is the one client that it knows, OPENID_PEOPLE what it says of each of its people.
import http from "node:http";

import { Provider } from "oidc-provider";

const client = JSON.parse(process.env.OPENID_CLIENT);
const people = JSON.parse(process.env.OPENID_PEOPLE);

const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [client],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, ...people[id] }),
    }),
    pkce: { required: () => true },
    cookies: { keys: ["kept for one test"] },
  });
  server.on("request", provider.callback());
  process.stdout.write(`${JSON.stringify({ port })}\n`);
});
