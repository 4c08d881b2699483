//! What came of self-tests, kept for other engines until the machine is started again (SB-42).
//!
//! One file in the user's cache directory. Whatever is wrong with it, it is as if it were not there.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::selftest::Proof;
use crate::config::LocalConfig;

/// Of the file; another is not read.
const FORMAT: u32 = 1;

/// Far more than it ever has.
const MOST_BYTES: u64 = 1 << 20;

/// Where the file is, and what of it is about this process.
pub(super) struct Place {
    file: Option<PathBuf>,
    boot: String,
    /// Kernel, user, cgroup and version: with what somebody asks for they are the key.
    here: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    boot: String,
    proofs: BTreeMap<String, Proof>,
}

/// Where no file can be written.
// A plain mutex: held to read or change one entry.
static MEMORY: Mutex<BTreeMap<String, Proof>> = Mutex::new(BTreeMap::new());

impl Place {
    pub(super) fn of(config: &LocalConfig) -> Self {
        let uname = rustix::system::uname();
        // What cannot be read is the same for all who cannot read it.
        let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        Self {
            file: config.cache_dir().map(|cache| cache.join("selftest.json")),
            boot: text("/proc/sys/kernel/random/boot_id").trim().to_owned(),
            here: format!(
                "{} {} {} {}",
                uname.release().to_string_lossy(),
                rustix::process::geteuid().as_raw(),
                text("/proc/self/cgroup").trim().replace('\n', ","),
                env!("CARGO_PKG_VERSION"),
            ),
        }
    }

    fn key(&self, asked: &str) -> String {
        format!("{asked} {}", self.here)
    }

    /// What is in the file, if that is of this boot.
    fn read(&self) -> Option<File> {
        let mut text = String::new();
        let file = std::fs::File::open(self.file.as_ref()?).ok()?;
        file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
        let file: File = serde_json::from_str(&text).ok()?;
        (file.format == FORMAT && file.boot == self.boot).then_some(file)
    }
}

/// What came of an earlier test.
pub(super) fn find(place: &Place, asked: &str) -> Option<Proof> {
    let key = place.key(asked);
    if let Some(proof) = place.read().and_then(|mut file| file.proofs.remove(&key)) {
        return Some(proof);
    }
    let memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    memory.get(&format!("{} {key}", place.boot)).cloned()
}

/// Keeps what came of a test: in the file, or else as long as this process lives.
pub(super) fn keep(place: &Place, asked: &str, proof: &Proof) {
    let key = place.key(asked);
    let mut file = place.read().unwrap_or_else(|| File {
        format: FORMAT,
        boot: place.boot.clone(),
        proofs: BTreeMap::new(),
    });
    file.proofs.insert(key.clone(), proof.clone());
    let written = match &place.file {
        Some(path) => write(path, &file),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    if written.is_err() {
        let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        memory.insert(format!("{} {key}", place.boot), proof.clone());
    }
}

/// All of it or nothing: others may read meanwhile.
fn write(path: &Path, file: &File) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(directory)?;
    let other = directory.join(format!("selftest-{:016x}", crate::locked_dir::random()));
    let text = serde_json::to_string(file).expect("plain data always serialises");
    let written = std::fs::write(&other, text).and_then(|()| std::fs::rename(&other, path));
    if written.is_err() {
        std::fs::remove_file(&other).ok(); // it may not even have been made
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cache: &Path) -> Place {
        let vars = [("XDG_CACHE_HOME".into(), cache.into())];
        Place::of(&LocalConfig::from_vars(vars.into()).unwrap())
    }

    fn proof(refused: bool) -> Proof {
        Proof {
            attempts: vec![("connect".into(), refused)],
            untried: Vec::new(),
        }
    }

    /// SB-42
    #[test]
    fn a_result_is_found_again_by_its_key_alone_and_only_in_its_boot() {
        let dir = tempfile::tempdir().unwrap();
        let here = place(dir.path());
        keep(&here, "strict", &proof(true));
        keep(&here, "limits", &proof(false));
        assert_eq!(find(&here, "strict"), Some(proof(true)));
        assert_eq!(find(&here, "limits"), Some(proof(false)));
        assert_eq!(find(&here, "none"), None);
        let changes: [fn(&mut Place); 2] = [
            |place| place.here.push('x'),
            |place| place.boot = "another".into(),
        ];
        for change in changes {
            let mut other = place(dir.path());
            change(&mut other);
            assert_eq!(find(&other, "strict"), None);
        }
        let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let last = cgroup.trim().lines().last().unwrap();
        assert!(here.here.contains(last) && here.here.ends_with(env!("CARGO_PKG_VERSION")));
    }

    /// SB-42
    #[test]
    fn a_damaged_file_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let here = place(dir.path());
        let file = dir.path().join("fairtrial/selftest.json");
        keep(&here, "strict", &proof(true));
        for damage in [
            "",
            "{",
            "[]",
            "\0\u{7f}",
            "{\"format\": 2, \"boot\": \"\", \"proofs\": {}}",
        ] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(find(&here, "strict"), None, "{damage}");
            keep(&here, "strict", &proof(false));
            assert_eq!(find(&here, "strict"), Some(proof(false)), "{damage}");
        }
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    /// SB-42
    #[test]
    fn without_a_place_to_write_a_result_is_kept_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in_the_way");
        std::fs::write(&file, "").unwrap();
        let here = place(&file);
        keep(&here, "strict of this test", &proof(true));
        assert_eq!(find(&here, "strict of this test"), Some(proof(true)));
    }
}
