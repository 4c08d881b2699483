//! A canary in each thing that opens a cluster, and a call that hunts for them: at `limits` it finds no credentials, at
//! `strict` nothing at all. At `none` it finds them, so it can hunt.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fairtrial_tests::{RedisServer, Running, ServerTerms, Shell, note, running_with, wait_until};
use serde_json::{Value as Json, json};

use crate::cluster_users::{password, users};
use crate::environment::unprivileged_cli;

/// Whoever runs the server and owns what only its agents may read.
const SOMEBODY: u32 = 65_533;
const NOBODY: u32 = 65_534;

/// Never found below `none`.
const CREDENTIALS: [&str; 6] = [
    "user",
    "password",
    "token",
    "key",
    "environment",
    "envelope",
];
/// Not found at `strict` either.
const SURROUNDINGS: [&str; 4] = ["url", "argv", "blob", "cache"];

/// A secret that nobody can guess, and that `hunt_credentials.py` knows when it sees it.
fn canary(kind: &str) -> String {
    let mut bytes = [0; 8];
    let mut random = fs::File::open("/dev/urandom").expect("always there");
    std::io::Read::read_exact(&mut random, &mut bytes).expect("always there");
    format!("CANARY-{kind}-{:016x}", u64::from_le_bytes(bytes))
}

/// A process of the test's own, gone with it.
pub(crate) struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what surrounds the agent under test is no candidate"
)]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// A server behind TLS, a store behind a token, and files with secrets, all of them somebody else's.
struct Scene {
    /// The agent's place.
    shell: Shell,
    /// The submitter's, which would be another machine: nobody else reads it.
    desk: Shell,
    server: RedisServer,
    _store: Helper,
    port: u16,
    store_url: String,
    /// Who the agent is.
    user: String,
    password: String,
    agents_user: Option<u32>,
}

/// A store for blobs in a directory: PUT, GET, HEAD and DELETE for whoever has the token.
const STORE: &str = r#"
import http.server, os, sys
root, token = sys.argv[1], sys.stdin.readline().strip()
class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    def act(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != "Bearer " + token:
            return self.answer(401)
        path = os.path.join(root, self.path.rpartition("/")[2])
        if self.command == "PUT":
            with open(path, "wb") as file:
                file.write(sent)
            return self.answer(201)
        if not os.path.exists(path):
            return self.answer(404)
        if self.command == "DELETE":
            os.remove(path)
            return self.answer(204)
        with open(path, "rb") as file:
            self.answer(200, file.read())
    do_PUT = do_GET = do_HEAD = do_DELETE = act
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has one").port()
}

/// One certificate that is its own authority, for the server and for whoever comes.
pub(crate) fn make_certificate(dir: &Path) -> bool {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
                 -keyout server.key -out server.pem";
    let made = command("openssl")
        .args(words.split_whitespace())
        .current_dir(dir)
        .output();
    let made = made.is_ok_and(|output| output.status.success());
    if !made {
        note("skipped: no openssl; it is in the package `openssl`");
    }
    made
}

/// Writes what only its owner may read.
fn write_secret(path: &Path, text: &str, owner: Option<u32>) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    chown(path, owner, owner).expect("root may");
}

