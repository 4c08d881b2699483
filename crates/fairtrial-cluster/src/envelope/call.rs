//! A call as it travels.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{
    Arguments, Call, CommandWork, HostTerms, PickledWork, PythonTerms, SourceWork, Time, Work,
};
use serde::{Deserialize, Serialize};

use super::base64::Base64;
use super::carried::Carried;
use super::is_default;
use super::sandbox::{LimitsRecord, SandboxRecord, nanoseconds};
use super::task::PackedParts;
use crate::blobs::Blob;

/// Text of the system, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum OsText {
    Text(String),
    Bytes { base64: Base64 },
}

impl OsText {
    pub(super) fn of(text: &OsStr) -> Self {
        match text.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes {
                base64: text.as_bytes().to_vec().into(),
            },
        }
    }

    pub(super) fn to_os(&self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes { base64 } => OsString::from_vec(base64.bytes().to_vec()),
        }
    }
}

/// As [`Call`], without what only means something where it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CallRecord {
    pub(super) work: WorkRecord,
    #[serde(default, skip_serializing_if = "is_default")]
    env: Vec<(OsText, Option<OsText>)>,
    /// Names only: the agent's environment has the values.
    #[serde(default, skip_serializing_if = "is_default")]
    pass_env: Vec<OsText>,
    #[serde(default, skip_serializing_if = "is_default")]
    cwd: Option<OsText>,
    /// Instead of `cwd`, a directory that came along.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) packed_cwd: Option<Blob>,
    #[serde(default, skip_serializing_if = "is_default")]
    timeout_ns: Option<u64>,
    /// What the timeout counts, if not wall time.
    #[serde(default, skip_serializing_if = "is_default")]
    time: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) queue_timeout_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    term_grace_ns: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    cancel_grace_ns: u64,
    limits: LimitsRecord,
    pub(super) sandbox: SandboxRecord,
    capture_bytes: u64,
}

/// As [`Work`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", try_from = "WorkFields")]
pub(super) enum WorkRecord {
    Source {
        source: Carried,
        filename: String,
        function: String,
        arguments: Carried,
        python: PythonRecord,
    },
    Pickled {
        body: Carried,
        python: PythonRecord,
    },
    Command {
        argv: Vec<OsText>,
        stdin: Carried,
    },
}

/// All fields that work of any kind has. Read in one pass; a tagged enum would be read twice.
#[derive(Deserialize)]
struct WorkFields {
    kind: WorkKind,
    source: Option<Carried>,
    filename: Option<String>,
    function: Option<String>,
    arguments: Option<Carried>,
    python: Option<PythonRecord>,
    body: Option<Carried>,
    argv: Option<Vec<OsText>>,
    stdin: Option<Carried>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkKind {
    Source,
    Pickled,
    Command,
}

impl TryFrom<WorkFields> for WorkRecord {
    type Error = &'static str;

    fn try_from(fields: WorkFields) -> Result<Self, Self::Error> {
        let made = || {
            Some(match fields.kind {
                WorkKind::Source => Self::Source {
                    source: fields.source?,
                    filename: fields.filename?,
                    function: fields.function?,
                    arguments: fields.arguments?,
                    python: fields.python?,
                },
                WorkKind::Pickled => Self::Pickled {
                    body: fields.body?,
                    python: fields.python?,
                },
                WorkKind::Command => Self::Command {
                    argv: fields.argv?,
                    stdin: fields.stdin?,
                },
            })
        };
        made().ok_or("a field of `work` is missing")
    }
}

/// As [`PythonTerms`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PythonRecord {
    pub(super) python: String,
    /// Packed directories.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) path: Vec<Blob>,
    #[serde(default, skip_serializing_if = "is_default")]
    preload: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    preload_shared: Vec<String>,
    isolation: String,
    result: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) host: Option<HostRecord>,
}

/// As [`HostTerms`]. The key of the host's managers and its logging stay with the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HostRecord {
    sys_path: Vec<OsText>,
    argv: Vec<OsText>,
    #[serde(default)]
    faulthandler: bool,
    initializer: Option<Carried>,
}

