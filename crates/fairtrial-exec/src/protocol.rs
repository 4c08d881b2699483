//! The bytes between engine, launcher, zygote and worker. No I/O.
//!
//! # Worker frames
//!
//! Engine and worker (and engine and zygote) share one private `SOCK_STREAM` socket. Every message is a frame:
//!
//! | bytes | field |
//! |---|---|
//! | 2 | magic `FT` |
//! | 1 | version, [`VERSION`] |
//! | 1 | kind, [`Kind`] |
//! | 4 | generation, little-endian: which dispatch this belongs to |
//! | 8 | length of the payload, little-endian |
//!
//! What a worker sends is a stranger's word: a frame of another generation is dropped and counted, anything
//! malformed ends the call as `bad_result`.
//!
//! # A zygote's life
//!
//! The launcher starts `python -c BOOTSTRAP` with descriptor 3 the engine's socket and 4 the launcher's
//! (`SOCK_SEQPACKET`). The engine sends `Shim` (the shim's source text) or `ShimCode` (its parts compiled for this very
//! interpreter, a marshalled list), then `Configure` (marshal: a dict with
//! `preload` and `preload_shared`, lists of module names, and `signal`, the number of the stack-dump signal; with a host's terms also
//! `sys_path` and `argv`, which replace the interpreter's own before anything is preloaded, and `faulthandler`, whether
//! a crash writes its stack to stderr, and perhaps `authkey`, that of the host's `multiprocessing`, and `logging`, its
//! set-up of that module, marshalled, in hexadecimal). The zygote answers `Ready` (data codec: a dict with `version`,
//! `threads`, `pid`, `paths`, where its packages are, and `closed_fds`, descriptors that preloads hold and workers do not
//! have, by number) or `Error` (an error record, then it exits).
//!
//! The launcher asks for a worker by one packet, `<I`: the number of the request, carrying three descriptors (the
//! worker's socket, stdout, stderr). The zygote answers `<Ii`: the number, and the worker's pid or a negative errno.
//! A zygote announces itself first with number 0 and its own pid: one that had threads after preloading has forked
//! itself once, so its pid is not the one that was spawned.
//!
//! # A worker's life
//!
//! On a host's terms it begins with `Initialize`, of generation [`FIRST_GENERATION`] and laid out as a `Call`. Header
//! keys: `cwd` and `env`, which the worker makes its own for good; `initializer` (bool), whether there is a body (see
//! below; `body_size` as for a call). Only then it answers: `Ack` (as for a call) when it has begun, and `Ready` when the initializer
//! has returned, or `Error` (a record with verdict `setup_failed` and type `InitializerFailed`). Its first `Call` is
//! sent when it is ready. What the initializer left is the state that calls start from.
//!
//! `Call`, and for each: `Ack` (`<Q`: the monotonic clock as it is sent) before anything is decoded; for `source`, `Run` just before the user's code; then one of
//! `Value`, `Error`, or, when the payload is larger than `inline` bytes, `Need` (`<Q`: bytes), answered by `File` (a
//! descriptor), and `Filed` (`<BQ`: which kind the payload would have had, its size). A `pickled` call is its caller's
//! own code from its first byte on: a `Run` would prove nothing, and costs a wake-up.
//!
//! A `Call` payload is `<I` the header's length, the header (marshal, a dict), the body. The body holds the
//! arguments: data codec, or with `marshal` in the header that, for `source`, a pickle (see below) for `pickled`. With `body_size` in the header the body is
//! in the descriptor that comes with the frame instead. Header keys: `kind` (`source` or `pickled`), `source`,
//! `filename`, `function`, `cwd`, `env` (name to text, or `None` to unset), `path` (entries put before `sys.path`),
//! `result` (`data` or `pickle`), `inline`, `capture` (bound on message and traceback, bytes), `rlimits` (list of
//! pairs), `reuse` (bool).
//!
//! While a `reuse` worker runs short calls the engine sends some `Ahead`. Each is one count of a semaphore (an eventfd
//! that came with the first): the worker takes one before it begins such a call, the engine takes one back for each
//! call it wants to give to somebody else, the last sent first. A worker that finds no count answers `Skipped`. From
//! then on it sends `Usage` (`<QQ`: user and system nanoseconds) before each reply.
//!
//! An error record is a dict in the data codec: `verdict` (`exception`, `bad_result`; `setup_failed` counts only
//! before `Run`), `type`, `message`, `traceback`; pickled calls add `exception` (bytes) where it pickles.
//!
//! A pickle payload is `<QQ` (length of the pickle, number of buffers), `<Q` for the length of each buffer, the pickle,
//! then each buffer (protocol 5, out of band) at the next multiple of 64 from the payload's start. Of a call whose
//! function goes by value, the highest bit of the number of buffers is set and `<Q`, the length of the function's own
//! pickle, and that pickle follow the first two numbers; the pickle itself is of `(args, kwargs)`. Workers keep such
//! functions by their bytes.

