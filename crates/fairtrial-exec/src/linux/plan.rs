//! System calls prepared by the launcher and issued by a process about to run a candidate.
//!
//! All that confines a call is decided and allocated before its process exists; the process itself only goes through
//! the list, whether it is a child of the launcher or a worker that a zygote forked. So both have the same isolation.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::protocol::launcher::Step;

/// Such a list, the memory its arguments point into, and the descriptors it needs.
#[derive(Debug, Default)]
pub struct Plan {
    ops: Vec<Op>,
    memory: Vec<u8>,
    /// Places in the memory that hold the address of another place in it.
    pointers: Vec<(u32, u32)>,
    descriptors: Vec<OwnedFd>,
    way_in: Option<u8>,
}

/// One system call.
#[derive(Clone, Debug)]
struct Op {
    step: Step,
    must: Must,
    number: libc::c_long,
    arguments: Vec<Arg>,
    /// Where in the memory the result goes, as four bytes.
    result_to: Option<u32>,
    /// How often it is issued.
    times: u8,
    /// The argument that is one more each time.
    counting: u8,
}

/// What a system call has to give for the next one to be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    /// Anything but an error.
    Succeed,
    /// Nothing.
    BeTried,
    /// More than 0.
    GiveSomething,
}

impl Must {
    fn holds(self, result: libc::c_long) -> bool {
        match self {
            Self::Succeed => result >= 0,
            Self::BeTried => true,
            Self::GiveSomething => result > 0,
        }
    }
}

/// An argument of a system call.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A number.
    Value(u64),
    /// The address of a place in the plan's memory.
    Memory(u32),
    /// A descriptor of the plan's own.
    Descriptor(u8),
    /// The result of an earlier call that was kept here.
    Kept(u32),
}

/// System calls take this many arguments.
const ARGUMENTS: usize = 6;
/// Where a result goes that nobody needs.
const NOWHERE: u32 = u32::MAX;

impl Plan {
    /// Adds a system call that must succeed.
    pub fn call(&mut self, step: Step, number: libc::c_long, arguments: &[Arg]) {
        self.push(step, number, arguments, Must::Succeed);
    }

    /// Adds a system call that may be refused.
    pub fn try_call(&mut self, step: Step, number: libc::c_long, arguments: &[Arg]) {
        self.push(step, number, arguments, Must::BeTried);
    }

    /// Adds a system call that must give more than 0.
    pub fn call_for_something(&mut self, step: Step, number: libc::c_long, arguments: &[Arg]) {
        self.push(step, number, arguments, Must::GiveSomething);
    }

    fn push(&mut self, step: Step, number: libc::c_long, arguments: &[Arg], must: Must) {
        debug_assert!(arguments.len() <= ARGUMENTS);
        self.ops.push(Op {
            step,
            must,
            number,
            arguments: arguments.to_vec(),
            result_to: None,
            times: 1,
            counting: 0,
        });
    }

    /// Has the last call added issued so often, with this argument one more each time.
    pub fn repeat(&mut self, times: u8, counting: u8) {
        if let Some(op) = self.ops.last_mut() {
            (op.times, op.counting) = (times, counting);
        }
    }

    /// Has the result of the last call added kept, for later ones.
    pub fn keep(&mut self) -> Arg {
        let place = self.bytes(&(-1_i32).to_ne_bytes());
        self.keep_at(place, 0)
    }

    /// As [`Plan::keep`], in a structure that is there already.
    pub fn keep_at(&mut self, structure: Arg, offset: u32) -> Arg {
        let Arg::Memory(at) = structure else {
            return Arg::Value(u64::MAX); // no descriptor, to whoever gets it
        };
        if let Some(op) = self.ops.last_mut() {
            op.result_to = Some(at + offset);
        }
        Arg::Kept(at + offset)
    }

    /// Bytes to point at, aligned for any structure.
    pub fn bytes(&mut self, bytes: &[u8]) -> Arg {
        self.memory.resize(self.memory.len().next_multiple_of(8), 0);
        let at = self.memory.len();
        self.memory.extend_from_slice(bytes);
        Arg::Memory(u32::try_from(at).expect("a plan is small"))
    }

    /// A string to point at.
    pub fn text(&mut self, text: &[u8]) -> Arg {
        let at = self.bytes(text);
        self.memory.push(0);
        at
    }

    /// Has the eight bytes at `offset` into `from` hold the address of `to`.
    pub fn point(&mut self, from: Arg, offset: u32, to: Arg) {
        if let (Arg::Memory(from), Arg::Memory(to)) = (from, to) {
            self.pointers.push((from + offset, to));
        }
    }

    /// A descriptor to use.
    pub fn descriptor(&mut self, descriptor: OwnedFd) -> Arg {
        self.descriptors.push(descriptor);
        Arg::Descriptor(u8::try_from(self.descriptors.len() - 1).expect("a plan has few"))
    }

    /// Writes a file of the kernel's.
    pub fn write(&mut self, step: Step, path: &[u8], text: &[u8]) {
        const HERE: u64 = libc::AT_FDCWD as u64;
        let (path, bytes) = (self.text(path), self.bytes(text));
        let flags = Arg::Value((libc::O_WRONLY | libc::O_CLOEXEC) as u64);
        self.call(step, libc::SYS_openat, &[Arg::Value(HERE), path, flags]);
        let (file, length) = (self.keep(), Arg::Value(text.len() as u64));
        self.call(step, libc::SYS_write, &[file, bytes, length]);
        self.call(step, libc::SYS_close, &[file]);
    }

