// fasthttp under measurement: `fasthttp PORT`, one processor. /echo sends a body back, /drop reads it and
// lets go of it, /json answers with an object, everything else says hello.
package main

import (
	"encoding/json"
	"log"
	"os"
	"runtime"

	"github.com/valyala/fasthttp"
)

const bodyBytesMax = 10_000_000

var hello = []byte("Hello, World!\n")

func answer(context *fasthttp.RequestCtx) {
	switch string(context.Path()) {
	case "/echo":
		context.SetContentType("application/octet-stream")
		context.SetBody(context.PostBody())
	case "/drop":
		context.PostBody()
		context.SetContentType("text/plain")
		context.SetBody(hello)
	case "/json":
		text, err := json.Marshal(map[string]string{"message": "Hello, World!"})
		if err != nil {
			log.Fatal(err)
		}
		context.SetContentType("application/json")
		context.SetBody(text)
	default:
		context.SetContentType("text/plain")
		context.SetBody(hello)
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	server := &fasthttp.Server{Handler: answer, MaxRequestBodySize: bodyBytesMax}
	log.Fatal(server.ListenAndServe("127.0.0.1:" + os.Args[1]))
}