pub mod launcher;
pub mod zygote;

use std::fmt;

/// Of the worker frames.
pub const VERSION: u8 = 1;
/// Of what is said before a worker's first call.
pub const FIRST_GENERATION: u32 = 0;
/// First bytes of each frame.
pub const MAGIC: [u8; 2] = *b"FT";
/// Size of a frame's header.
pub const HEADER_BYTES: usize = 16;
/// Values up to this size ride inside the frame.
pub const INLINE_BYTES: u64 = 64 << 10;
/// The longest payload a worker may send in a frame: an inline value.
pub const MAX_PAYLOAD_BYTES: u64 = INLINE_BYTES;

/// What a frame is about. Below 16: engine to worker; from 16: worker to engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The shim's source text, to a zygote.
    Shim = 1,
    /// What to preload, to a zygote.
    Configure = 2,
    /// A call to run.
    Call = 3,
    /// The descriptor a worker asked for.
    File = 4,
    /// A call sent while another runs; claimed before it is begun.
    Ahead = 5,
    /// What a host gives a worker at its start.
    Initialize = 6,
    /// The shim's compiled parts, to a zygote.
    ShimCode = 7,
    /// A zygote is warm; a worker's initializer has returned.
    Ready = 17,
    /// A worker begins a call.
    Ack = 18,
    /// The user's code starts now.
    Run = 19,
    /// A worker has so many bytes to deliver.
    Need = 20,
    /// The value.
    Value = 21,
    /// An error record.
    Error = 22,
    /// The payload is in the file.
    Filed = 23,
    /// A call sent ahead had been taken back.
    Skipped = 24,
    /// Processor time of the call whose reply follows, as the worker reads it.
    Usage = 25,
}

impl Kind {
    /// Whether a worker that says so has done with its call.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Need | Self::Value | Self::Error | Self::Filed)
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Kind; 16] = [
            Kind::Shim,
            Kind::ShimCode,
            Kind::Configure,
            Kind::Call,
            Kind::File,
            Kind::Ahead,
            Kind::Initialize,
            Kind::Ready,
            Kind::Ack,
            Kind::Run,
            Kind::Need,
            Kind::Value,
            Kind::Error,
            Kind::Filed,
            Kind::Skipped,
            Kind::Usage,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is about.
    pub kind: Kind,
    /// Which dispatch it belongs to.
    pub generation: u32,
    /// Bytes that follow.
    pub length: u64,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// It does not begin as a frame does.
    Magic([u8; 2]),
    /// Another version of the protocol.
    Version(u8),
    /// No such kind.
    Kind(u8),
    /// More than a frame may hold.
    Length(u64),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(bytes) => write!(f, "a frame begins with {bytes:02x?} instead of `FT`"),
            Self::Version(version) => {
                write!(f, "a frame has version {version}, expected {VERSION}")
            }
            Self::Kind(kind) => write!(f, "a frame has the unknown kind {kind}"),
            Self::Length(length) => write!(
                f,
                "a frame claims {length} bytes, at most {MAX_PAYLOAD_BYTES} are allowed"
            ),
        }
    }
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads a worker's header; no length is believed beyond what a frame may hold.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadFrame> {
        let [m0, m1, version, kind, g0, g1, g2, g3, length @ ..] = *bytes;
        if [m0, m1] != MAGIC {
            return Err(BadFrame::Magic([m0, m1]));
        }
        if version != VERSION {
            return Err(BadFrame::Version(version));
        }
        let kind = Kind::from_byte(kind).ok_or(BadFrame::Kind(kind))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_PAYLOAD_BYTES {
            return Err(BadFrame::Length(length));
        }
        Ok(Self {
            kind,
            generation: u32::from_le_bytes([g0, g1, g2, g3]),
            length,
        })
    }
}
