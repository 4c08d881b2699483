//! A call as the worker reads it: see `protocol.rs`. Sends nothing.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};

use crate::call::{Arguments, Call, HostTerms, InvalidCall, PickledWork, ResultFormat, Work};
use crate::dispatch::Site;
use crate::environment::{Changes, is_read_at_startup};
use crate::error::EngineError;
use crate::limits::Limits;
use crate::marshal::{self, Dict};
use crate::protocol::INLINE_BYTES;
use crate::sandbox::{Level, scratch_seen};
use crate::scratch::ScratchDir;
use crate::spill::{SpillPolicy, sealed_argument};
use crate::value::decode_small;
use crate::worker::Mode;

/// Larger arguments are sent as they are: to read them here would take time from other calls.
const EVERYDAY_BYTES: usize = 4096;

/// A call's frame: the payload, and a descriptor for arguments that are too large for it.
#[derive(Debug)]
pub(crate) struct CallFrame {
    pub(crate) payload: Vec<u8>,
    pub(crate) body: Option<OwnedFd>,
}

/// The frame of a Python call that has `scratch` for its own, if it is to have one.
pub(crate) fn call_frame(
    site: &Site,
    call: &Call,
    worker_id: &str,
    mode: Mode,
    scratch: Option<&ScratchDir>,
    said_before: &mut Option<SaidBefore>,
) -> Result<CallFrame, EngineError> {
    if let (Work::Pickled(work), Some(said)) = (&call.work, said_before.as_ref())
        && said.holds_for(call)
        && let Some(body) = inline(&work.body)
    {
        return inline_frame(&said.header, body);
    }
    let terms = call.python().expect("only Python calls have frames");
    let mut env = match &terms.host {
        Some(_) => Changes::new(), // it got the rest at its start
        None => worker_environment(site, worker_id),
    };
    let (level, means) = (call.sandbox.level, &site.context.means);
    let scratch = scratch.map(|scratch| scratch_seen(level, means, scratch.path()));
    if let Some(scratch) = scratch {
        let tmpdir = OsString::from(scratch);
        if call.sandbox.level >= Level::Confined {
            env.insert("HOME".into(), Some(tmpdir.clone()));
        }
        env.insert("TMPDIR".into(), Some(tmpdir));
    }
    let changed = call
        .env
        .iter()
        .filter(|(name, _)| !is_read_at_startup(name));
    env.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
    let cwd = match (&call.cwd, scratch, &terms.host) {
        (Some(cwd), ..) => Some(cwd.clone()),
        (None, Some(scratch), _) => Some(scratch.to_path_buf()),
        (None, None, Some(_)) => None,
        (None, None, None) => Some(
            std::env::current_dir().map_err(EngineError::io("asking for the working directory"))?,
        ),
    };
    let variables = env.iter().map(|(name, value)| (name, value.as_deref()));
    let header = match &cwd {
        Some(cwd) => Dict::new().text("cwd", cwd),
        None => Dict::new(),
    };
    let header = header
        .options("env", variables)
        .texts("path", terms.python_path.iter())
        .text("result", terms.result.to_string())
        .integer("inline", INLINE_BYTES)
        .integer("capture", call.capture_bytes)
        .pairs("rlimits", &rlimits(call))
        .boolean("reuse", mode == Mode::Reuse);
    let (header, body) = match &call.work {
        Work::Source(work) => {
            let header = header
                .text("kind", "source")
                .text("source", &work.source)
                .text("filename", &work.filename)
                .text("function", &work.function);
            if let Some(arguments) = everyday(&work.arguments) {
                return inline_frame(&header.boolean("marshal", true).finish(), &arguments);
            }
            (header, &work.arguments)
        }
        Work::Pickled(work) => (header.text("kind", "pickled"), &work.body),
        Work::Command(_) => unreachable!("commands have no frames"),
    };
    let Some(body) = inline(body) else {
        return filed_frame(header, body, &site.spill_policy(Some(call)));
    };
    let header = header.finish();
    let frame = inline_frame(&header, body);
    *said_before = SaidBefore::of(call, header);
    frame
}

/// The header of a worker's last call: the next one on the same terms is told the same, and both sides save work.
#[derive(Debug)]
pub(crate) struct SaidBefore {
    env: Changes,
    cwd: Option<PathBuf>,
    python_path: Vec<PathBuf>,
    result: ResultFormat,
    limits: Limits,
    capture_bytes: u64,
    header: Vec<u8>,
}

