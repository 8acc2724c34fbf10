// Loaded by `node -r` before a peer that offers no such options: it listens on a free port of the loopback
// address, says which, and reads the time from a file, so that a day can pass in a test.
"use strict";

const fs = require("node:fs");
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const asked = typeof args[0] === "object" && args[0] !== null ? args[0].port : args[0];
  const done = args.findLast((one) => typeof one === "function");
  this.once("listening", () => {
    process.stdout.write(`${JSON.stringify({ asked: Number(asked), port: this.address().port })}\n`);
  });
  return listen.call(this, { host: "127.0.0.1", port: 0 }, done);
};

const ahead = process.env.PEER_CLOCK_FILE;
if (ahead) {
  const RealDate = Date;
  const now = () => RealDate.now() + Number(fs.readFileSync(ahead, "utf8") || "0");
  globalThis.Date = class extends RealDate {
    constructor(...args) {
      super(...(args.length ? args : [now()]));
    }
    static now() {
      return now();
    }
  };
}
