// hyper under measurement: `hyper PORT`, one thread. /echo sends a body back, /drop reads it and lets go of
// it, /json answers with an object, everything else says hello.
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{header, Error, Request, Response};
use hyper_util::rt::TokioIo;

const HELLO: Bytes = Bytes::from_static(b"Hello, World!\n");

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Error> {
    let (kind, content) = match request.uri().path() {
        "/echo" => ("application/octet-stream", request.into_body().collect().await?.to_bytes()),
        "/drop" => {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            ("text/plain", HELLO)
        }
        "/json" => ("application/json", Bytes::from(format!("{{\"message\":{:?}}}", "Hello, World!"))),
        _ => ("text/plain", HELLO),
    };
    Ok(Response::builder().header(header::CONTENT_TYPE, kind).body(Full::new(content)).unwrap())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(
            http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service_fn(answer)),
        );
    }
}
