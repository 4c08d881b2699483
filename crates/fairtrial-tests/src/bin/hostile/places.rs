//! Where things are that programs go for: canaries, sockets, addresses, processes. All made up, and only in the cage.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::cage::{BIN, HOME, Plan, WORLD_ADDRESSES};
use crate::show::Refusal;

/// Where Redis would listen.
pub(crate) const TCP_PORT: u16 = 6379;
/// Answers every datagram.
pub(crate) const UDP_PORT: u16 = 5353;
/// An abstract name.
pub(crate) const ABSTRACT_SOCKET: &str = "hostile-cage";
/// Path sockets of docker, D-Bus, an ssh-agent and Redis.
pub(crate) const PATH_SOCKETS: [&str; 4] = [
    "/run/docker.sock",
    "/run/dbus.sock",
    "/run/redis.sock",
    "/home/hostile/.ssh/agent.sock",
];
/// What the host's process carries, by kind; written for `plant_canaries.py`.
pub(crate) const CANARIES: &str = "/run/hostile/canaries.json";
/// Ten times this is asked for.
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;

const SECRET_FILES: [&str; 5] = [
    ".ssh/id_x",
    ".aws/credentials",
    "study/journal.db",
    "rivals/candidate.py",
    "tests/hidden_test.py",
];
const WRITABLE_FILES: [&str; 3] = [
    ".bashrc",
    "engine/src/lib.rs",
    "venv/lib/site-packages/module.py",
];
const CRON: [&str; 2] = ["/etc/cron.d", "/var/spool/cron"];

/// What a program is told: its one argument besides which way to go.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Places {
    pub(crate) engine_pid: u32,
    pub(crate) launcher_pid: u32,
    pub(crate) zygote_pid: u32,
    pub(crate) sibling_pid: u32,
    pub(crate) sibling_scratch: PathBuf,
    /// A directory of the host's with a file `keep` in it.
    pub(crate) outside: PathBuf,
    pub(crate) timeout_s: f64,
    secret_files: Vec<PathBuf>,
    writable_files: Vec<PathBuf>,
    writable_directories: Vec<PathBuf>,
    hunting_grounds: Vec<PathBuf>,
    path_sockets: Vec<&'static str>,
    abstract_socket: &'static str,
    addresses: Map<String, Json>,
    tcp_port: u16,
    udp_port: u16,
    setuid_program: PathBuf,
    ten_times_memory: u64,
}

impl Places {
    /// All but who runs: that the engine's host fills in.
    pub(crate) fn new(outside: PathBuf, timeout_s: f64) -> Self {
        let home = Path::new(HOME);
        let world = WORLD_ADDRESSES
            .iter()
            .map(|(name, address)| (name.to_string(), json!(address)));
        Self {
            engine_pid: std::process::id(),
            launcher_pid: 0,
            zygote_pid: 0,
            sibling_pid: 0,
            sibling_scratch: PathBuf::new(),
            outside,
            timeout_s,
            secret_files: SECRET_FILES.map(|file| home.join(file)).to_vec(),
            writable_files: WRITABLE_FILES.map(|file| home.join(file)).to_vec(),
            writable_directories: CRON
                .iter()
                .map(PathBuf::from)
                .filter(|dir| dir.is_dir())
                .collect(),
            hunting_grounds: [HOME, "/tmp", "/run", "/var/tmp", "/dev/shm"]
                .map(PathBuf::from)
                .to_vec(),
            path_sockets: PATH_SOCKETS.to_vec(),
            abstract_socket: ABSTRACT_SOCKET,
            addresses: world
                .chain([("loopback".to_owned(), json!("127.0.0.1"))])
                .collect(),
            tcp_port: TCP_PORT,
            udp_port: UDP_PORT,
            setuid_program: Path::new(BIN).join("somebody-else"),
            ten_times_memory: 10 * MEMORY_BYTES,
        }
    }
}

/// Makes the home with its secrets, for whoever will run the engine.
pub(crate) fn furnish(plan: &Plan) -> Result<(), Refusal> {
    let home = Path::new(HOME);
    for file in SECRET_FILES {
        write(&home.join(file), &format!("{}\n", canary("file")?))?;
    }
    for file in WRITABLE_FILES {
        write(&home.join(file), "# as it was\n")?;
    }
    own_all(home, plan.options.uid)?;
    let mut canaries = Map::new();
    for kind in ["environment", "argv", "descriptor", "key"] {
        canaries.insert(kind.to_owned(), canary(kind)?.into());
    }
    fs::write(CANARIES, Json::from(canaries).to_string())?;
    setuid_program(plan.options.uid)
}

/// A copy of `id` that its file says runs as another user.
fn setuid_program(uid: u32) -> Result<(), Refusal> {
    let copy = Path::new(BIN).join("somebody-else");
    fs::copy("/usr/bin/id", &copy)?;
    let other = if uid == 0 { 12_345 } else { 0 };
    chown(&copy, Some(other), Some(other))?;
    Ok(fs::set_permissions(
        &copy,
        fs::Permissions::from_mode(0o4755),
    )?)
}

fn write(path: &Path, text: &str) -> Result<(), Refusal> {
    fs::create_dir_all(path.parent().expect("below the home"))?;
    Ok(fs::write(path, text)?)
}

fn own_all(dir: &Path, uid: u32) -> Result<(), Refusal> {
    chown(dir, Some(uid), Some(uid))?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            own_all(&path, uid)?;
        } else {
            chown(&path, Some(uid), Some(uid))?;
        }
    }
    Ok(())
}

/// A secret that nobody can guess, and that `h29_hunt.py` knows when it sees it.
fn canary(kind: &str) -> Result<String, Refusal> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(format!("CANARY-{kind}-{:016x}", u64::from_le_bytes(bytes)))
}
