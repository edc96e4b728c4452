// Perfetto's trace processor, run in a worker as on its page. Requests are read from stdin and answers written to stdout,
// each preceded by its length in 32 bits, little endian: node trace_processor.cjs <folder of the page>
const fs = require("fs");
const path = require("path");

const page = process.argv[2];
const read = (url) => fs.readFileSync(path.join(page, path.basename(url)));
const port = {
  postMessage(answer) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(answer.length);
    process.stdout.write(Buffer.concat([length, Buffer.from(answer)]));
  },
};

// Globals of a worker, for code that checks whether it runs in one.
const self = { location: { href: "http://perfetto/engine_bundle.js" } };
class XMLHttpRequest {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const bytes = read(this.url);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
}
const scope = { self, location: self.location, WorkerGlobalScope: Object, XMLHttpRequest, process: undefined };
new Function(...Object.keys(scope), read("engine_bundle.js").toString())(...Object.values(scope));

setImmediate(() => {
  self.onmessage({ data: port });
  const requests = fs.readFileSync(0);
  for (let at = 0; at < requests.length; ) {
    const end = at + 4 + requests.readUInt32LE(at);
    port.onmessage({ data: new Uint8Array(requests.subarray(at + 4, end)) });
    at = end;
  }
});
