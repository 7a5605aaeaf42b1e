// Bun under measurement: `bun bun.js PORT`. /echo sends a body back, /drop reads it and lets go of it, /json
// answers with an object, everything else says hello.
const text = { headers: { "content-type": "text/plain" } };

async function answer(request) {
  const path = new URL(request.url).pathname;
  if (path === "/echo") return new Response(await request.arrayBuffer());
  if (path === "/drop") await request.arrayBuffer();
  if (path === "/json") return Response.json({ message: "Hello, World!" });
  return new Response("Hello, World!\n", text);
}

function serve(request) {
  return request.method === "GET" && request.url.endsWith("/")
    ? new Response("Hello, World!\n", text)
    : answer(request);
}

Bun.serve({ hostname: "127.0.0.1", port: Number(Bun.argv[2]), fetch: serve });
