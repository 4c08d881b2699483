//! From a call to a process: what the launcher is asked for. Starts nothing itself, and does not choose the call.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::call::{Call, CommandWork, HostTerms, Work};
use crate::dispatch::{Dispatch, Site, WorkerNumber};
use crate::environment::Changes;
use crate::error::EngineError;
use crate::listener::Stream;
use crate::protocol::launcher::{Program, TaskId, ToLauncher};
use crate::sandbox::{Level, Means, Terms, scratch_seen};
use crate::scratch::ScratchDir;
use crate::worker::Mode;
use crate::worker::call_frame::rlimits;
use crate::worker::drive::{ToWorker, Worker};
use crate::worker::link::Link;
use crate::worker::pipes::{Input, Output};

/// Who a new worker is.
pub(crate) struct Identity {
    pub(crate) number: WorkerNumber,
    pub(crate) id: String,
    /// Whether it has a processor to itself.
    pub(crate) alone: bool,
}

/// Where a worker is told what to do.
pub(crate) type Mailbox = mpsc::UnboundedSender<ToWorker>;

/// Has a zygote fork a worker. It can be given its call at once: that waits in the socket until it is there.
pub(crate) fn fork(
    site: &Site,
    zygote: TaskId,
    host: Option<&HostTerms>,
    mode: Mode,
    identity: Identity,
    terms: Option<&Terms>,
    paths: &[PathBuf],
) -> io::Result<Mailbox> {
    let (ours, theirs) = crate::linux::socket::pair_stream()?;
    crate::linux::socket::refuse_descriptors(&ours);
    let (stdout, stdout_theirs) = Output::open(Stream::Stdout)?;
    let (stderr, stderr_theirs) = Output::open(Stream::Stderr)?;
    let Identity { number, id, alone } = identity;
    let (mailbox, mut worker) = Worker::new(site, mode, number, id, stdout, stderr);
    worker.link = Some(Link::new(ours)?);
    if let Some(host) = host {
        worker.initialize(host)?;
    }
    let means = &site.context.means;
    let confine = match (terms, mode) {
        (None, _) => None,
        // Each of its calls has a directory of its own in there.
        (Some(terms), Mode::Reuse) => {
            Some(terms.confine(means, site.context.scratch.borrow().path(), paths))
        }
        (Some(terms), _) => {
            let scratch = site.context.make_scratch().map_err(io::Error::other)?;
            let confine = terms.confine(means, scratch.path(), paths);
            worker.own_scratch.push(scratch);
            Some(confine)
        }
    };
    let fork = ToLauncher::Fork {
        task: worker.task,
        zygote,
        confine: confine.map(Box::new),
        alone,
    };
    site.launcher
        .send(fork, vec![theirs, stdout_theirs, stderr_theirs]);
    site.context.spawn(worker.drive());
    Ok(mailbox)
}

/// A command that could not be started, and why.
pub(crate) struct NotStarted {
    pub(crate) dispatch: Dispatch,
    pub(crate) error: EngineError,
}

/// Starts a program.
pub(crate) fn command(
    site: &Site,
    identity: Identity,
    dispatch: Dispatch,
    generation: u32,
) -> Result<Mailbox, Box<NotStarted>> {
    let parts = match CommandParts::new(site, &identity, &dispatch) {
        Ok(parts) => parts,
        Err(error) => return Err(Box::new(NotStarted { dispatch, error })),
    };
    let CommandParts {
        program,
        fds,
        stdin,
        stdout,
        stderr,
        scratch,
    } = parts;
    let Identity { number, id, .. } = identity;
    let (mailbox, mut worker) = Worker::new(site, Mode::Command, number, id, stdout, stderr);
    worker.stdin = stdin;
    worker.take(dispatch, generation, None, Some(scratch));
    site.launcher.send(
        ToLauncher::Spawn {
            task: worker.task,
            program,
        },
        fds,
    );
    site.context.spawn(worker.drive());
    Ok(mailbox)
}

struct CommandParts {
    program: Program,
    fds: Vec<OwnedFd>,
    stdin: Option<Input>,
    stdout: Output,
    stderr: Output,
    scratch: ScratchDir,
}

impl CommandParts {
    fn new(site: &Site, identity: &Identity, dispatch: &Dispatch) -> Result<Self, EngineError> {
        let channels = |error| EngineError::Spawn {
            step: "making its channels".into(),
            source: error,
        };
        let (stdout, stdout_theirs) = Output::open(Stream::Stdout).map_err(channels)?;
        let (stderr, stderr_theirs) = Output::open(Stream::Stderr).map_err(channels)?;
        let scratch = site.context.make_scratch()?;
        if is_covered(&dispatch.call, &site.context.means, scratch.path()) {
            let problem = io::Error::from(io::ErrorKind::InvalidInput);
            let attempt = "giving it a scratch directory, which its workspace covers";
            return Err(EngineError::io(attempt)(problem));
        }
        let (stdin, stdin_theirs) = input(dispatch).map_err(channels)?;
        let mut program = program(site, &dispatch.call, &identity.id, scratch.path());
        program.alone = identity.alone;
        let fds = vec![stdin_theirs, stdout_theirs, stderr_theirs];
        Ok(Self {
            program,
            fds,
            stdin,
            stdout,
            stderr,
            scratch,
        })
    }
}

/// What the command reads, and our end of it if the call's bytes are to be written there. The call keeps its own: there
/// may be another try.
fn input(dispatch: &Dispatch) -> io::Result<(Option<Input>, OwnedFd)> {
    if let Some(given) = &dispatch.streams.input {
        return Ok((None, given.try_clone()?));
    }
    if dispatch.call.stdin().is_empty() {
        return Ok((None, std::fs::File::open("/dev/null")?.into()));
    }
    let (input, theirs) = Input::open()?;
    Ok((Some(input), theirs))
}

/// Whether a call's workspace covers its own scratch directory.
fn is_covered(call: &Call, means: &Means, scratch: &Path) -> bool {
    let seen = scratch_seen(call.sandbox.level, means, scratch);
    let workspace = call.workspace.as_deref();
    workspace.is_some_and(|workspace| {
        let mut covered = workspace.hidden.iter().chain([&workspace.at]);
        covered.any(|place| seen.starts_with(place))
    })
}

pub(super) fn program(site: &Site, call: &Call, worker_id: &str, scratch: &Path) -> Program {
    let Work::Command(CommandWork { argv, .. }) = &call.work else {
        unreachable!("only commands come here")
    };
    let environment = &site.context.environment;
    let own = scratch;
    let scratch = scratch_seen(call.sandbox.level, &site.context.means, own);
    let mut changes = Changes::from([
        ("TMPDIR".into(), Some(scratch.into())),
        ("FAIRTRIAL_WORKER_ID".into(), Some(worker_id.into())),
    ]);
    if call.sandbox.level >= Level::Confined {
        changes.insert("HOME".into(), Some(scratch.into()));
    }
    changes.extend(call.env.clone());
    let cwd = call.cwd.as_deref().unwrap_or(scratch);
    Program {
        paths: environment.search(&argv[0], &changes),
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: environment.entries(&changes),
        cwd: cwd.as_os_str().as_encoded_bytes().to_vec(),
        rlimits: rlimits(call),
        zygote: false,
        ahead: call.ahead,
        confine: Terms::of(call)
            .map(|terms| Box::new(terms.confine_program(&site.context.means, own))),
        nest: false,
        self_test: call.self_test.clone(),
        counted: call.counted.clone(),
        alone: false,
    }
}
