//! Whole reads and writes at an offset, in bounded steps: never more than [`STEP_BYTES`] under way.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{pread, pwrite, retry_on_intr};

/// The most that one system call moves.
pub const STEP_BYTES: usize = 1 << 20;

/// Writes all of `bytes` from the start of the file; the descriptor's own offset stays.
pub fn write_all(fd: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    write_all_at(fd, bytes, 0)
}

fn write_all_at(fd: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let step = &bytes[..bytes.len().min(STEP_BYTES)];
        let written = retry_on_intr(|| pwrite(&fd, step, offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Copies the first `size` bytes of one file to another through one small buffer. A source that ends early, because
/// somebody cuts it meanwhile, is `UnexpectedEof`.
pub fn copy(from: impl AsFd, to: impl AsFd, size: u64) -> io::Result<()> {
    let mut buffer = vec![0; STEP_BYTES.min(usize::try_from(size).unwrap_or(STEP_BYTES))];
    let mut offset = 0;
    while offset < size {
        let wanted = usize::try_from(size - offset).map_or(buffer.len(), |n| n.min(buffer.len()));
        let read = retry_on_intr(|| pread(&from, &mut buffer[..wanted], offset))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_all_at(&to, &buffer[..read], offset)?;
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-58
    #[test]
    fn a_copy_is_exact_across_steps_and_a_source_cut_short_is_told() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..2 * STEP_BYTES + 5).map(|i| (i % 251) as u8).collect();
        write_all(&from, &bytes).unwrap();
        copy(&from, &to, bytes.len() as u64).unwrap();
        let mut back = vec![0; bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&to, &mut back, 0).unwrap();
        assert!(back == bytes);
        let cut = copy(&from, &to, bytes.len() as u64 + 1).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