    /// Marks a descriptor as the handle of the init in whose namespace of processes this one is to be born.
    pub fn lead_in(&mut self, descriptor: Arg) {
        if let Arg::Descriptor(n) = descriptor {
            self.way_in = Some(n);
        }
    }

    /// Which descriptor that is.
    #[must_use]
    pub fn way_in(&self) -> Option<u8> {
        self.way_in
    }

    /// The descriptors, in the order of their numbers.
    #[must_use]
    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        self.descriptors
    }

    /// As the shim reads it: counts, operations of fixed size, pointers, memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 * self.ops.len() + self.memory.len() + 64);
        let count = |n: usize| u32::try_from(n).expect("a plan is small").to_le_bytes();
        bytes.extend(count(self.ops.len()));
        bytes.extend(count(self.pointers.len()));
        bytes.extend(count(self.memory.len()));
        for op in &self.ops {
            let number = u32::try_from(op.number).expect("numbers of system calls are small");
            bytes.extend(number.to_le_bytes());
            bytes.extend(op.result_to.unwrap_or(NOWHERE).to_le_bytes());
            bytes.extend([op.step as u8, op.must as u8, op.times, op.counting]);
            let argument = |n: usize| op.arguments.get(n).copied().unwrap_or(Arg::Value(0));
            bytes.extend((0..ARGUMENTS).map(|n| argument(n).parts().0));
            for n in 0..ARGUMENTS {
                bytes.extend(argument(n).parts().1.to_le_bytes());
            }
        }
        for (at, to) in &self.pointers {
            bytes.extend(at.to_le_bytes());
            bytes.extend(to.to_le_bytes());
        }
        bytes.extend(&self.memory);
        for step in Step::ALL {
            bytes.extend(step.name().bytes().chain([0])); // for whoever tells which one failed
        }
        bytes
    }

    /// Fills in the addresses. After this the plan must stay where it is.
    pub(super) fn settle(&mut self) {
        let base = self.memory.as_ptr() as u64;
        for (at, to) in &self.pointers {
            let place = *at as usize;
            self.memory[place..place + 8].copy_from_slice(&(base + u64::from(*to)).to_ne_bytes());
        }
    }

    /// Goes through the list. Allocates nothing and takes no lock; errno tells why a step failed.
    pub(super) fn run(&mut self, descriptors: &[RawFd]) -> Result<(), Step> {
        for op in &self.ops {
            let mut values = [0; ARGUMENTS];
            for (value, argument) in values.iter_mut().zip(&op.arguments) {
                *value = match *argument {
                    Arg::Value(value) => value,
                    Arg::Memory(at) => self.memory.as_ptr() as u64 + u64::from(at),
                    Arg::Descriptor(n) => descriptors[usize::from(n)] as u64,
                    Arg::Kept(at) => kept(&self.memory, at),
                };
            }
            let mut result = 0;
            for _ in 0..op.times {
                let [a, b, c, d, e, f] = values;
                // SAFETY: whoever made the plan chose number and arguments together; memory they point to is the plan's.
                result = unsafe { libc::syscall(op.number, a, b, c, d, e, f) };
                if !op.must.holds(result) {
                    return Err(op.step);
                }
                let counted = &mut values[usize::from(op.counting)];
                *counted = counted.wrapping_add(1);
            }
            if let Some(at) = op.result_to {
                let at = at as usize;
                self.memory[at..at + 4].copy_from_slice(&(result as i32).to_ne_bytes());
            }
        }
        Ok(())
    }

    /// Numbers of the descriptors in this process.
    pub(super) fn raw_descriptors(&self) -> Vec<RawFd> {
        self.descriptors.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

impl Arg {
    fn parts(self) -> (u8, u64) {
        match self {
            Self::Value(value) => (0, value),
            Self::Memory(at) => (1, u64::from(at)),
            Self::Descriptor(n) => (2, u64::from(n)),
            Self::Kept(at) => (3, u64::from(at)),
        }
    }
}

fn kept(memory: &[u8], at: u32) -> u64 {
    let at = at as usize;
    let bytes = memory[at..at + 4].try_into().expect("four bytes");
    i32::from_ne_bytes(bytes) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_gone_through_in_order_until_a_step_fails() {
        let mut plan = Plan::default();
        let reader = {
            let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
            let (writer, word) = (plan.descriptor(writer), plan.bytes(b"done"));
            let write = [writer, word, Arg::Value(4)];
            plan.call(Step::Session, libc::SYS_write, &write);
            plan.try_call(Step::Session, libc::SYS_close, &[Arg::Value(u64::MAX)]);
            plan.call(Step::Rlimits, libc::SYS_close, &[Arg::Value(u64::MAX)]);
            plan.call(Step::Session, libc::SYS_write, &write);
            reader
        };
        plan.settle();
        let descriptors = plan.raw_descriptors();
        assert_eq!(plan.run(&descriptors), Err(Step::Rlimits));
        drop(plan);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(reader), &mut text).expect("read");
        assert_eq!(text, "done");
    }

    #[test]
    fn memory_can_point_at_memory() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut plan = Plan::default();
        let word = plan.bytes(b"vector");
        let vector = plan.bytes(&[[0; 8], 6_u64.to_ne_bytes()].concat());
        plan.point(vector, 0, word);
        let writer = plan.descriptor(writer);
        plan.call(
            Step::Session,
            libc::SYS_writev,
            &[writer, vector, Arg::Value(1)],
        );
        plan.settle();
        let descriptors = plan.raw_descriptors();
        plan.run(&descriptors).expect("all succeed");
        let mut bytes = [0; 6];
        rustix::io::read(&reader, &mut bytes).expect("read");
        assert_eq!(&bytes, b"vector");
    }
}
