//! Redis over REST as hosted services and proxies speak it: a JSON array of words in, `result` or
//! `error` out, a bearer token before everything.

use super::wire::{Message, Resp, Said};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

/// What the bridge asks for.
pub const TOKEN: &str = "a-token-of-the-tests";

/// Starts one in front of a Redis; it lives as long as the test.
///
/// # Panics
/// Where there is no port.
#[must_use]
pub fn start(socket: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let socket: PathBuf = socket.clone();
            std::thread::spawn(move || serve(stream, &socket));
        }
    });
    addr
}

fn serve(stream: TcpStream, socket: &Path) {
    let mut redis = Resp::connect(socket).expect("Redis is there");
    let mut reader = BufReader::new(stream);
    while let Some(request) = Message::read(&mut reader) {
        let (status, body) = answer(&mut redis, &request);
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // In one piece: two would wait for each other's acknowledgement.
        if reader
            .get_mut()
            .write_all((head + &body).as_bytes())
            .is_err()
        {
            return;
        }
    }
}

fn answer(redis: &mut Resp, request: &Message) -> (u16, Value) {
    let wanted = ("authorization".to_owned(), format!("Bearer {TOKEN}"));
    if !request.headers.contains(&wanted) {
        return (401, json!({"error": "Unauthorized"}));
    }
    let Ok(words) = serde_json::from_slice::<Vec<String>>(&request.body) else {
        return (400, json!({"error": "ERR failed to parse command"}));
    };
    match redis.command(&words) {
        Said::Error(text) => (400, json!({ "error": text })),
        said => (200, json!({ "result": value(said) })),
    }
}

fn value(said: Said) -> Value {
    match said {
        Said::Status(text) | Said::Error(text) => text.into(),
        Said::Number(number) => number.into(),
        Said::Text(text) => text
            .map(|t| String::from_utf8_lossy(&t).into_owned())
            .into(),
        Said::Array(items) => items.into_iter().map(value).collect(),
    }
}
