//! A store on loopback that keeps blobs in a directory: plain `PUT` and `GET`, or enough of S3. It can be told to fail.
//! Nothing of a blob stays in memory, so what a test measures is the client's.

// By its path, for `tests/blob_memory.rs` has this file as a module too.
#[path = "server/s3.rs"]
mod s3;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http,
    S3,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Answered with this status, before any of a body is read.
    Status(u16, &'static str),
    /// Has no room for a body of more than so many bytes.
    Crowded(u64),
    /// Says nothing until the client leaves.
    Hang,
    /// Gives half of the body, then says nothing.
    HangInBody,
    /// Gives half of the body, then leaves.
    CutBody,
    /// Gives half of the body and calls it all.
    Shorten,
    /// Gives the body with one byte changed.
    Alter,
    /// Leaves at once.
    Leave,
}

/// A token that only those who may use the store have.
pub(crate) const TOKEN: &str = "canary-token-0b9f";
/// The same for S3.
pub(crate) const SECRET_KEY: &str = "canary-secret-77aa";
pub(crate) const KEY_ID: &str = "AKIDEXAMPLE";

/// No client of these tests is silent for so long.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
}

struct Shared {
    speaks: Speaks,
    root: PathBuf,
    /// For requests with this method.
    act: Mutex<Option<(&'static str, Act)>>,
    heads: Mutex<Vec<String>>,
    over: AtomicBool,
    fresh: AtomicU64,
}

/// A request without its body.
struct Head {
    method: String,
    /// Decoded as far as these tests need it.
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
}

impl Head {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value)
    }

    fn length(&self) -> u64 {
        self.header("content-length").parse().unwrap_or(0)
    }
}

impl Server {
    pub(crate) fn new(speaks: Speaks, root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            speaks,
            root: root.to_owned(),
            act: Mutex::default(),
            heads: Mutex::default(),
            over: AtomicBool::new(false),
            fresh: AtomicU64::new(0),
        });
        let ours = shared.clone();
        let serving = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if ours.over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = connection else { continue };
                let shared = ours.clone();
                // A client that gives up is not an error of the server's.
                std::thread::spawn(move || shared.serve(stream).ok());
            }
        });
        Self {
            address,
            shared,
            serving: Some(serving),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this goes wrong with requests of that method.
    pub(crate) fn fail(&self, method: &'static str, act: Act) {
        *self.shared.act.lock().expect("nothing panics") = Some((method, act));
    }

    pub(crate) fn work_again(&self) {
        *self.shared.act.lock().expect("nothing panics") = None;
    }

    /// The first lines of all requests with this method.
    pub(crate) fn heard(&self, method: &str) -> Vec<String> {
        let heads = self.shared.heads.lock().expect("nothing panics");
        let heads = heads.iter().filter(|head| head.starts_with(method));
        heads.cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        TcpStream::connect(self.address).ok(); // so that it looks
        if let Some(serving) = self.serving.take() {
            serving.join().ok(); // a panic was shown where it happened
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(BOUND))?;
        stream.set_write_timeout(Some(BOUND))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(head) = read_head(&mut reader)? {
            let line = format!("{} {} {:?}", head.method, head.path, head.query);
            self.heads.lock().expect("nothing panics").push(line);
            let act = *self.act.lock().expect("nothing panics");
            let act = act.filter(|(method, _)| *method == head.method);
            let act = act.map(|(_, act)| match act {
                Act::Crowded(most) if head.length() > most => Act::Status(507, ""),
                act => act,
            });
            match act {
                Some(Act::Leave) => return Ok(()),
                // A body may still come.
                Some(Act::Hang) => return io::copy(&mut reader, &mut io::sink()).map(drop),
                Some(Act::Status(status, body)) => {
                    // Without `Expect` the body is on its way already.
                    if head.header("expect").is_empty() {
                        io::copy(&mut (&mut reader).take(head.length()), &mut io::sink())?;
                    }
                    let closes = "connection: close\r\n";
                    answer(&mut stream, status, closes, body.as_bytes())?;
                    // Who waited for a second and sends the body all the same reads the answer after that.
                    stream.shutdown(Shutdown::Write)?;
                    return io::copy(&mut reader, &mut io::sink()).map(drop);
                }
                _ => (),
            }
            if !head.header("expect").is_empty() {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let body = self.receive(&head, &mut reader)?;
            match self.speaks {
                Speaks::Http => self.plain(&head, &body, &mut stream, act)?,
                Speaks::S3 => self.s3(&head, &body, &mut stream, act)?,
            }
            fs::remove_file(&body).ok(); // unless it became a blob
        }
        Ok(())
    }

    fn receive(&self, head: &Head, reader: &mut impl Read) -> io::Result<PathBuf> {
        let path = self.root.join(format!(
            "body-{}",
            self.fresh.fetch_add(1, Ordering::Relaxed)
        ));
        let mut body = reader.take(head.length());
        let came = io::copy(&mut body, &mut File::create(&path)?)?;
        // Half a body is no blob.
        match came == head.length() {
            true => Ok(path),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn plain(
        &self,
        head: &Head,
        body: &Path,
        stream: &mut TcpStream,
        act: Option<Act>,
    ) -> io::Result<()> {
        if head.header("authorization") != format!("Bearer {TOKEN}") {
            return answer(stream, 401, "", b"");
        }
        let place = self.root.join(head.path.trim_start_matches('/'));
        match &*head.method {
            "PUT" => {
                store(body, &place)?;
                answer(stream, 201, "", b"")
            }
            "DELETE" => match fs::remove_file(place) {
                Ok(()) => answer(stream, 204, "", b""),
                Err(_) => answer(stream, 404, "", b""),
            },
            method => give(stream, &place, method == "HEAD", "", act),
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines.first().map_or("", |line| line).split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let target = first.next().unwrap_or_default().replace("%2F", "/");
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), value.to_owned())
    };
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    Ok(Some(Head {
        method,
        path: path.to_owned(),
        query: query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(pair)
            .collect(),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
    }))
}

fn store(body: &Path, place: &Path) -> io::Result<()> {
    fs::create_dir_all(place.parent().expect("a blob is in a folder"))?;
    fs::rename(body, place)
}

fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) -> io::Result<()> {
    // A status without a body has no length either.
    let length = match status {
        204 => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    write!(stream, "HTTP/1.1 {status} X\r\n{headers}{length}\r\n")?;
    stream.write_all(body)
}

/// A file as the answer, or what is to go wrong with it.
fn give(
    stream: &mut TcpStream,
    place: &Path,
    head_only: bool,
    headers: &str,
    act: Option<Act>,
) -> io::Result<()> {
    let Ok(mut file) = File::open(place) else {
        return answer(stream, 404, "", b"");
    };
    let size = file.metadata()?.len();
    let length = match act {
        Some(Act::Shorten) => size / 2,
        _ => size,
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\n{headers}content-length: {length}\r\n\r\n"
    )?;
    if head_only {
        return Ok(());
    }
    match act {
        Some(Act::HangInBody | Act::CutBody) => {
            io::copy(&mut file.take(size / 2), stream)?;
            if let Some(Act::HangInBody) = act {
                stream.read(&mut [0]).map(drop)?;
            }
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        Some(Act::Alter) => {
            let mut first = [0];
            file.read_exact(&mut first)?;
            stream.write_all(&[first[0] ^ 1])?;
            file.seek(SeekFrom::Start(1))?;
            io::copy(&mut file, stream).map(drop)
        }
        _ => io::copy(&mut file.take(length), stream).map(drop),
    }
}