impl Scene {
    /// Set up for an agent of this user (none: our own, root). None, with the reason printed, if it cannot be.
    fn new(agents_user: Option<u32>) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            note("skipped: only root can give servers and files to others");
            return None;
        }
        let [shell, desk] = [Shell::new(), Shell::new()];
        chown(desk.path(), Some(SOMEBODY), Some(SOMEBODY)).expect("root may");
        fs::set_permissions(desk.path(), fs::Permissions::from_mode(0o700)).expect("root may");
        let tls = tempfile::tempdir().expect("a directory");
        if !make_certificate(tls.path()) {
            return None;
        }
        let [user, password] = ["user", "password"].map(canary);
        let port = free_port();
        let server = RedisServer::start_on(|dir| {
            let list = users();
            let agent = list
                .lines()
                .find(|line| line.starts_with("user agent "))
                .expect("it is there");
            let rules = agent.splitn(5, ' ').nth(4).expect("rules");
            let ours = format!("user {user} on >{password} {rules}\n");
            write_secret(&dir.join("users.acl"), &(list.clone() + &ours), None);
            for name in ["server.key", "server.pem"] {
                fs::copy(tls.path().join(name), dir.join(name)).expect("a copy");
            }
            let words = format!(
                "--aclfile users.acl --tls-port {port} --bind 127.0.0.1 --tls-key-file server.key --tls-cert-file \
                 server.pem --tls-ca-cert-file server.pem --tls-auth-clients optional"
            );
            ServerTerms {
                words: words.split_whitespace().map(str::to_owned).collect(),
                user: Some(SOMEBODY),
            }
        })?;
        let key = fs::read_to_string(tls.path().join("server.key")).expect("it was made");
        let secrets = shell.path().join("secrets");
        fs::create_dir(&secrets).expect("a directory");
        fs::copy(tls.path().join("server.pem"), secrets.join("server.pem")).expect("a copy");
        // A call of root's at `limits` is root without privileges: it does not read what is somebody else's.
        let owner = agents_user.or(Some(SOMEBODY));
        write_secret(
            &secrets.join("client.key"),
            &format!("{}\n{key}", canary("key")),
            owner,
        );
        let token = canary("token");
        write_secret(&secrets.join("token"), &token, owner);
        let blobs = shell.path().join("blobs");
        fs::create_dir(&blobs).expect("a directory");
        let (store, store_port) = start_store(&blobs, &token);
        let store_url = format!(
            "http://127.0.0.1:{store_port}/{}?token_file={}",
            canary("url"),
            secrets.join("token").display()
        );
        for path in [shell.path(), secrets.as_path()] {
            chown(path, agents_user, agents_user).expect("root may");
        }
        Some(Self {
            shell,
            desk,
            server,
            _store: store,
            port,
            store_url,
            user,
            password,
            agents_user,
        })
    }

    /// The agent's URL; with the key only where calls cannot read that.
    fn url(&self, with_key: bool) -> String {
        let Self {
            user,
            password,
            port,
            ..
        } = self;
        let secrets = self.shell.path().join("secrets");
        let secrets = secrets.display();
        let key = match with_key {
            true => format!("&cert={secrets}/server.pem&key={secrets}/client.key"),
            false => String::new(),
        };
        format!("rediss://{user}:{password}@localhost:{port}?ca={secrets}/server.pem{key}")
    }

    /// Whether there is a key and a store, that is, whether calls of this agent cannot read their files.
    fn has_files(&self, level: &str) -> bool {
        level != "limits" || self.agents_user.is_none()
    }

    fn agent(&self, level: &str, program: Option<&Path>) -> Running {
        let has_files = self.has_files(level);
        let mut words = vec![
            "agent",
            "--redis",
            "@-",
            "--slots",
            "3",
            "--name",
            "one",
            "--sandbox",
            level,
        ];
        if has_files {
            words.extend(["--blobs", &self.store_url]);
        }
        if level == "none" {
            words.push("--open-server-ok");
        }
        let cli = self
            .shell
            .fairtrial(words)
            .env("XQ7_ZKPWMV", canary("environment"));
        let cli = match program {
            None => cli,
            Some(program) => {
                let become_it = format!("shift; exec {} \"$@\"", program.display());
                let wrapper = [
                    "setpriv",
                    "--reuid=65534",
                    "--regid=65534",
                    "--clear-groups",
                    "--",
                ];
                let home = cli.env("HOME", self.shell.path());
                home.under_all(&[&wrapper[..], &["sh", "-c", &become_it, "sh"]].concat())
            }
        };
        let mut agent = cli.start();
        agent.say(&self.url(has_files));
        let line = agent.error_line();
        assert!(line.contains("agent one serves"), "{line}");
        agent
    }

    fn backend(&self, level: &str) -> String {
        let mut url = self.server.url_as("submitter", password("submitter"));
        if self.has_files(level) {
            url += &format!("&blobs={}", self.store_url.replace('?', "%3F"));
        }
        format!("@{}", self.desk.write("backend", &url).display())
    }

    /// A call that runs beside the hunter, and all that is in its envelope.
    fn sibling(&self, level: &str) -> Json {
        let [envelope, cache, argv, blob] = ["envelope", "cache", "argv", "blob"].map(canary);
        let source = format!(
            "import subprocess, sys\n\
             # {envelope}\n\
             def f(*args):\n    subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', '{argv}'])\n"
        );
        let mut call = json!({
            "id": "sibling", "source": source, "function": "f", "args": [envelope], "env": {"MINE": envelope},
            "sandbox": level,
        });
        if self.has_files(level) {
            self.desk
                .write("modules/module.py", &format!("SAID = '{cache}'\n"));
            let modules = self.desk.path().join("modules").display().to_string();
            call["args"] = json!([format!("{blob}{}", "x".repeat(40_000))]);
            call["python_path"] = json!([modules]);
        }
        call
    }
}

pub(crate) fn start_store(root: &Path, token: &str) -> (Helper, u16) {
    let mut child = command("python3")
        .args(["-c", STORE])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    writeln!(child.stdin.take().expect("piped"), "{token}").expect("it reads");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("it says its port");
    (Helper(child), line.trim().parse().expect("a port"))
}

