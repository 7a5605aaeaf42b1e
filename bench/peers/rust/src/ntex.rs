// ntex under measurement: `ntex PORT`, one worker. /echo sends a body back, /drop reads it and lets go of it,
// /json answers with an object, everything else says hello.
use ntex::http::{HttpService, Request, Response};
use ntex::util::{stream_recv, Bytes, BytesMut};

const HELLO: Bytes = Bytes::from_static(b"Hello, World!\n");

async fn answer(mut request: Request) -> Result<Response, std::io::Error> {
    let path = request.path().to_owned();
    let (kind, content) = match path.as_str() {
        "/echo" => {
            let mut body = BytesMut::new();
            let mut payload = request.take_payload();
            while let Some(piece) = stream_recv(&mut payload).await {
                body.extend_from_slice(&piece.map_err(std::io::Error::other)?);
            }
            ("application/octet-stream", body.freeze())
        }
        "/drop" => {
            let mut payload = request.take_payload();
            while let Some(piece) = stream_recv(&mut payload).await {
                piece.map_err(std::io::Error::other)?;
            }
            ("text/plain", HELLO)
        }
        "/json" => ("application/json", Bytes::from(format!("{{\"message\":{:?}}}", "Hello, World!"))),
        _ => ("text/plain", HELLO),
    };
    Ok(Response::Ok().content_type(kind).body(content))
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap();
    ntex::server::Server::build()
        .bind("peer", format!("127.0.0.1:{port}"), |_| HttpService::build().finish(answer))?
        .workers(1)
        .run()
        .await
}
