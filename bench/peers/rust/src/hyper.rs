// hyper under measurement: `hyper PORT [CERTIFICATE KEY]`, one thread; with a certificate it speaks TLS, by
// rustls. /echo sends a body back, /drop reads it and lets go of it, /json answers with an object, everything
// else says hello.
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{header, Error, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

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

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    // A client that leaves is no news.
    let _ = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let secure = (arguments.len() > 3).then(|| acceptor(&arguments[2], &arguments[3]));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", arguments[1].parse().unwrap())).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        match secure.clone() {
            None => tokio::spawn(serve(stream)),
            Some(secure) => tokio::spawn(async move {
                if let Ok(stream) = secure.accept(stream).await {
                    serve(stream).await;
                }
            }),
        };
    }
}
