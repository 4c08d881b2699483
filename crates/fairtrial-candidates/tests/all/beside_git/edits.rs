//! Random trees and random edits of them, the awkward kinds first.

use super::tree::{Leaf, Tree};

/// A small generator, so that a seed says all.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"a/x",
    b"b/x",
    b"src/main.py",
    b"src/with space.py",
    b"src/deep/er/f.py",
    b"x b/x",
    b"tab\tand\nnewline",
    b"quote\"and\\slash",
    b"\xc3\xbcmlaut",
    b"latin\xe9",
    b"-dash",
    b"old/y",
    b"new/y",
    b"trailing ",
];

/// Lines that look like parts of patches, and ends of every kind.
const LINES: [&[u8]; 14] = [
    b"\n",
    b"x\n",
    b"x\r\n",
    b"\r\n",
    b"-- \n",
    b"--- a/x\n",
    b"+++ b/x\n",
    b"@@ -1 +1 @@\n",
    b"diff --git a/x b/x\n",
    b"\\ No newline at end of file\n",
    b"    indented\n",
    b" \n",
    b"\xff\xfe bytes\n",
    b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n",
];

pub(crate) fn random_tree(random: &mut Random) -> Tree {
    let mut tree = Tree::default();
    for _ in 0..1 + random.below(8) {
        add(&mut tree, random);
    }
    tree
}

pub(crate) fn edit(tree: &mut Tree, random: &mut Random) {
    let names: Vec<_> = tree.0.keys().cloned().collect();
    if names.is_empty() {
        return add(tree, random);
    }
    let name = random.pick(&names).clone();
    match random.below(10) {
        0 => add(tree, random),
        1 => drop(tree.0.remove(&name)),
        2 => {
            let leaf = tree.0.remove(&name).expect("picked");
            put(tree, random, leaf);
        }
        3 => {
            let mut leaf = tree.0.remove(&name).expect("picked");
            change(&mut leaf, random);
            put(tree, random, leaf);
        }
        4 => {
            let mut leaf = tree.0[&name].clone();
            if random.below(2) == 0 {
                change(&mut leaf, random);
            }
            put(tree, random, leaf);
        }
        5 => {
            // Two files change places.
            let other = random.pick(&names).clone();
            let (one, two) = (tree.0[&name].clone(), tree.0[&other].clone());
            tree.0.insert(name, two);
            tree.0.insert(other, one);
        }
        6 => {
            if let Some(Leaf::File { executable, .. }) = tree.0.get_mut(&name) {
                *executable = !*executable;
            }
        }
        7 => drop(tree.0.insert(name, leaf(random))),
        _ => change(tree.0.get_mut(&name).expect("picked"), random),
    }
}

fn add(tree: &mut Tree, random: &mut Random) {
    let leaf = leaf(random);
    put(tree, random, leaf);
}

/// Puts a leaf under some name, taking away what cannot be beside it.
fn put(tree: &mut Tree, random: &mut Random, leaf: Leaf) {
    let name = random.pick(&NAMES).to_vec();
    let below = |one: &[u8], other: &[u8]| {
        one.strip_prefix(other)
            .is_some_and(|rest| rest.starts_with(b"/"))
    };
    tree.0
        .retain(|other, _| !below(other, &name) && !below(&name, other));
    tree.0.insert(name, leaf);
}

fn leaf(random: &mut Random) -> Leaf {
    if random.below(8) == 0 {
        return Leaf::Link(
            random
                .pick(&[&b"a"[..], b"../b", b"/nowhere/at all", b"\xff"])
                .to_vec(),
        );
    }
    let bytes = match random.below(5) {
        0 => Vec::new(),
        1 => (0..random.below(3000))
            .map(|_| random.below(256) as u8)
            .collect(),
        _ => text(random),
    };
    let executable = random.below(4) == 0;
    Leaf::File { bytes, executable }
}

fn text(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..random.below(40) {
        match random.below(3) {
            0 => bytes.extend_from_slice(format!("line {number}\n").as_bytes()),
            _ => bytes.extend_from_slice(random.pick::<&[u8]>(&LINES)),
        }
    }
    if random.below(3) == 0 {
        bytes.pop();
    }
    bytes
}

fn change(leaf: &mut Leaf, random: &mut Random) {
    let bytes = match leaf {
        Leaf::Link(target) => return target.push(b'x'),
        Leaf::File { bytes, .. } => bytes,
    };
    let mut lines: Vec<Vec<u8>> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(lines.len() as u64 + 1) as usize;
        match random.below(3) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines[at] = random.pick(&LINES).to_vec(),
            _ => lines.insert(at, random.pick(&LINES).to_vec()),
        }
    }
    *bytes = lines.concat();
}