/// What a call of an agent finds.
async fn hunted(scene: &Scene, level: &str, program: Option<&Path>) -> (BTreeSet<String>, Json) {
    let Scene { shell, desk, .. } = scene;
    let agent = scene.agent(level, program);
    if scene.agents_user.is_some() {
        // Who is not dumpable has entries of root's, whoever it is.
        let entry = format!("/proc/{}/environ", agent.pid().as_raw_nonzero());
        assert_eq!(
            fs::metadata(entry).expect("it runs").uid(),
            0,
            "the agent is not dumpable"
        );
    }
    let sibling = scene.sibling(level);
    let mark = sibling["source"]
        .as_str()
        .and_then(|text| text.split('\'').rev().nth(1))
        .expect("a mark");
    desk.write_lines("sibling.jsonl", std::slice::from_ref(&sibling));
    let backend = scene.backend(level);
    let waiting = desk
        .fairtrial(["batch", "sibling.jsonl", "--backend", &backend])
        .start();
    wait_until("the sibling runs", || !running_with(mark).is_empty()).await;
    let source = include_str!("../../programs/hunt_credentials.py");
    let grounds: Vec<PathBuf> = vec![shell.path().to_owned(), scene.server.dir().to_owned()];
    let call = json!({
        "id": "hunter", "source": source, "function": "hunt", "args": [grounds, scene.port], "sandbox": level,
        "timeout_s": 60, "limits": {"memory_bytes": null},
    });
    desk.write_lines("hunter.jsonl", &[call]);
    let ended = desk
        .fairtrial(["batch", "hunter.jsonl", "--backend", &backend])
        .run();
    drop((waiting, agent));
    let told: Json = serde_json::from_str(&ended.stdout).expect("a record");
    assert_eq!(told["verdict"], "ok", "{ended:?}");
    let value = told["value"].clone();
    let places = value["found"].as_object().expect("places").values();
    let kinds = places.flat_map(|kinds| kinds.as_array().expect("kinds"));
    (
        kinds
            .map(|kind| kind.as_str().expect("text").to_owned())
            .collect(),
        value,
    )
}

fn assert_safe(level: &str, kinds: &BTreeSet<String>, told: &Json) {
    for kind in CREDENTIALS {
        assert!(!kinds.contains(kind), "{level}: {told}");
    }
    for kind in SURROUNDINGS {
        assert!(
            level != "strict" || !kinds.contains(kind),
            "{level}: {told}"
        );
    }
    assert_eq!(told["sockets"], json!([]), "{level}: {told}");
    let server = told["server"].as_str().expect("text");
    let refused = server.contains("NOAUTH") || server.starts_with("refused");
    assert!(refused && !server.contains("PONG"), "{level}: {told}");
}

/// CL-43: the hunter finds each of them where nothing keeps it from them, which is what the next tests rest on.
#[tokio::test]
async fn a_call_at_none_finds_every_canary() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let (kinds, told) = hunted(&scene, "none", None).await;
    for kind in CREDENTIALS.iter().chain(&SURROUNDINGS) {
        assert!(kinds.contains(*kind), "{kind}: {told}");
    }
}

/// CL-43
#[tokio::test]
async fn a_call_at_limits_finds_no_credentials_of_an_agent_of_roots() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let (kinds, told) = hunted(&scene, "limits", None).await;
    assert_safe("limits", &kinds, &told);
}

/// CL-43: as root, each call with a user of its own.
#[tokio::test]
async fn a_call_at_strict_finds_nothing_of_an_agent_of_roots() {
    let Some(scene) = Scene::new(None) else {
        return;
    };
    let (kinds, told) = hunted(&scene, "strict", None).await;
    assert_safe("strict", &kinds, &told);
}

/// CL-43, CL-44: the agent's user is the calls', so at `limits` its secrets come by a pipe and from nowhere else.
#[tokio::test]
async fn a_call_of_an_unprivileged_agent_finds_no_credentials() {
    let Some((program, _dir)) = unprivileged_cli() else {
        return;
    };
    for level in ["limits", "strict"] {
        let Some(scene) = Scene::new(Some(NOBODY)) else {
            return;
        };
        if level == "limits" {
            // What a call could read is not there: neither would the agent start with it.
            for name in ["client.key", "token"] {
                fs::remove_file(scene.shell.path().join("secrets").join(name))
                    .expect("it is there");
            }
        }
        let (kinds, told) = hunted(&scene, level, Some(&program)).await;
        assert_safe(level, &kinds, &told);
    }
}
