//! A server that does as it is told, one act per request; the last act is repeated.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a server does with a request that it has read.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Says nothing until the client leaves.
    Stall,
    /// Begins an answer, then says nothing.
    StallInBody,
    /// Says nothing and leaves.
    CloseAtOnce,
    /// Leaves in the middle of its answer.
    CloseEarly,
    /// Says what is not HTTP.
    Rubbish,
    /// More than 16 MiB.
    Huge,
}

impl Act {
    pub(super) fn answer(status: u16, body: impl Into<String>) -> Self {
        Self::Answer {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// Head and body of a request.
pub(super) type Heard = (String, Vec<u8>);

pub(super) struct TestServer {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

/// No client of these tests is silent for so long.
const BOUND: Duration = Duration::from_secs(60);

impl TestServer {
    pub(super) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let (ears, is_over) = (heard.clone(), over.clone());
        let serving = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = connection else { continue };
                let (ears, acts) = (ears.clone(), acts.clone());
                // A client that gives up is not an error of the server's.
                std::thread::spawn(move || serve(stream, &ears, &acts).ok());
            }
        });
        Self {
            address,
            heard,
            over,
            serving: Some(serving),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.heard
            .lock()
            .expect("nothing panics under the lock")
            .clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        TcpStream::connect(self.address).ok(); // so that it looks
        if let Some(serving) = self.serving.take() {
            serving.join().ok(); // a panic was shown where it happened
        }
    }
}

fn serve(mut stream: TcpStream, ears: &Mutex<Vec<Heard>>, acts: &[Act]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    let request = hear(&stream)?;
    let number = {
        let mut heard = ears.lock().expect("nothing panics under the lock");
        heard.push(request);
        heard.len() - 1
    };
    let until_client_leaves = |mut stream: TcpStream| stream.read(&mut [0; 1]).map(drop);
    match &acts[number.min(acts.len() - 1)] {
        Act::Answer {
            status,
            headers,
            body,
        } => {
            let headers: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        }
        Act::Stall => until_client_leaves(stream),
        Act::StallInBody => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{{\"choices\""
            )?;
            until_client_leaves(stream)
        }
        Act::CloseAtOnce => Ok(()),
        Act::CloseEarly => write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{{\"choices\""
        ),
        Act::Rubbish => stream.write_all(&[0xff; 4096]),
        Act::Huge => {
            let piece = vec![b'x'; 1 << 20];
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
            (0..40).try_for_each(|_| stream.write_all(&piece))
        }
    }
}

fn hear(stream: &TcpStream) -> std::io::Result<Heard> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            break;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok((head, body))
}
