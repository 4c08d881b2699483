//! Whether some bytes are the ones that an `index` line names.

use sha2::Digest;

/// Whether git would give `content` an id that starts with these digits. Ids are SHA-1, or SHA-256 by their length.
pub(super) fn has_id(content: &[u8], digits: &[u8]) -> bool {
    let id = match digits.len() {
        41.. => id::<sha2::Sha256>(content),
        _ => id::<sha1::Sha1>(content),
    };
    id.as_bytes().starts_with(&digits.to_ascii_lowercase())
}

/// Whether the digits stand for a file that is not there.
pub(super) fn is_none(digits: &[u8]) -> bool {
    digits.iter().all(|digit| *digit == b'0')
}

fn id<D: Digest>(content: &[u8]) -> String {
    let header = format!("blob {}\0", content.len());
    let digest = D::new().chain_update(header).chain_update(content);
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_gits() {
        assert!(has_id(b"", b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"));
        assert!(has_id(b"", b"e69de29"));
        assert!(has_id(
            b"",
            b"473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"
        ));
        assert!(!has_id(b"x", b"e69de29"));
        assert!(is_none(b"0000000") && !is_none(b"0000001"));
    }
}