impl SaidBefore {
    /// Only where nothing in a header changes by itself, as a caller's cwd does, or a call's own directory.
    fn of(call: &Call, header: Vec<u8>) -> Option<Self> {
        let (Work::Pickled(PickledWork { python, .. }), Some(_)) =
            (&call.work, &call.python()?.host)
        else {
            return None;
        };
        Some(Self {
            env: call.env.clone(),
            cwd: call.cwd.clone(),
            python_path: python.python_path.clone(),
            result: python.result,
            limits: call.limits.clone(),
            capture_bytes: call.capture_bytes,
            header,
        })
    }

    fn holds_for(&self, call: &Call) -> bool {
        let terms = call.python();
        terms.is_some_and(|terms| {
            self.python_path == terms.python_path && self.result == terms.result
        }) && self.env == call.env
            && self.cwd == call.cwd
            && self.limits == call.limits
            && self.capture_bytes == call.capture_bytes
    }
}

/// The frame that comes before the first call of a worker on a host's terms.
pub(crate) fn initialize_frame(
    site: &Site,
    host: &HostTerms,
    worker_id: &str,
) -> Result<CallFrame, EngineError> {
    let env = worker_environment(site, worker_id);
    let variables = env.iter().map(|(name, value)| (name, value.as_deref()));
    let header = Dict::new()
        .options("env", variables)
        .boolean("initializer", host.initializer.is_some());
    let header = match std::env::current_dir() {
        Ok(cwd) => header.text("cwd", cwd),
        Err(_) => header, // the host's was removed: there is none to share
    };
    let body = Arguments::from(host.initializer.clone().unwrap_or_default());
    match inline(&body) {
        Some(bytes) => inline_frame(&header.finish(), bytes),
        None => filed_frame(header, &body, &site.spill_policy(None)),
    }
}

/// What a worker itself changes; the rest its interpreter read at its start. A pickled function is the caller's own and
/// finds the caller's `TMPDIR`.
fn worker_environment(site: &Site, worker_id: &str) -> Changes {
    let mut env = Changes::from([("FAIRTRIAL_WORKER_ID".into(), Some(worker_id.into()))]);
    let host = &site.context.config.host_env;
    if let Some(dir) = host.get(std::ffi::OsStr::new("TMPDIR")) {
        env.insert("TMPDIR".into(), Some(dir.clone()));
    }
    env
}

/// Small arguments of everyday types, written as the worker reads them ten times sooner.
fn everyday(body: &Arguments) -> Option<Vec<u8>> {
    let bytes = inline(body).filter(|bytes| bytes.len() <= EVERYDAY_BYTES)?;
    // What is not well-formed the worker will tell, as of any.
    marshal::value(&decode_small(bytes).ok()?)
}

/// Arguments that are small enough to go with the header.
fn inline(body: &Arguments) -> Option<&[u8]> {
    match body {
        Arguments::Bytes(bytes) if bytes.len() as u64 <= INLINE_BYTES => Some(bytes),
        _ => None,
    }
}

fn filed_frame(
    header: Dict,
    body: &Arguments,
    policy: &SpillPolicy,
) -> Result<CallFrame, EngineError> {
    let (file, size) = match body {
        Arguments::Bytes(bytes) => (sealed_argument(bytes, policy)?, bytes.len() as u64),
        Arguments::File { file, size } => {
            let file = file
                .try_clone()
                .map_err(EngineError::io("handing on a large argument"))?;
            (file, *size)
        }
    };
    let frame = inline_frame(&header.integer("body_size", size).finish(), &[])?;
    Ok(CallFrame {
        body: Some(file),
        ..frame
    })
}

fn inline_frame(header: &[u8], body: &[u8]) -> Result<CallFrame, EngineError> {
    let length = u32::try_from(header.len())
        .map_err(|_| InvalidCall::new("source", "the call's text is larger than 4 GiB"))?;
    let payload = [&length.to_le_bytes()[..], header, body].concat();
    Ok(CallFrame {
        payload,
        body: None,
    })
}

/// The kernel's own limits for a call.
pub(crate) fn rlimits(call: &Call) -> Vec<(u32, u64)> {
    let limits = &call.limits;
    let cpu_s = limits
        .cpu
        .map(|cpu| cpu.as_secs() + 1 + u64::from(cpu.subsec_nanos() > 0));
    let own = cpu_s.and_then(|_| getrlimit(Resource::Cpu).maximum);
    let cpu_s = cpu_s.map(|cpu_s| own.map_or(cpu_s, |own| own.min(cpu_s))); // nobody can have more
    [
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        // Behind the launcher's own watch, should that be slow.
        (libc::RLIMIT_CPU, cpu_s),
    ]
    .into_iter()
    .filter_map(|(resource, value)| Some((resource, value?)))
    .collect()
}