impl HostRecord {
    pub(super) fn initializer(&self) -> Option<&Carried> {
        self.initializer.as_ref()
    }
}

/// What of a call lies elsewhere and has been fetched, in the order of [`CallRecord::pieces`].
pub(super) type Fetch<'a> = &'a mut dyn FnMut(&Blob) -> Option<Arguments>;

impl CallRecord {
    /// Of a call with its packed directories, everything small. Large arguments are in a `file` or go by themselves,
    /// and are given by their blob.
    pub(super) fn of(call: &Call, parts: PackedParts) -> Self {
        let PackedParts { path, cwd, file } = parts;
        let carried = |arguments: &Arguments| match (arguments, file) {
            (_, Some(blob)) => Carried::Blob(blob),
            (Arguments::Bytes(bytes), None) => Carried::here(bytes),
            (Arguments::File { .. }, None) => panic!("arguments in a file come with their blob"),
        };
        let work = match &call.work {
            Work::Source(work) => WorkRecord::Source {
                source: Carried::here(work.source.as_bytes()),
                filename: work.filename.clone(),
                function: work.function.clone(),
                arguments: carried(&work.arguments),
                python: PythonRecord::of(&work.python, path),
            },
            Work::Pickled(work) => WorkRecord::Pickled {
                body: carried(&work.body),
                python: PythonRecord::of(&work.python, path),
            },
            Work::Command(work) => WorkRecord::Command {
                argv: work.argv.iter().map(|word| OsText::of(word)).collect(),
                stdin: Carried::here(&work.stdin),
            },
        };
        let text = |text: &OsString| OsText::of(text);
        Self {
            work,
            env: call
                .env
                .iter()
                .map(|(name, value)| (text(name), value.as_ref().map(text)))
                .collect(),
            pass_env: call.pass_env.iter().map(|name| OsText::of(name)).collect(),
            cwd: match cwd {
                Some(_) => None,
                None => call.cwd.as_ref().map(|cwd| OsText::of(cwd.as_os_str())),
            },
            packed_cwd: cwd,
            timeout_ns: call.timeout.map(nanoseconds),
            time: (call.time != Time::default()).then(|| call.time.to_string()),
            queue_timeout_ns: call.queue_timeout.map(nanoseconds),
            term_grace_ns: nanoseconds(call.term_grace),
            cancel_grace_ns: nanoseconds(call.cancel_grace),
            limits: (&call.limits).into(),
            sandbox: (&call.sandbox).into(),
            capture_bytes: call.capture_bytes,
        }
    }

    /// Everything that may be long.
    pub(super) fn pieces(&mut self) -> Vec<&mut Carried> {
        match &mut self.work {
            WorkRecord::Source {
                source, arguments, ..
            } => vec![source, arguments],
            WorkRecord::Pickled { body, python } => {
                let host = python.host.as_mut();
                let initializer = host.and_then(|host| host.initializer.as_mut());
                [Some(body), initializer].into_iter().flatten().collect()
            }
            WorkRecord::Command { stdin, .. } => vec![stdin],
        }
    }

    /// The call, with directories unpacked at `path` and blobs as `fetch` gives them; `None` if a word in it is not
    /// known here, or a blob is not there.
    pub(super) fn to_call(&self, mut path: Vec<PathBuf>, fetch: Fetch<'_>) -> Option<Call> {
        let cwd = match (&self.cwd, self.packed_cwd) {
            (_, Some(_)) => Some(path.pop()?), // the last of them
            (cwd, None) => cwd.as_ref().map(|cwd| cwd.to_os().into()),
        };
        let mut call = Call::new(self.work.to_work(path, fetch)?);
        let env = self.env.iter();
        let env = env.map(|(name, value)| (name.to_os(), value.as_ref().map(OsText::to_os)));
        call.env = env.collect::<BTreeMap<_, _>>();
        call.pass_env = self.pass_env.iter().map(OsText::to_os).collect();
        call.cwd = cwd;
        call.timeout = self.timeout_ns.map(Duration::from_nanos);
        if let Some(time) = &self.time {
            call.time = time.parse().ok()?;
        }
        // The server sees to it: the agent's own queue is empty.
        call.queue_timeout = None;
        call.term_grace = Duration::from_nanos(self.term_grace_ns);
        call.cancel_grace = Duration::from_nanos(self.cancel_grace_ns);
        call.limits = self.limits.to_limits();
        call.sandbox = self.sandbox.to_sandbox()?;
        call.capture_bytes = self.capture_bytes;
        Some(call)
    }

