// uWebSockets under measurement: `uws PORT [CERTIFICATE KEY]`, one thread. /ws is a WebSocket that echoes,
// everything else says hello.
#include "App.h"

#include <cstdlib>

struct Nothing {};

template <typename App> int serve(App app, int port) {
    app.get("/*", [](auto *response, auto *) {
           response->writeHeader("Content-Type", "text/plain")->end("Hello, World!\n");
       })
        .template ws<Nothing>("/ws", {.idleTimeout = 0,
                                      .message = [](auto *socket, std::string_view message,
                                                    uWS::OpCode opcode) { socket->send(message, opcode); }})
        .listen("127.0.0.1", port, [](auto *listener) {
            if (!listener) std::exit(1);
        })
        .run();
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2 && count != 4) return 2;
    int port = std::atoi(arguments[1]);
    if (count == 2) return serve(uWS::App(), port);
    return serve(uWS::SSLApp({.key_file_name = arguments[3], .cert_file_name = arguments[2]}), port);
}
