// Socket.IO with its adapter in memory: `node socketio.js FOLDER PORT`, with the folder of its package. All
// sockets get the bodies that are posted to /publish.
const [folder, port] = process.argv.slice(2);
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
http.listen(Number(port), "127.0.0.1");