    pub(super) fn python(&self) -> Option<&PythonRecord> {
        match &self.work {
            WorkRecord::Source { python, .. } | WorkRecord::Pickled { python, .. } => Some(python),
            WorkRecord::Command { .. } => None,
        }
    }
}

impl WorkRecord {
    fn to_work(&self, path: Vec<PathBuf>, fetch: Fetch<'_>) -> Option<Work> {
        Some(match self {
            Self::Source {
                source,
                filename,
                function,
                arguments,
                python,
            } => Work::Source(SourceWork {
                source: String::from_utf8(whole(source, fetch)?).ok()?,
                filename: filename.clone(),
                function: function.clone(),
                arguments: taken(arguments, fetch)?,
                python: python.to_terms(path, fetch)?,
            }),
            Self::Pickled { body, python } => Work::Pickled(PickledWork {
                body: taken(body, fetch)?,
                python: python.to_terms(path, fetch)?,
            }),
            Self::Command { argv, stdin } => Work::Command(CommandWork {
                argv: argv.iter().map(OsText::to_os).collect(),
                stdin: whole(stdin, fetch)?,
            }),
        })
    }
}

impl PythonRecord {
    fn of(terms: &PythonTerms, path: Vec<Blob>) -> Self {
        let texts = |texts: &[OsString]| texts.iter().map(|text| OsText::of(text)).collect();
        Self {
            python: terms.python.clone(),
            path,
            preload: terms.preload.clone(),
            preload_shared: terms.preload_shared.clone(),
            isolation: terms.isolation.to_string(),
            result: terms.result.to_string(),
            host: terms.host.as_ref().map(|host| HostRecord {
                sys_path: texts(&host.sys_path),
                argv: texts(&host.argv),
                faulthandler: host.faulthandler,
                initializer: host.initializer.as_ref().map(|bytes| Carried::here(bytes)),
            }),
        }
    }

    fn to_terms(&self, path: Vec<PathBuf>, fetch: Fetch<'_>) -> Option<PythonTerms> {
        let host = match &self.host {
            Some(host) => Some(Arc::new(HostTerms {
                sys_path: host.sys_path.iter().map(OsText::to_os).collect(),
                argv: host.argv.iter().map(OsText::to_os).collect(),
                faulthandler: host.faulthandler,
                authkey: None,
                logging: None,
                initializer: match &host.initializer {
                    Some(initializer) => Some(whole(initializer, fetch)?),
                    None => None,
                },
            })),
            None => None,
        };
        Some(PythonTerms {
            python: self.python.clone(),
            python_path: path,
            preload: self.preload.clone(),
            preload_shared: self.preload_shared.clone(),
            isolation: self.isolation.parse().ok()?,
            result: self.result.parse().ok()?,
            host,
        })
    }
}

fn taken(carried: &Carried, fetch: Fetch<'_>) -> Option<Arguments> {
    match carried.bytes() {
        Ok(bytes) => Some(Arguments::Bytes(bytes)),
        Err(blob) => fetch(blob),
    }
}

fn whole(carried: &Carried, fetch: Fetch<'_>) -> Option<Vec<u8>> {
    match taken(carried, fetch)? {
        Arguments::Bytes(bytes) => Some(bytes),
        Arguments::File { .. } => None,
    }
}
