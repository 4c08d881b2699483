//! Bytes on their way, held against the name they go by. Nobody sees the end of a blob that is not the one promised.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fairtrial_exec::Body;

use super::digest::{Blob, PIECE_BYTES, Tally};
use super::fault::Fault;

/// What is to be stored. Can be read any number of times, and by several at once.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Bytes(Arc<[u8]>),
    /// All of a file, wherever its descriptor stands.
    File(Arc<File>),
    /// A value, perhaps mapped.
    Value(Arc<Body>),
}

impl Source {
    pub(super) fn blob(&self) -> Result<Blob, Fault> {
        match self {
            Self::Bytes(bytes) => Ok(Blob::of(bytes)),
            Self::Value(body) => Ok(Blob::of(body.bytes())),
            Self::File(file) => {
                let from_start = FromStart { file, at: 0 };
                Blob::read(from_start).map_err(|error| Fault::of_source(&error))
            }
        }
    }

    /// Its bytes, which must be that blob.
    pub(super) fn reader(&self, blob: Blob) -> Outgoing<'_> {
        let bytes: Box<dyn Read + '_> = match self {
            Self::Bytes(bytes) => Box::new(&**bytes),
            Self::Value(body) => Box::new(body.bytes()),
            Self::File(file) => Box::new(FromStart { file, at: 0 }),
        };
        Outgoing {
            bytes,
            blob,
            tally: Some(Tally::default()),
            fault: None,
        }
    }
}

/// A file read from its start, without moving where others stand in it.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Bytes that are stored. Their last piece is given out only if all of them are the blob they are stored as: a file
/// that changed since it was hashed is never stored whole.
pub(super) struct Outgoing<'a> {
    bytes: Box<dyn Read + 'a>,
    blob: Blob,
    /// None after the end.
    tally: Option<Tally>,
    /// Why there was no end, for whoever has it from an error that went through others.
    fault: Option<Fault>,
}

impl Read for Outgoing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.next(buffer);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.fault = Some(Fault::of_source(error));
        }
        read
    }
}

impl Outgoing<'_> {
    /// What kept its bytes from being read to their end.
    pub(super) fn fault(self) -> Option<Fault> {
        self.fault
    }

    fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tally) = &mut self.tally else {
            return Ok(0);
        };
        let left = self.blob.bytes - tally.bytes();
        if left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = self.bytes.read(&mut buffer[..most])?;
            if read == 0 && most > 0 {
                return Err(changed());
            }
            tally.take(&buffer[..read]);
            if tally.bytes() < self.blob.bytes {
                return Ok(read);
            }
            return self.end().map(|()| read);
        }
        self.end().map(|()| 0)
    }

    fn end(&mut self) -> io::Result<()> {
        match self.tally.take().map(Tally::blob) {
            Some(passed) if passed == self.blob => Ok(()),
            _ => Err(changed()),
        }
    }

    /// Fills a piece as far as there is something to fill it with.
    pub(super) fn fill(&mut self, piece: &mut [u8]) -> Result<usize, Fault> {
        let mut filled = 0;
        while filled < piece.len() {
            match self.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(Fault::of_source(&error)),
            }
        }
        Ok(filled)
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was stored")
}

/// Copies what a store gives to `sink`. Only after `Ok` is it known to be the blob.
pub(super) fn receive(
    mut bytes: impl Read,
    blob: Blob,
    mut sink: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut tally = Tally::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match bytes.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::Unreachable(format!("the answer broke off: {error}"))),
        };
        tally.take(&piece[..read]);
        if tally.bytes() > blob.bytes {
            let problem = format!("it has more than its {} bytes", blob.bytes);
            return Err(Fault::corrupt(blob.digest, problem));
        }
        sink(&piece[..read])?;
    }
    let came = tally.blob();
    if came.bytes < blob.bytes {
        let problem = format!("it has {} of its {} bytes", came.bytes, blob.bytes);
        return Err(Fault::corrupt(blob.digest, problem));
    }
    if came.digest != blob.digest {
        let problem = format!("its bytes have the SHA-256 `{}`", came.digest);
        return Err(Fault::corrupt(blob.digest, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn all(mut reader: impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    }

    /// CL-50
    #[test]
    fn a_source_that_changed_is_never_given_out_whole() {
        let source = Source::Bytes(b"abc".as_slice().into());
        assert_eq!(all(source.reader(Blob::of(b"abc"))).unwrap(), b"abc");
        for promised in [&b"abd"[..], b"abcd", b"ab", b""] {
            let mut seen = Vec::new();
            let mut reader = source.reader(Blob::of(promised));
            let ended = reader.read_to_end(&mut seen);
            if promised == b"ab" || promised == b"" {
                // All that was promised is there: what follows it was never asked for.
                assert_eq!((ended.unwrap(), &*seen), (promised.len(), promised));
            } else {
                assert!(ended.is_err() && seen.len() < promised.len(), "{seen:?}");
            }
        }
    }

    /// CL-54
    #[test]
    fn a_file_is_read_from_its_start_and_its_descriptor_stays_where_it_stood() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let source = Source::File(Arc::new(file.try_clone().unwrap()));
        let blob = source.blob().unwrap();
        assert_eq!(blob, Blob::of(b"0123456789"));
        assert_eq!(all(source.reader(blob)).unwrap(), b"0123456789");
        assert_eq!(file.stream_position().unwrap(), 10);
    }

    /// CL-52
    #[test]
    fn what_is_short_long_or_altered_is_corrupt() {
        let blob = Blob::of(b"abc");
        let come = |bytes: &[u8]| receive(bytes, blob, |_| Ok(()));
        assert_eq!(come(b"abc"), Ok(()));
        for wrong in [&b"ab"[..], b"", b"abd", b"abcd"] {
            let fault = come(wrong).unwrap_err();
            assert!(matches!(fault, Fault::Corrupt { digest, .. } if digest == blob.digest));
        }
    }
}
