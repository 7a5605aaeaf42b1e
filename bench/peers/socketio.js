// Socket.IO: `node socketio.js FOLDER PORT [REDIS]`, with the folder of its package. All sockets get the bodies
// that are posted to /publish, with the URL of a Redis those of all servers that share it.
const [folder, port, redis] = process.argv.slice(2);
const http = require("http").createServer((request, response) => {
  let body = "";
  request.on("data", (piece) => (body += piece));
  request.on("end", () => {
    if (request.url === "/publish") io.emit("news", body);
    response.writeHead(200, { "content-type": "text/plain" }).end("Hello, World!\n");
  });
});
// Nothing but messages is to be counted.
const io = new (require(`${folder}/socket.io`).Server)(http, {
  transports: ["websocket"],
  pingInterval: 1_000_000_000,
});
async function share() {
  const publisher = require(`${folder}/redis`).createClient({ url: redis });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  io.adapter(require(`${folder}/@socket.io/redis-adapter`).createAdapter(publisher, subscriber));
}
(redis ? share() : Promise.resolve()).then(() => http.listen(Number(port), "127.0.0.1"));
