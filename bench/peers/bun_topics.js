// Bun's own publish and subscribe, with the paths of topics.pagi.pl: `bun bun_topics.js PORT`.
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(Bun.argv[2]),
  async fetch(request) {
    const path = new URL(request.url).pathname;
    if (path === "/ws" && server.upgrade(request)) return undefined;
    if (path === "/publish") server.publish("news", await request.text());
    return new Response("Hello, World!\n", { headers: { "content-type": "text/plain" } });
  },
  websocket: {
    perMessageDeflate: process.env.DEFLATE === "1",
    idleTimeout: 0,
    open(socket) {
      socket.subscribe("news");
    },
    message() {},
  },
});
