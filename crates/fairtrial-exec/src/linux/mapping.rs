//! Private writable mappings of files that nobody can change any more.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use memmap2::{MmapMut, MmapOptions};

/// A file's bytes in memory: private (what is written stays here), and independent of the descriptor they came from.
pub struct Mapping(MmapMut);

impl Mapping {
    /// Maps the first `len` bytes; `len` is not zero.
    ///
    /// The caller must have made sure that nobody can write to the file or cut it (see `ResultFile::settle`): pages
    /// of a private mapping follow the file until they are first written, and pages past the end are SIGBUS.
    pub(crate) fn new(fd: impl AsFd, len: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        // Without it the kernel counts all of a private writable mapping as memory that may be used up, and refuses
        // one larger than RAM and swap together although its pages are the file's.
        options.len(len).no_reserve_swap();
        // SAFETY: the mapping is valid for `len` bytes as long as the file keeps its size and its bytes, which the
        // only caller has checked: a fully sealed memfd, or a file on disk that no other process has open.
        let mapped = unsafe { options.map_copy(fd.as_fd().as_raw_fd()) }?;
        Ok(Self(mapped))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to be changed in place; no file changes.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Moves the bytes to `address`, over what is mapped there, whose owner then owns them.
    ///
    /// # Safety
    ///
    /// `address` begins a private mapping of at least as many bytes, aligned to a page, that nobody reads or writes
    /// meanwhile and that its owner will unmap.
    pub unsafe fn move_onto(self, address: *mut u8) -> io::Result<()> {
        let mut map = std::mem::ManuallyDrop::new(self.0);
        let (from, len) = (map.as_mut_ptr(), map.len());
        // SAFETY: `from` is our own mapping of `len` bytes, given up with `self`; the caller vouches for `address`.
        let moved = unsafe {
            rustix::mm::mremap_fixed(
                from.cast(),
                len,
                len,
                rustix::mm::MremapFlags::MAYMOVE,
                address.cast(),
            )
        };
        match moved {
            Ok(_) => Ok(()),
            Err(error) => {
                drop(std::mem::ManuallyDrop::into_inner(map)); // it is still where it was
                Err(error.into())
            }
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.0.len())
    }
}

/// The mapping a worker might keep.
#[cfg(test)]
pub(crate) fn shared_for_tests(file: &std::fs::File, len: usize) -> MmapMut {
    // SAFETY: the tests that use it do not cut the file below it.
    unsafe { MmapOptions::new().len(len).map_mut(file) }.unwrap()
}

#[cfg(test)]
mod tests {
    use rustix::fs::ftruncate;
    use rustix::io::pwrite;

    use super::*;

    /// EX-59
    #[test]
    fn a_mapping_is_writable_private_and_outlives_its_descriptor() {
        let file = tempfile::tempfile().unwrap();
        pwrite(&file, b"abc", 0).unwrap();
        let mut mapping = Mapping::new(&file, 3).unwrap();
        mapping.bytes_mut()[0] = b'x';
        let mut back = [0; 3];
        rustix::io::pread(&file, &mut back, 0).unwrap();
        drop(file);
        assert_eq!((mapping.bytes(), &back), (&b"xbc"[..], b"abc"));
    }

    /// EX-55
    #[test]
    fn a_file_larger_than_memory_can_be_mapped() {
        let file = tempfile::tempfile().unwrap();
        let len = 1 << 40;
        ftruncate(&file, len as u64).unwrap();
        pwrite(&file, b"end", len as u64 - 3).unwrap();
        let mapping = Mapping::new(&file, len).unwrap();
        assert_eq!(
            (mapping.bytes()[0], &mapping.bytes()[len - 3..]),
            (0, &b"end"[..])
        );
    }
}
