// may_minihttp under measurement: `may PORT`, one worker. /json answers with an object, everything else says
// hello.
use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, request: Request, response: &mut Response) -> std::io::Result<()> {
        if request.path() == "/json" {
            response.header("Content-Type: application/json");
            response.body_vec(format!("{{\"message\":{:?}}}", "Hello, World!").into_bytes());
        } else {
            response.header("Content-Type: text/plain");
            response.body("Hello, World!\n");
        }
        Ok(())
    }
}

fn main() {
    may::config().set_workers(1);
    let port = std::env::args().nth(1).unwrap();
    HttpServer(Hello).start(format!("127.0.0.1:{port}")).unwrap().join().unwrap();
}
